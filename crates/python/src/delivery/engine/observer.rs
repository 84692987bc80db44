//! The Python functions of the observer: they get the dead letters and events of the engine.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::delivery::calls::callees::Callee;
use crate::delivery::calls::failures;
use crate::delivery::values::items;
use crate::delivery::values::receipts::this_thread_is_of;
use crate::tools::finalizing::{ForeignCall, not_unwound};
use crate::tools::native_lock::attach;
use tickwheel_delivery::{DeliveryError, Event, Letter, Observer};

/// `put_letters` takes a list of `Letter`; `put_events` a list of tuples, each with the name of the event first.
pub(crate) struct PythonObserver {
    pub(crate) engine: u64,
    pub(crate) put_letters: Callee,
    pub(crate) put_events: Callee,
}

impl Observer for PythonObserver {
    fn letters(&self, letters: &[Letter]) -> Result<(), DeliveryError> {
        this_thread_is_of(self.engine);
        attach(|py| {
            let Some(_call) = ForeignCall::try_enter_sink(py) else { return Err(DeliveryError::Closed) };
            let Some(function) = self.put_letters.get(py) else { return Err(DeliveryError::Closed) };
            not_unwound(|| put_letters(py, &function, letters)).map_err(|error| failures::from_python(py, &error))
        })
    }

    /// Gives free pages of all arenas back. Otherwise glibc keeps most of what a burst of large payloads has used.
    #[expect(unsafe_code, reason = "it is a function of the C library")]
    fn memory_is_free(&self) {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        // SAFETY: any thread may call it at any time. It changes no memory that is in use.
        unsafe {
            libc::malloc_trim(0);
        }
    }

    fn events(&self, events: Vec<Event>) {
        this_thread_is_of(self.engine);
        attach(|py| {
            let Some(_call) = ForeignCall::try_enter_sink(py) else { return };
            let Some(function) = self.put_events.get(py) else { return };
            let put = not_unwound(|| events_to_python(py, &events).and_then(|events| function.call1((events,))));
            if let Err(error) = put {
                error.write_unraisable(py, None);
            }
        });
    }
}

/// Calls the function with these letters.
fn put_letters(py: Python<'_>, function: &Bound<'_, PyAny>, letters: &[Letter]) -> PyResult<()> {
    let letters = letters.iter().map(|letter| items::letter_to_python(py, letter)).collect::<PyResult<Vec<_>>>()?;
    function.call1((PyList::new(py, letters)?,)).map(drop)
}

/// Events as tuples: `("down", destination, reason)`, `("up", destination, after_ms)`, `("up untried", destination,
/// after_ms)`, `("disabled", destination, reason)`, `("failed", destination, key, id, times, reason)`, `("cut off", destination, key, id, messages, times)`, `("paused",)`, `("resumed",)`, `("keys paused", count)`,
/// `("clock stepped", by_ms, to_ms)`,
/// `("left out", count)`, `("slow sync", seconds)`, `("checkpoint failed", reason)`, `("base failed", reason)`, `("store waits", reason)`,
/// `("store goes on", after_ms)`, `("proxy not used", variable)`, `("no thread", reason)`.
fn events_to_python<'py>(py: Python<'py>, events: &[Event]) -> PyResult<Bound<'py, PyList>> {
    let made = events.iter().map(|event| -> PyResult<Bound<'py, PyTuple>> {
        match event {
            Event::Down { destination, reason } => ("down", destination, reason).into_pyobject(py),
            Event::Up { destination, after_ms, is_untried: false } => ("up", destination, *after_ms).into_pyobject(py),
            Event::Up { destination, after_ms, .. } => ("up untried", destination, *after_ms).into_pyobject(py),
            Event::Disabled { destination, reason } => ("disabled", destination, reason).into_pyobject(py),
            Event::Failed { destination, key, id, times, reason } => {
                ("failed", destination, key, id, *times, reason).into_pyobject(py)
            }
            Event::CutOff { destination, key, id, messages, times, .. } => {
                ("cut off", destination, key, id, *messages, *times).into_pyobject(py)
            }
            Event::Paused => ("paused",).into_pyobject(py),
            Event::Resumed => ("resumed",).into_pyobject(py),
            Event::KeysPaused { count } => ("keys paused", *count).into_pyobject(py),
            Event::LeftOut { count } => ("left out", *count).into_pyobject(py),
            Event::ClockStepped { by_ms, to_ms } => ("clock stepped", *by_ms, *to_ms).into_pyobject(py),
            Event::SlowSync { after_s } => ("slow sync", *after_s).into_pyobject(py),
            Event::CheckpointFailed { reason } => ("checkpoint failed", reason).into_pyobject(py),
            Event::BaseFailed { reason } => ("base failed", reason).into_pyobject(py),
            Event::StoreWaits { reason } => ("store waits", reason).into_pyobject(py),
            Event::StoreGoesOn { after_ms } => ("store goes on", *after_ms).into_pyobject(py),
            Event::ProxyNotUsed { variable } => ("proxy not used", *variable).into_pyobject(py),
            Event::NoThread { reason } => ("no thread", reason).into_pyobject(py),
            _ => unreachable!("{event:?} has no tuple"),
        }
    });
    PyList::new(py, made.collect::<PyResult<Vec<_>>>()?)
}
