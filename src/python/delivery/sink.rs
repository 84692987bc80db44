//! A sink that is a Python object: its thread keeps a Python thread state, and attaches once for each group (border rule 3).

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyDictMethods, PyList, PyMapping, PyString};

use crate::delivery::DeliveryError;
use crate::delivery::{AroundFn, Delivery, Sink, SyncFn, Verdict, Verdicts};
use crate::python::delivery::answers::this_thread_is_of_an_engine;
use crate::python::delivery::attempt;
use crate::python::delivery::failures::{self, Failure};
use crate::python::tools::finalizing::ForeignCall;
use crate::python::tools::made_once::intern;
use crate::python::tools::native_lock::attach;

/// An object of a subclass of `tickwheel.delivery.sinks.Sink`.
pub(crate) struct PythonSink {
    object: Option<Py<PyAny>>,
    most: usize,
    threads: usize,
    is_cut_off: bool,
    sync: Option<SyncFn>,
    position: Option<String>,
    /// Whether the class wants to know what is on disk; and that, from the engine and as the object was told last.
    forgets: bool,
    committed: (u64, bool),
    told: (u64, bool),
}

impl PythonSink {
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let base = py.import("tickwheel.delivery.sinks.sink")?.getattr("Sink")?;
        let has_own = |name| PyResult::Ok(!object.get_type().getattr(name)?.is(&base.getattr(name)?));
        let (syncs, forgets) = (has_own("sync")?, has_own("committed")?);
        let kept = object.clone().unbind();
        let sync = move || attach(|py| sync_one(py, &kept));
        Ok(Self {
            most: object.getattr("max_batch")?.extract()?,
            threads: object.getattr("threads")?.extract()?,
            is_cut_off: object.getattr("is_cut_off")?.extract()?,
            sync: syncs.then(|| Arc::new(sync) as SyncFn),
            position: position_of(object)?,
            forgets,
            committed: (0, false),
            told: (0, false),
            object: Some(object.clone().unbind()),
        })
    }

    /// Runs it with the object, attached. `None` at the end of the interpreter.
    fn with<R>(&self, call: impl FnOnce(&Bound<'_, PyAny>) -> R) -> Option<R> {
        let object = self.object.as_ref()?;
        attach(|py| {
            let _call = ForeignCall::try_enter(py)?;
            Some(call(object.bind(py)))
        })
    }
}

fn sync_one(py: Python<'_>, object: &Py<PyAny>) -> Result<(), DeliveryError> {
    let Some(_call) = ForeignCall::try_enter(py) else { return Err(DeliveryError::Closed) };
    object.call_method0(py, "sync").map(drop).map_err(|error| failures::from_python(py, &error))
}

fn position_of(object: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    object.call_method0(intern!(object.py(), "position"))?.extract()
}

impl Sink for PythonSink {
    fn max_messages(&self) -> usize {
        self.most
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// The thread state is made here, and kept until the thread ends. It is detached while the thread waits.
    fn around(&self) -> Option<AroundFn> {
        Some(Arc::new(|run| {
            this_thread_is_of_an_engine();
            attach(|py| py.detach(run));
        }))
    }

    fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        let mut position = None;
        let committed = (self.forgets && self.told != self.committed).then_some(self.committed);
        let sent = self.with(|object| {
            let verdicts = send(object, deliveries, committed)?;
            position = position_of(object).unwrap_or_default();
            Ok(verdicts)
        });
        self.told = self.committed;
        self.position = position.or(self.position.take());
        sent.unwrap_or(Err(DeliveryError::Closed))
    }

    fn committed(&mut self, sends: u64, earlier: bool) {
        self.committed = (sends, earlier); // told with the next send: one attach for both
    }

    fn position(&self) -> Option<String> {
        self.position.clone()
    }

    fn arrived(&mut self, suspects: &[Delivery], position: Option<&str>) -> Result<Vec<i64>, DeliveryError> {
        let asked = self.with(|object| {
            let py = object.py();
            let ask = || -> PyResult<Vec<i64>> {
                let found = object.call_method1("arrived", (to_python(py, suspects)?, position))?;
                found.try_iter()?.map(|seq| seq?.extract()).collect()
            };
            ask().map_err(|error| failures::from_python(py, &error))
        });
        asked.unwrap_or(Err(DeliveryError::Closed))
    }

    fn sync(&self) -> Option<SyncFn> {
        self.sync.clone()
    }

    fn close(&mut self) -> Result<(), DeliveryError> {
        let closed = self.with(|object| {
            let py = object.py();
            object.call_method0("close").map(drop).map_err(|error| {
                let text = error.value(py).str().map(|text| text.to_string_lossy().into_owned());
                DeliveryError::Failed(text.unwrap_or_default())
            })
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

/// One that was opened and never used.
impl Drop for PythonSink {
    fn drop(&mut self) {
        if self.object.is_some() {
            let _ = self.close();
        }
    }
}

fn to_python<'py>(py: Python<'py>, deliveries: &[Delivery]) -> PyResult<Bound<'py, PyList>> {
    let made = deliveries.iter().map(|it| Bound::new(py, attempt::Delivery::of(it.clone())));
    PyList::new(py, made.collect::<PyResult<Vec<_>>>()?)
}

/// Calls `committed` where there is something new, then `send`, and reads what it returned or raised.
pub(crate) fn send(
    object: &Bound<'_, PyAny>,
    deliveries: &[Delivery],
    committed: Option<(u64, bool)>,
) -> Result<Verdicts, DeliveryError> {
    let py = object.py();
    let call = || {
        if let Some(committed) = committed {
            object.call_method1(intern!(py, "committed"), committed)?;
        }
        object.call_method1(intern!(py, "send"), (to_python(py, deliveries)?,))
    };
    let raised = match call() {
        Ok(answer) => match verdicts_of(&answer, deliveries.len()) {
            Ok(verdicts) => return Ok(verdicts),
            Err(error) => error,
        },
        Err(error) => error,
    };
    let verdict = match failures::of_sink(py, &raised) {
        Failure::Fatal(error) => return Err(error),
        failure => verdict_of(failure),
    };
    Ok(Verdicts::Each(vec![verdict; deliveries.len()]))
}

fn verdict_of(failure: Failure) -> Verdict {
    match failure {
        Failure::Fatal(error) => Verdict::Refused(error.to_string()),
        Failure::Refused(reason) => Verdict::Refused(reason),
        Failure::Unanswered(reason, retry_after_ms) => Verdict::Unanswered { reason, retry_after_ms },
        Failure::Unreachable(reason, retry_after_ms) => Verdict::Unreachable { reason, retry_after_ms },
    }
}

/// From a mapping of the places that did not arrive, to a text (it is refused), an exception, or `None` (it was not tried).
fn verdicts_of(answer: &Bound<'_, PyAny>, count: usize) -> PyResult<Verdicts> {
    let py = answer.py();
    if answer.cast::<PyDict>().is_ok_and(PyDictMethods::is_empty) {
        return Ok(Verdicts::Delivered);
    }
    let mut verdicts = vec![Verdict::Delivered; count];
    for pair in answer.cast::<PyMapping>()?.items()? {
        let (place, why) = pair.extract::<(usize, Bound<'_, PyAny>)>()?;
        let Some(verdict) = verdicts.get_mut(place) else { continue };
        *verdict = if why.is_none() {
            Verdict::NotTried
        } else if let Ok(reason) = why.cast::<PyString>() {
            Verdict::Refused(reason.to_string_lossy().into_owned())
        } else {
            verdict_of(failures::of_sink(py, &PyErr::from_value(why)))
        };
    }
    Ok(Verdicts::Each(verdicts))
}
