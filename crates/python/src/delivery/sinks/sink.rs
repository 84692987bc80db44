//! A sink that calls a Python object. Its thread keeps a Python thread state, and attaches once for each group (border
//! rule 3).

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow_array::RecordBatch;
use pyo3::exceptions::{PyBaseException, PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyDictMethods, PyFrozenSet, PyList, PyMapping, PySet, PyString};

use crate::delivery::calls::callees::{Callee, Callees};
use crate::delivery::calls::failures;
use crate::delivery::calls::raised::Raised;
use crate::delivery::values::attempt;
use crate::delivery::values::receipts::{this_thread_is_of, this_thread_writes_for};
use crate::delivery::values::rows::DeliveryRows;
use crate::tools::finalizing::ForeignCall;
use crate::tools::made_once::intern;
use crate::tools::native_lock::attach;
use tickwheel_delivery::internal::{AroundFn, LONGEST_REASON, cut, delivery_rows};
use tickwheel_delivery::{Delivery, DeliveryError, Sink, SyncFn, Verdict, Verdicts};

/// An object of a subclass of `tickwheel.delivery.sinks.Sink`.
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(crate) struct PythonSink {
    engine: u64,
    object: Option<Py<PyAny>>,
    /// `pyarrow.record_batch`, where the object has `send_batch`.
    record_batch: Option<Py<PyAny>>,
    most: usize,
    threads: usize,
    spare: usize,
    is_cut_off: bool,
    /// Whether the class has a position.
    is_alone: bool,
    sync: Option<SyncFn>,
    position: Option<String>,
    /// Whether the class wants to know what is on disk. `committed` is this state in the engine, `passed` is the state
    /// that the object got last.
    forgets: bool,
    committed: (u64, bool),
    passed: (u64, bool),
    /// Whether the last call of its `committed` failed and this was logged. `asked_in_vain` says the same of its
    /// `position`.
    pass_failed: bool,
    asked_in_vain: bool,
    /// For what ends a program, as a Ctrl-C, while the main thread is in a call of the object.
    raised: Raised,
}

/// The most that a class may ask for.
const MOST_IN_BATCH: usize = 1_000_000;
const MOST_THREADS: usize = 256;

/// An attribute of the class with a size.
fn size_of(object: &Bound<'_, PyAny>, name: &str, sizes: RangeInclusive<usize>) -> PyResult<usize> {
    let value = object.getattr(name)?;
    let size = if value.is_instance_of::<PyBool>() { None } else { value.extract::<usize>().ok() };
    size.filter(|size| sizes.contains(size)).ok_or_else(|| {
        let (class, value) = (object.get_type(), failures::quoted(&value));
        let class = class.name().map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned());
        let (least, most) = (sizes.start(), sizes.end());
        let text = format!("{name} of the sink {class} is {value}: it may be {least} to {most}");
        failures::wrong_usage(object.py(), &text)
    })
}

impl PythonSink {
    /// Opened and not yet used. Its `position` is asked for.
    ///
    /// Errors: `WrongUsage`, and what ends a program, as a Ctrl-C.
    pub(crate) fn of(object: &Bound<'_, PyAny>, callees: &Callees, raised: &Raised) -> PyResult<Self> {
        let py = object.py();
        let base = py.import("tickwheel.delivery.sinks.sink")?.getattr("Sink")?;
        let has_own = |name| PyResult::Ok(!object.get_type().getattr(name)?.is(&base.getattr(name)?));
        let (syncs, forgets, is_alone) = (has_own("sync")?, has_own("committed")?, has_own("position")?);
        let sync = syncs.then(|| {
            let (engine, kept) = (callees.engine(), callees.add(py, object.clone().unbind()));
            Arc::new(move || {
                this_thread_writes_for(engine);
                attach(|py| sync_one(py, &kept))
            }) as SyncFn
        });
        let mut asked_in_vain = false;
        Ok(Self {
            engine: callees.engine(),
            most: size_of(object, "max_batch", 1..=MOST_IN_BATCH)?,
            threads: size_of(object, "threads", 1..=MOST_THREADS)?,
            spare: size_of(object, "spare", 0..=MOST_THREADS)?,
            is_cut_off: object.getattr("is_cut_off")?.is_truthy()?,
            is_alone,
            sync,
            position: position_of(object, &mut asked_in_vain)?,
            record_batch: object.hasattr("send_batch")?.then(|| record_batch(py)).transpose()?,
            forgets,
            committed: (0, false),
            passed: (0, false),
            pass_failed: false,
            asked_in_vain,
            raised: raised.clone(),
            object: Some(object.clone().unbind()),
        })
    }

