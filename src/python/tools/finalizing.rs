//! Calls of foreign code, and how the end of the interpreter waits for them (T11, border rule 7).
//!
//! While the interpreter finalizes, daemon threads run on until they need the GIL. Python before 3.14 then ends them by
//! unwinding their stacks, and a native frame that has called Python cannot be unwound: the process aborts. So every
//! entry from Python that may run foreign code holds a [`ForeignCall`] meanwhile: a callback, a method, a destructor,
//! `__hash__`, `__index__`, `__repr__`. The exit hook refuses new calls and waits for those in progress.
//! `docs/concurrency.md` lists the entries. A thread that returns from a wait of this crate is safe: pyo3 stops it in
//! `PyEval_RestoreThread`.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::python::tools::errors;
use crate::python::tools::fork::fork_epoch;

/// Only the thread that ends the interpreter may still enter.
static IS_OVER: AtomicBool = AtomicBool::new(false);
/// Calls in progress.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
/// A method that hangs must not keep the process alive.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

thread_local! {
    /// This thread ends the interpreter.
    static IS_ENDING: Cell<bool> = const { Cell::new(false) };
}

/// A call that may run foreign code, in any thread. Created and dropped with the GIL held.
#[must_use]
pub(crate) struct ForeignCall {
    epoch: u32,
}

impl ForeignCall {
    /// `None` at the end of the interpreter.
    #[inline]
    pub(crate) fn try_enter(_py: Python<'_>) -> Option<Self> {
        Self::enter_from_destructor()
    }

    /// Errors: `TimerClosed` at the end of the interpreter.
    #[inline]
    pub(crate) fn enter(py: Python<'_>) -> PyResult<Self> {
        Self::try_enter(py).ok_or_else(|| errors::interpreter_exiting(py))
    }

    /// As [`ForeignCall::try_enter`], for the destructor of a Python object: it holds the GIL, but has no token for it.
    #[inline]
    pub(crate) fn enter_from_destructor() -> Option<Self> {
        // Both sides hold the GIL, so no thread enters after the hook has checked.
        if IS_OVER.load(Ordering::Relaxed) && !IS_ENDING.get() {
            return None;
        }
        count(|under_way| under_way + 1);
        Some(Self { epoch: fork_epoch() })
    }
}

impl Drop for ForeignCall {
    #[inline]
    fn drop(&mut self) {
        if self.epoch == fork_epoch() {
            count(|under_way| under_way - 1);
        }
    }
}

/// Drops a value whose destructor may run foreign code. At the end of the interpreter it leaks the value.
pub(crate) fn drop_or_leak<T>(value: T) {
    match ForeignCall::enter_from_destructor() {
        Some(_call) => drop(value),
        None => std::mem::forget(value),
    }
}

/// The GIL is held, so this needs no read-modify-write.
#[inline]
fn count(next: impl FnOnce(usize) -> usize) {
    UNDER_WAY.store(next(UNDER_WAY.load(Ordering::Relaxed)), Ordering::Relaxed);
}

/// In the child of a fork there is only this thread, and the calls that it is inside of do not count any more.
pub(crate) fn forget_calls_after_fork() {
    UNDER_WAY.store(0, Ordering::Relaxed);
}

/// Refuses calls of other threads from now on, and waits for those in progress.
pub(crate) fn end_calls(py: Python<'_>) {
    IS_ENDING.set(true);
    IS_OVER.store(true, Ordering::Relaxed);
    py.detach(|| {
        let until = Instant::now() + LONGEST_WAIT;
        while UNDER_WAY.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    });
}
