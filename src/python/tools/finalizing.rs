//! What runs foreign code, and that none of it is under way when Python finalizes (T11, border rule 7).
//!
//! Daemon threads go on while the interpreter finalizes, until they want the GIL. Then Python before 3.14 ends them, by
//! unwinding their stacks, and a native frame that has called Python cannot be unwound: the process aborts. So each entry
//! from Python that may run foreign code holds a [`ForeignCall`] while it does: a callback, a method, a destructor, `__hash__`,
//! `__index__`, `__repr__`. The exit hook refuses new calls and waits for those under way. `docs/concurrency.md` lists the
//! entries. A thread that comes back from a wait of ours is safe: pyo3 stops it in `PyEval_RestoreThread`.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::python::tools::errors;
use crate::python::tools::fork::fork_epoch;

/// No thread but the one that ends the interpreter gets in any more.
static IS_OVER: AtomicBool = AtomicBool::new(false);
/// Calls under way.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
/// A method that hangs must not keep the process.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

thread_local! {
    /// This thread ends the interpreter.
    static IS_ENDING: Cell<bool> = const { Cell::new(false) };
}

/// A call that may run foreign code, from whatever thread. Made and dropped with the GIL held.
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

    /// As [`ForeignCall::try_enter`], for the destructor of a Python object, which has the GIL and no proof of it.
    #[inline]
    pub(crate) fn enter_from_destructor() -> Option<Self> {
        // Both sides hold the GIL, so no thread gets in after the hook has looked.
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

/// Drops what runs foreign code as it is dropped; at the end of the interpreter leaks it.
pub(crate) fn drop_or_leak<T>(value: T) {
    match ForeignCall::enter_from_destructor() {
        Some(_call) => drop(value),
        None => std::mem::forget(value),
    }
}

/// Only with the GIL held, so it needs no read-modify-write.
#[inline]
fn count(next: impl FnOnce(usize) -> usize) {
    UNDER_WAY.store(next(UNDER_WAY.load(Ordering::Relaxed)), Ordering::Relaxed);
}

/// In the child of a fork there is this thread alone, and what it is inside of counts no more.
pub(crate) fn forget_calls_after_fork() {
    UNDER_WAY.store(0, Ordering::Relaxed);
}

/// Lets no other thread in any more, and waits for the calls under way.
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