    /// Runs it with the object, attached. `None` at the end of the interpreter.
    fn with<R>(&self, call: impl FnOnce(&Bound<'_, PyAny>) -> R) -> Option<R> {
        let object = self.object.as_ref()?;
        attach(|py| {
            let _call = ForeignCall::try_enter_sink(py)?;
            Some(call(object.bind(py)))
        })
    }
}

/// For a thread of this engine. The thread state is made here, and kept until the thread ends. It is detached while the
/// thread waits.
pub(crate) fn kept_attached(engine: u64) -> AroundFn {
    Arc::new(move |run| {
        this_thread_is_of(engine);
        attach(|py| py.detach(run));
    })
}

fn sync_one(py: Python<'_>, object: &Callee) -> Result<(), DeliveryError> {
    let Some(_call) = ForeignCall::try_enter_sink(py) else { return Err(DeliveryError::Closed) };
    let Some(object) = object.get(py) else { return Err(DeliveryError::Closed) };
    let synced = object.call_method0("sync");
    synced.map(drop).map_err(|error| {
        let reason = failures::from_python(py, &error);
        DeliveryError::Failed(format!("the sink's sync() failed: {reason}"))
    })
}

/// Returns the position of the object. If the call fails, or returns no text, the first failure is logged and the last
/// position still holds: all later sends come after it too.
///
/// Errors: an exception that ends a program, such as a Ctrl-C.
fn position_of(object: &Bound<'_, PyAny>, in_vain: &mut bool) -> PyResult<Option<String>> {
    let asked = object.call_method0(intern!(object.py(), "position")).and_then(|position| {
        position.extract().map_err(|_| {
            let position = failures::quoted(&position);
            PyTypeError::new_err(format!("position returned {position}: return a text, or None"))
        })
    });
    match asked {
        Err(error) if !error.is_instance_of::<PyException>(object.py()) => Err(error),
        Err(error) => {
            if !*in_vain {
                log(object, "log_no_position", &error);
            }
            *in_vain = true;
            Ok(None)
        }
        Ok(position) => {
            *in_vain = false;
            Ok(position)
        }
    }
}

impl Sink for PythonSink {
    fn max_messages(&self) -> usize {
        self.most
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn spare(&self) -> usize {
        self.spare
    }

    fn is_alone(&self) -> bool {
        self.is_alone
    }

    fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    fn around(&self) -> Option<AroundFn> {
        Some(kept_attached(self.engine))
    }

    fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        let mut position = None;
        let rows = self.record_batch.as_ref().map(|_| delivery_rows(deliveries)); // without the GIL
        let committed = (self.forgets && self.passed != self.committed).then_some(self.committed);
        let (mut pass_failed, mut asked_in_vain) = (self.pass_failed, self.asked_in_vain);
        let sent = self.with(|object| {
            if let Some(committed) = committed {
                let passed = object.call_method1(intern!(object.py(), "committed"), committed);
                if let Err(raised) = &passed
                    && !pass_failed
                {
                    log(object, "log_uncommitted", raised);
                }
                pass_failed = passed.is_err();
            }
            let verdicts = match (&self.record_batch, rows) {
                (Some(record_batch), Some(rows)) => send_batch(object, record_batch, rows),
                _ => send(object, deliveries),
            }?;
            position = position_of(object, &mut asked_in_vain).unwrap_or_default();
            Ok(verdicts)
        });
        (self.pass_failed, self.asked_in_vain) = (pass_failed, asked_in_vain);
        if !pass_failed {
            self.passed = self.committed;
        }
        self.position = position.or(self.position.take());
        sent.unwrap_or(Err(DeliveryError::Closed))
    }

    fn committed(&mut self, sends: u64, earlier: bool) {
        self.committed = (sends, earlier); // passed with the next send: one attach for both
    }

    fn position(&self) -> Option<String> {
        self.position.clone()
    }

