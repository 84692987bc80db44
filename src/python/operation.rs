//! `DelayedOperation`: what waits in a purgatory.

use std::sync::Arc;

use pyo3::exceptions::{PyNotImplementedError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::args;
use super::coroutine_functions;
use super::errors;
use super::finalizing::{self, ForeignCall};
use super::fork::fork_epoch;
use super::gil::GilCell;
use super::kept::intern;
use super::on_error::Callee;
use super::shared::{Shared, not_picklable};
use super::side::{PyOperations, Side};
use super::task::TimerTask;
use crate::purgatory::{self, Cause, Completer, OperationState};

/// Something that waits for an event or for its deadline, whichever comes first. Subclass it.
///
/// `delay_ms`: when to give up, counted from the call that watches it, int or finite float. `lock`: an object with
/// `acquire(blocking)` and `release()`, best a `threading.RLock`, to be held around `try_complete`; nobody ever
/// waits for it: while a stranger holds it, the check is put off by a few milliseconds. `name` is for people. A
/// subclass gives `try_complete()`, and `on_complete()` and `on_expiration()` as it needs them. They run in the
/// thread that checks or completes it, and for an expiry where the timer's callbacks run. An operation is completed
/// once; make one for each wait. After Kafka's `DelayedOperation`.
///
/// >>> class Reply(DelayedOperation):
/// ...     text = None
/// ...     def try_complete(self):
/// ...         return self.text is not None and self.force_complete()
/// ...     def on_complete(self):
/// ...         print("reply:", self.text)
/// >>> reply = Reply(500)
/// >>> with DelayedOperationPurgatory("calls") as calls:
/// ...     _ = calls.try_complete_else_watch(reply, ["call 1"])
/// ...     reply.text = "pong"
/// ...     calls.check_and_complete("call 1")
/// reply: pong
/// 1
#[pyclass(frozen, extends = TimerTask, subclass, module = "tickwheel")]
pub(super) struct DelayedOperation {
    pub(super) state: OperationState<PyOperations>,
    content: GilCell<Content>,
    /// The process it was made in: in a child of that, its native lock may be held by nobody.
    epoch: u32,
}

#[derive(Default)]
struct Content {
    /// Its own lock, which is held around `try_complete`.
    lock: Option<Py<PyAny>>,
    /// Most operations have none: 8 bytes in each.
    told: Option<Box<Told>>,
    /// How it ended, once all has been told.
    ended: Option<Cause>,
}

/// What is told of a wait. Until the operation is complete it is that of one wait: it comes and goes under the lock of its
/// watch, with the wait.
#[derive(Default)]
pub(super) struct Told {
    /// What to call with how the wait ends: `True` in time, `False` expired, `None` taken out.
    pub(super) waiters: Vec<Py<PyAny>>,
    /// The purgatory's: the purgatory may be gone when its operation's time runs out (border rule 8).
    pub(super) on_error: Option<Callee>,
}

#[pymethods]
impl DelayedOperation {
    /// Takes whatever the `__init__` of a subclass takes; ours fills it in.
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(delay_ms, lock=None, *, name=None)")]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyClassInitializer<Self> {
        let operation = Self { state: OperationState::new(), content: GilCell::default(), epoch: fork_epoch() };
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
        let delay = args::ms(delay_ms, "delay_ms")?;
        let (class, base) = (slf.get_type(), py.get_type::<Self>());
        let overrides = |name: &Bound<'_, pyo3::types::PyString>| -> PyResult<bool> {
            Ok(!class.is(&base) && !class.getattr(name)?.is(&base.getattr(name)?))
        };
        if !overrides(intern!(py, "try_complete"))? {
            return Err(PyTypeError::new_err(
                "a DelayedOperation needs a try_complete() that says whether what it waits for is there: subclass it, and \
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
            // Initialized twice, it keeps the first.
            let spare = slf.get().content.with(py, |content| match content.lock {
                None => content.lock.replace(lock),
                Some(_) => Some(lock),
            });
            drop(spare);
        }
        Ok(())
    }

    /// Check whether what it waits for is there, and if so return `self.force_complete()`. Override it.
    ///
    /// Called by one thread at a time, with the operation's `lock` held if it has one, and by no lock of the
    /// purgatory.
    fn try_complete(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let class = slf.get_type().qualname()?;
        Err(PyNotImplementedError::new_err(format!("{class} has no try_complete(): override it")))
    }

    /// Called once when it is complete, in time or not. Override it.
    ///
    /// What it raises goes to `on_error`.
    fn on_complete(&self) {}

    /// Called after `on_complete` when its time ran out, also if that raised. Override it.
    fn on_expiration(&self) {}

    /// Complete it, unless it is complete; `True` for exactly one caller ever [P1].
    ///
    /// Takes it off the timer and off every key, then calls `on_complete`; called from inside `try_complete`, that
    /// runs right after it, when its lock has been let go. Errors: `TimerForked`.
    fn force_complete(slf: &Bound<'_, Self>) -> PyResult<bool> {
        slf.get().check_process(slf.py())?;
        let _call = ForeignCall::enter(slf.py())?;
        let timer = slf.as_super().get().on(slf.py()).map(|(timer, _)| timer);
        let side = Side::new(slf.py()).with_timer(timer.as_ref(), None);
        let is_won = purgatory::force_complete(&side, slf.as_unbound());
        side.over(is_won)
    }

    /// Whether it is complete, in time or not.
    #[getter]
    fn is_completed(&self) -> bool {
        self.state.is_completed()
    }

    /// Whether it is complete because its time ran out; `on_complete` may ask already.
    #[getter]
    fn is_expired(&self) -> bool {
        self.state.is_expired()
    }

    /// Take it off its timer and off every key; `True` exactly when the purgatory will neither complete nor expire
    /// it.
    ///
    /// It may be completed by hand then, watched again, or added to a timer. Errors: `TimerForked`.
    fn cancel(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        this.check_process(py)?;
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(false) };
        let side = Side::new(py);
        let is_out = purgatory::cancel(&side, slf.as_unbound());
        side.over(is_out)
    }

    /// Called when its time has run out. Not to be overridden.
    fn run(slf: &Bound<'_, Self>) -> PyResult<()> {
        let _call = ForeignCall::enter(slf.py())?;
        let timer = slf.as_super().get().on(slf.py()).map(|(timer, _)| timer);
        expire(slf.as_any(), (timer.as_ref(), None), true, false)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(not_picklable("DelayedOperation"))
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
        } else if purgatory::is_idle(&Side::new(slf.py()), slf.as_unbound()) {
            ""
        } else {
            " waiting"
        };
        Ok(format!("<{class}{name}{state}>"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.content.visit(&visit, |content| {
            visit.call(&content.lock)?;
            let Some(told) = &content.told else { return Ok(()) };
            told.waiters.iter().try_for_each(|waiter| visit.call(waiter))?;
            told.on_error.as_ref().map_or(Ok(()), |on_error| on_error.visit(&visit))
        })
    }

    /// It cannot be reached any more, so nothing tries it without its lock.
    fn __clear__(&self, py: Python<'_>) {
        let Some(_call) = ForeignCall::try_enter(py) else { return };
        let taken = self.content.with(py, std::mem::take);
        drop(taken);
    }
}

impl Drop for DelayedOperation {
    fn drop(&mut self) {
        let content = self.content.get_mut();
        if content.lock.is_some() || content.told.is_some() {
            finalizing::let_go(std::mem::take(content));
        }
    }
}

impl DelayedOperation {
    pub(super) fn lock<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let lock = self.content.with(py, |content| content.lock.as_ref().map(|lock| lock.clone_ref(py)));
        lock.map(|lock| lock.into_bound(py))
    }

    /// A wait begins. Runs no Python code.
    pub(super) fn begins(&self, py: Python<'_>, waiter: Option<Py<PyAny>>, on_error: Option<Callee>) {
        if waiter.is_none() && on_error.is_none() {
            return;
        }
        let told = Told { waiters: waiter.into_iter().collect(), on_error };
        self.content.with(py, |content| content.told = Some(Box::new(told)));
    }

    /// It has ended so; returns what is to be told.
    pub(super) fn ended(&self, py: Python<'_>, cause: Cause) -> Option<Box<Told>> {
        self.content.with(py, |content| {
            content.ended = Some(cause);
            content.told.take()
        })
    }

    /// What waits for one that is complete: if all has been told, how it ended.
    pub(super) fn ended_or_waits(&self, py: Python<'_>, waiter: &Bound<'_, PyAny>) -> Option<Cause> {
        self.content.with(py, |content| {
            if content.ended.is_none() {
                content.told.get_or_insert_default().waiters.push(waiter.clone().unbind());
            }
            content.ended
        })
    }

    pub(super) fn take_told(&self, py: Python<'_>) -> Option<Box<Told>> {
        self.content.with(py, |content| content.told.take())
    }

    /// The `on_error` of the purgatory that it waits in, or waited in until it was complete.
    pub(super) fn on_error(&self, py: Python<'_>) -> Option<Callee> {
        self.content.with(py, |content| Some(content.told.as_ref()?.on_error.as_ref()?.clone_ref(py)))
    }

    pub(super) fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.epoch == fork_epoch() { Ok(()) } else { Err(errors::operation_forked(py)) }
    }
}

