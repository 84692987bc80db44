//! `DelayedOperation` as Python sees it: its methods, and how it expires.

use std::sync::Arc;

use pyo3::exceptions::{PyNotImplementedError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::core::timer_core::TimerCore;
use crate::operations::operation_host::PythonHost;
use crate::operations::operation_object::DelayedOperation;
use crate::scheduled::task_object::TimerTask;
use crate::tools::errors;
use crate::tools::finalizing::ForeignCall;
use crate::tools::fork::fork_epoch;
use crate::tools::gil_cell::GilCell;
use crate::tools::made_once::intern;
use crate::tools::times;
use crate::values::coroutine_functions;
use tickwheel::internal::purgatory::{self, Completer, OperationState};

#[pymethods]
impl DelayedOperation {
    /// Takes any arguments, as the `__init__` of a subclass may; `DelayedOperation.__init__` fills the object in.
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(delay_ms, lock=None, *, name=None)")]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyClassInitializer<Self> {
        let operation = Self { state: OperationState::new(), fields: GilCell::default(), epoch: fork_epoch() };
        PyClassInitializer::from(TimerTask::empty()).add_subclass(operation)
    }

    #[pyo3(signature = (delay_ms, lock=None, *, name=None))]
    fn __init__(
        slf: &Bound<'_, Self>,
        delay_ms: &Bound<'_, PyAny>,
        lock: Option<&Bound<'_, PyAny>>,
        name: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let _call = ForeignCall::enter(py)?;
        let delay = times::ms(delay_ms, "delay_ms")?;
        let (class, base) = (slf.get_type(), py.get_type::<Self>());
        let overrides = |name: &Bound<'_, pyo3::types::PyString>| -> PyResult<bool> {
            Ok(!class.is(&base) && !class.getattr(name)?.is(&base.getattr(name)?))
        };
        if !overrides(intern!(py, "try_complete"))? {
            return Err(PyTypeError::new_err(
                "a DelayedOperation needs a try_complete() that checks whether its event has happened: subclass it, and \
                 return self.force_complete() from there",
            ));
        }
        if overrides(intern!(py, "run"))? {
            return Err(PyTypeError::new_err(
                "a DelayedOperation has no run() of its own, its deadline calls on_expiration(): override that",
            ));
        }
        if !class.is(&base) {
            for method in [intern!(py, "try_complete"), intern!(py, "on_complete"), intern!(py, "on_expiration")] {
                coroutine_functions::check_method(&class, &base, method)?;
            }
        }
        if let Some(lock) = lock
            && !(lock.hasattr(intern!(py, "acquire"))? && lock.hasattr(intern!(py, "release"))?)
        {
            let given = lock.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "lock must have acquire(blocking) and release(), got {given}: pass a threading.RLock(), or leave it out"
            )));
        }
        TimerTask::initialize_expiry(slf.as_super(), delay, name)?;
        if let Some(lock) = lock {
            let lock = lock.clone().unbind();
            // A second `__init__` keeps the first lock.
            let spare = slf.get().fields.with(py, |fields| match fields.lock {
                None => fields.lock.replace(lock),
                Some(_) => Some(lock),
            });
            drop(spare);
        }
        Ok(())
    }

    /// Check whether the event has happened, and if so return `self.force_complete()`. Override it.
    ///
    /// It is called by one thread at a time, under the operation's `lock` if there is one, and under no lock of the
    /// purgatory.
    fn try_complete(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let class = slf.get_type().qualname()?;
        Err(PyNotImplementedError::new_err(format!("{class} has no try_complete(): override it")))
    }

    /// Called once when the operation is complete, in time or not. Override it.
    ///
    /// What it raises goes to `on_error`.
    fn on_complete(&self) {}

    /// Called after `on_complete` if the deadline passed, even if `on_complete` raised. Override it.
    fn on_expiration(&self) {}

    /// Complete the operation if it is not complete. `True` for exactly one call ever.
    ///
    /// Takes it off the timer and off every key, then calls `on_complete`. Called inside `try_complete`, it leaves
    /// `on_complete` for right after that, when the operation's lock has been released. Errors: `TimerForked`.
    fn force_complete(slf: &Bound<'_, Self>) -> PyResult<bool> {
        slf.get().check_process(slf.py())?;
        let _call = ForeignCall::enter(slf.py())?;
        let timer = slf.as_super().get().timer_and_handle(slf.py()).map(|(timer, _)| timer);
        let host = PythonHost::new(slf.py()).with_timer(timer.as_ref(), None);
        let is_completed_by_call = purgatory::force_complete(&host, slf.as_unbound());
        host.finish(is_completed_by_call)
    }

    /// Whether it is complete, in time or not.
    #[getter]
    fn is_completed(&self) -> bool {
        self.state.is_completed()
    }

    /// Whether it is complete because its deadline passed. Already set when `on_complete` runs.
    #[getter]
    fn is_expired(&self) -> bool {
        self.state.is_expired()
    }

    /// Take it off its timer and off every key. `True` exactly if the purgatory will neither complete nor expire it.
    ///
    /// After that it may be completed by `force_complete`, watched again, or added to a timer. Errors: `TimerForked`.
    fn cancel(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        this.check_process(py)?;
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(false) };
        let host = PythonHost::new(py);
        let is_out = purgatory::cancel(&host, slf.as_unbound());
        if is_out {
            note_cancelled(slf);
        }
        host.finish(is_out)
    }

    /// Called when its deadline has passed. Do not override it.
    fn run(slf: &Bound<'_, Self>) -> PyResult<()> {
        let _call = ForeignCall::enter(slf.py())?;
        let timer = slf.as_super().get().timer_and_handle(slf.py()).map(|(timer, _)| timer);
        expire(slf.as_any(), (timer.as_ref(), None), true, false)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(errors::not_picklable("DelayedOperation"))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (class, this) = (slf.get_type().name()?, slf.get());
        let name = slf.as_super().get().name(slf.py()).map_or_else(String::new, |name| format!(" '{name}'"));
        let state = if this.state.is_expired() {
            " expired"
        } else if this.state.is_completed() {
            " completed"
        } else if this.epoch != fork_epoch() {
            " of the parent process"
        } else if purgatory::is_idle(&PythonHost::new(slf.py()), slf.as_unbound()) {
            ""
        } else {
            " waiting"
        };
        Ok(format!("<{class}{name}{state}>"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.fields.visit(&visit, |fields| {
            visit.call(&fields.lock)?;
            let Some(waiters) = &fields.waiters else { return Ok(()) };
            waiters.0.iter().try_for_each(|waiter| visit.call(waiter))
        })
    }

    /// It is not reachable any more, so no thread tries it without its lock.
    fn __clear__(&self, py: Python<'_>) {
        let Some(_call) = ForeignCall::try_enter(py) else { return };
        let taken = self.fields.with(py, std::mem::take);
        drop(taken);
    }
}

/// The operation's deadline has passed. `timer` is the timer that it is on, and `context` the one of its add. With
/// `propagate`, `KeyboardInterrupt` and `SystemExit` go to the caller.
///
/// `is_claimed`: called right after the claim, so the operation was on the timer a moment ago. No cancel came in
/// between, since a cancel first takes the operation off its timer.
pub(crate) fn expire(
    task: &Bound<'_, PyAny>,
    (timer, context): (Option<&Arc<TimerCore>>, Option<&Py<PyAny>>),
    propagate: bool,
    is_claimed: bool,
) -> PyResult<()> {
    let op = task.cast::<DelayedOperation>()?;
    op.get().check_process(op.py())?;
    let host = PythonHost::of_timer(op.py(), propagate).with_timer(timer, context);
    purgatory::expire(&host, op.as_unbound(), if is_claimed { Completer::Any } else { Completer::Try });
    // A method may have forked. Then this is the child, and the caller that drives the timer checks the process.
    if op.get().check_process(op.py()).is_ok() { host.finish(()) } else { Ok(()) }
}

/// The task was put on its timer or taken off, and its purgatory did not do that.
pub(crate) fn sync_deadline(py: Python<'_>, task: &Bound<'_, PyAny>) {
    if let Ok(op) = task.cast::<DelayedOperation>() {
        purgatory::sync_deadline(&PythonHost::new(py), op.as_unbound());
    }
}

/// As [`sync_deadline`], after a cancel as a task. It cancels an operation that waits in no purgatory; another one has lost
/// its deadline alone.
pub(crate) fn deadline_cancelled(py: Python<'_>, task: &Bound<'_, PyAny>) {
    sync_deadline(py, task);
    if let Ok(op) = task.cast::<DelayedOperation>() {
        note_cancelled(op);
    }
}

/// A cancel took it out, unless it waits again by now: what is told of a cancel may put it back.
pub(crate) fn note_cancelled(op: &Bound<'_, DelayedOperation>) {
    if purgatory::is_idle(&PythonHost::new(op.py()), op.as_unbound()) {
        op.as_super().get().note_operation_cancelled(op.py());
    }
}