    fn arrived(&mut self, suspects: &[Delivery], position: Option<&str>) -> Result<Vec<i64>, DeliveryError> {
        let asked = self.with(|object| {
            let py = object.py();
            let ask = || -> PyResult<Vec<i64>> {
                let mut seqs = Vec::new();
                for seq in object.call_method1("arrived", (to_python(py, suspects)?, position))?.try_iter()? {
                    if seqs.len() == MOST_IN_BATCH {
                        let text = format!(
                            "arrived returned more than {MOST_IN_BATCH} numbers: return those it was asked for"
                        );
                        return Err(PyValueError::new_err(text));
                    }
                    seqs.push(seq?.extract()?);
                }
                Ok(seqs)
            };
            ask().map_err(|error| self.raised.failed(py, error))
        });
        asked.unwrap_or(Err(DeliveryError::Closed))
    }

    fn sync(&self) -> Option<SyncFn> {
        self.sync.clone()
    }

    fn close(&mut self) -> Result<(), DeliveryError> {
        let closed = self.with(|object| {
            object.call_method0("close").map(drop).map_err(|error| self.raised.failed(object.py(), error))
        });
        let object = self.object.take();
        match closed {
            None => {
                std::mem::forget(object); // the interpreter is gone, or it was closed before
                Ok(())
            }
            Some(closed) => closed,
        }
    }
}

/// For a sink that was opened and never used.
impl Drop for PythonSink {
    fn drop(&mut self) {
        if self.object.is_some() {
            let _ = self.close();
        }
    }
}

/// Logs an error that is not about messages, with this function of `tickwheel.delivery.observe.log`.
fn log(object: &Bound<'_, PyAny>, function: &str, raised: &PyErr) {
    let py = object.py();
    let log = || py.import("tickwheel.delivery.observe.log")?.call_method1(function, (raised.value(py),));
    if let Err(error) = log() {
        error.write_unraisable(py, Some(object));
    }
}

fn to_python<'py>(py: Python<'py>, deliveries: &[Delivery]) -> PyResult<Bound<'py, PyList>> {
    let made = deliveries.iter().map(|it| Bound::new(py, attempt::Delivery::of(it.clone())));
    PyList::new(py, made.collect::<PyResult<Vec<_>>>()?)
}

fn record_batch(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let found = py.import("pyarrow").and_then(|module| module.getattr("record_batch"));
    found.map(Bound::unbind).map_err(|error| {
        let text = format!("pyarrow, which a sink with send_batch needs, can't be imported ({error})");
        failures::wrong_usage(py, &format!("{text}: run pip install 'tickwheel[parquet]'"))
    })
}

/// Calls `send`, and reads what it returned or raised.
fn send(object: &Bound<'_, PyAny>, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
    let py = object.py();
    let count = deliveries.len();
    let sent = to_python(py, deliveries).and_then(|it| object.call_method1(intern!(py, "send"), (it,)));
    settled(py, sent.and_then(|answer| verdicts_of(&answer, count)), count)
}

/// Calls `send_batch`, and reads what it returned or raised.
fn send_batch(
    object: &Bound<'_, PyAny>,
    record_batch: &Py<PyAny>,
    rows: RecordBatch,
) -> Result<Verdicts, DeliveryError> {
    let py = object.py();
    let count = rows.num_rows();
    let made = Bound::new(py, DeliveryRows::new(rows)).and_then(|rows| record_batch.bind(py).call1((rows,)));
    let sent = made.and_then(|batch| object.call_method1(intern!(py, "send_batch"), (batch,)));
    settled(py, sent.and_then(|answer| verdicts_of_mask(&answer, count)), count)
}

/// If it raised, none is known to have arrived.
fn settled(py: Python<'_>, verdicts: PyResult<Verdicts>, count: usize) -> Result<Verdicts, DeliveryError> {
    verdicts.or_else(|raised| Ok(Verdicts::Each(vec![failures::of_sink(py, &raised)?; count])))
}