/// The operation's time has run out, on this timer, by an add with this context. With `propagate`, `KeyboardInterrupt` and
/// `SystemExit` go to the caller.
///
/// Straight from the claim, it was on the timer a moment ago: no cancel has overtaken that, since each takes it off first.
pub(super) fn expire(
    task: &Bound<'_, PyAny>,
    (timer, context): (Option<&Arc<Shared>>, Option<&Py<PyAny>>),
    propagate: bool,
    is_claimed: bool,
) -> PyResult<()> {
    let op = task.cast::<DelayedOperation>()?;
    op.get().check_process(op.py())?;
    let side = Side::of_timer(op.py(), propagate).with_timer(timer, context);
    purgatory::expire(&side, op.as_unbound(), if is_claimed { Completer::Any } else { Completer::Try });
    // A method may have forked; then this is the child, and whoever drives the timer finds that out.
    if op.get().check_process(op.py()).is_ok() { side.over(()) } else { Ok(()) }
}

/// A task was put on its timer or taken off, and not by its purgatory.
pub(super) fn sync_deadline(py: Python<'_>, task: &Bound<'_, PyAny>) {
    if let Ok(op) = task.cast::<DelayedOperation>() {
        purgatory::sync_deadline(&Side::new(py), op.as_unbound());
    }
}
