//! A sink that calls a Python object. Its thread keeps a Python thread state, and attaches once for each group (border
//! rule 3).

use std::ops::RangeInclusive;
use std::sync::Arc;

use pyo3::exceptions::{PyBaseException, PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyDictMethods, PyList, PyMapping, PyString};

use crate::delivery::calls::callees::{Callee, Callees};
use crate::delivery::calls::failures;
use crate::delivery::calls::raised::Raised;
use crate::delivery::values::attempt;
use crate::delivery::values::receipts::{this_thread_is_of, this_thread_writes_for};
use crate::tools::finalizing::ForeignCall;
use crate::tools::made_once::intern;
use crate::tools::native_lock::attach;
use tickwheel_delivery::internal::{AroundFn, LONGEST_REASON, cut};
use tickwheel_delivery::{Delivery, DeliveryError, Sink, SyncFn, Verdict, Verdicts};

/// An object of a subclass of `tickwheel.delivery.sinks.Sink`.
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(crate) struct PythonSink {
    engine: u64,
    object: Option<Py<PyAny>>,
    most: usize,
    threads: usize,
    spare: usize,
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
            is_alone,
            sync,
            position: position_of(object, &mut asked_in_vain)?,
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

    fn around(&self) -> Option<AroundFn> {
        Some(kept_attached(self.engine))
    }

    fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        let mut position = None;
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
            let verdicts = send(object, deliveries)?;
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

/// Calls `send`, and reads what it returned or raised.
fn send(object: &Bound<'_, PyAny>, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
    let py = object.py();
    let count = deliveries.len();
    let sent = to_python(py, deliveries).and_then(|it| object.call_method1(intern!(py, "send"), (it,)));
    settled(py, sent.and_then(|answer| verdicts_of(&answer, count)), count)
}

/// If it raised, none is known to have arrived. What is final for one of several is not for the others: they are refused, and
/// come again in smaller sends.
fn settled(py: Python<'_>, verdicts: PyResult<Verdicts>, count: usize) -> Result<Verdicts, DeliveryError> {
    verdicts.or_else(|raised| {
        let verdict = match failures::of_sink(py, &raised)? {
            Verdict::Final(reason) if count > 1 => Verdict::Refused(reason),
            verdict => verdict,
        };
        Ok(Verdicts::Each(vec![verdict; count]))
    })
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
            return Err(no_verdict(&why));
        }
        *verdict = verdict_of_reason(&why);
    }
    Ok(Verdicts::Each(verdicts))
}

fn is_reason(why: &Bound<'_, PyAny>) -> bool {
    why.is_none() || why.is_instance_of::<PyString>() || why.is_instance_of::<PyBaseException>()
}

/// The error for a value that a sink may not return. Then no delivery is known to have arrived.
fn no_verdict(why: &Bound<'_, PyAny>) -> PyErr {
    let given = failures::quoted(why);
    PyTypeError::new_err(format!("send returned {given} as a verdict: return a text, an exception or None"))
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