/// Reads a mapping from the places that did not arrive to reasons: a text (refused), an exception, or `None` (not
/// tried).
fn verdicts_of(answer: &Bound<'_, PyAny>, count: usize) -> PyResult<Verdicts> {
    if answer.cast::<PyDict>().is_ok_and(PyDictMethods::is_empty) {
        return Ok(Verdicts::Delivered);
    }
    let mut verdicts = vec![Verdict::Delivered; count];
    let Ok(refusals) = answer.cast::<PyMapping>() else {
        let text = format!(
            "send returned {}: return a dict with the place of each delivery that did not arrive, and why; an empty one if \
             all arrived",
            failures::quoted(answer)
        );
        return Err(PyTypeError::new_err(text));
    };
    // If there are more pairs than deliveries, one of the places is wrong.
    for pair in refusals.call_method0(intern!(answer.py(), "items"))?.try_iter()?.take(count + 1) {
        let (place, why) = pair?.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
        let Some(verdict) = place.extract().ok().and_then(|place: usize| verdicts.get_mut(place)) else {
            let place = failures::quoted(&place);
            let text = format!("send returned the place {place}, and had {count} deliveries: return places from 0");
            return Err(PyValueError::new_err(text));
        };
        if !is_reason(&why) {
            return Err(no_verdict("send", &why));
        }
        *verdict = verdict_of_reason(&why);
    }
    Ok(Verdicts::Each(verdicts))
}

/// Reads a boolean array or a sequence. `True`: the delivery has arrived. `False` or a text: it is refused. An
/// exception gives the reason. `None`: it was not tried.
fn verdicts_of_mask(answer: &Bound<'_, PyAny>, count: usize) -> PyResult<Verdicts> {
    let py = answer.py();
    let no_mask = || {
        let text = format!(
            "send_batch returned {}: return a boolean array, or a list with True, False or a reason for each delivery",
            failures::quoted(answer)
        );
        PyTypeError::new_err(text)
    };
    let wrong_number = |number: &str| {
        let text = format!("send_batch returned {number} verdicts for {count} deliveries: return one for each");
        PyValueError::new_err(text)
    };
    let has_no_order = answer.is_instance_of::<PySet>() || answer.is_instance_of::<PyFrozenSet>();
    if has_no_order || answer.is_instance_of::<PyMapping>() || answer.is_instance_of::<PyString>() {
        return Err(no_mask());
    }
    if let Ok(number) = answer.len()
        && number != count
    {
        return Err(wrong_number(&number.to_string()));
    }
    let listed = if answer.hasattr(intern!(py, "to_pylist"))? {
        answer.call_method0(intern!(py, "to_pylist"))? // of pyarrow
    } else if answer.hasattr(intern!(py, "tolist"))? {
        answer.call_method0(intern!(py, "tolist"))? // of numpy
    } else {
        answer.clone()
    };
    let mut verdicts = Vec::with_capacity(count);
    for why in listed.try_iter().map_err(|_| no_mask())? {
        let why = why?;
        if verdicts.len() == count {
            return Err(wrong_number(&format!("more than {count}")));
        }
        verdicts.push(if is_reason(&why) {
            verdict_of_reason(&why)
        } else if why.eq(true)? {
            Verdict::Delivered // also 1, and the true of numpy
        } else if why.eq(false)? {
            Verdict::Refused("the destination did not take it".to_owned())
        } else {
            return Err(no_verdict("send_batch", &why));
        });
    }
    if verdicts.len() < count {
        return Err(wrong_number(&verdicts.len().to_string()));
    }
    Ok(Verdicts::Each(verdicts))
}

fn is_reason(why: &Bound<'_, PyAny>) -> bool {
    why.is_none() || why.is_instance_of::<PyString>() || why.is_instance_of::<PyBaseException>()
}

/// The error for a value that a sink may not return. Then no delivery is known to have arrived.
fn no_verdict(method: &str, why: &Bound<'_, PyAny>) -> PyErr {
    let allowed = match method {
        "send" => "a text, an exception or None",
        _ => "True, False, a text, an exception or None",
    };
    PyTypeError::new_err(format!("{method} returned {} as a verdict: return {allowed}", failures::quoted(why)))
}

fn verdict_of_reason(why: &Bound<'_, PyAny>) -> Verdict {
    if why.is_none() {
        Verdict::NotTried
    } else if let Ok(reason) = why.cast::<PyString>() {
        Verdict::Refused(cut(&reason.to_string_lossy(), LONGEST_REASON).to_owned()) // one for each of a million, maybe
    } else {
        let verdict = failures::of_sink(why.py(), &PyErr::from_value(why.clone()));
        verdict.unwrap_or_else(|error| Verdict::Refused(error.to_string()))
    }
}
