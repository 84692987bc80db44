//! Calls of foreign code, and how the end of the interpreter waits for them (T11, border rule 7).
//!
//! While the interpreter finalizes, daemon threads run on until they need the GIL. Python before 3.14 then ends them by
//! unwinding their stacks, and a native frame that has called Python cannot be unwound: the process aborts. So every
//! entry from Python that may run foreign code holds a [`ForeignCall`] meanwhile: a callback, a method, a destructor,
//! `__hash__`, `__index__`, `__repr__`. The exit hook refuses new calls and waits for those in progress.
//! `docs/internals/concurrency-proofs.md` lists the entries. A thread that returns from a wait of this crate is safe: pyo3 stops it
//! in `PyEval_RestoreThread`.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::tools::errors;
use crate::tools::fork::fork_epoch;

/// Only the thread that ends the interpreter may still enter.
static IS_OVER: AtomicBool = AtomicBool::new(false);
/// Calls in progress.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
/// Calls of sinks, which `UNDER_WAY` does not count: the end of delivery waits for them.
static IN_SINKS: AtomicUsize = AtomicUsize::new(0);
/// The wait for sinks is over: calls that are still in a sink hang.
static SINKS_ARE_GIVEN_UP: AtomicBool = AtomicBool::new(false);
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
    counter: &'static AtomicUsize,
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
        Self::enter_counted(&UNDER_WAY)
    }

    /// As [`ForeignCall::try_enter`], for a call of a sink: [`give_up_sinks`] ends the wait for it.
    pub(crate) fn try_enter_sink(_py: Python<'_>) -> Option<Self> {
        Self::enter_counted(&IN_SINKS)
    }

    #[inline]
    fn enter_counted(counter: &'static AtomicUsize) -> Option<Self> {
        // Both sides hold the GIL, so no thread enters after the hook has checked.
        if IS_OVER.load(Ordering::Relaxed) && !IS_ENDING.get() {
            return None;
        }
        count(counter, |under_way| under_way + 1);
        Some(Self { epoch: fork_epoch(), counter })
    }
}

impl Drop for ForeignCall {
    #[inline]
    fn drop(&mut self) {
        if self.epoch == fork_epoch() {
            count(self.counter, |under_way| under_way - 1);
        }
    }
}

/// Calls foreign code that may hang at the end of the interpreter, as the exit hook does not wait for it for ever. If
/// Python then ends this thread by unwinding its stack, the thread is stopped here, before a native frame is left.
pub(crate) fn not_unwound<T>(call: impl FnOnce() -> T) -> T {
    struct Stops;
    impl Drop for Stops {
        fn drop(&mut self) {
            while !std::thread::panicking() {
                std::thread::park();
            }
        }
    }
    let stops = Stops;
    let result = call();
    std::mem::forget(stops);
    result
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
fn count(counter: &AtomicUsize, next: impl FnOnce(usize) -> usize) {
    counter.store(next(counter.load(Ordering::Relaxed)), Ordering::Relaxed);
}

/// In the child of a fork there is only this thread, and the calls that it is inside of do not count any more.
pub(crate) fn forget_calls_after_fork() {
    UNDER_WAY.store(0, Ordering::Relaxed);
    IN_SINKS.store(0, Ordering::Relaxed);
}

/// The sinks that are still in a call were waited for, and hang: the end of the interpreter does not wait for them again.
pub(crate) fn give_up_sinks() {
    SINKS_ARE_GIVEN_UP.store(true, Ordering::Relaxed);
}

fn are_in_progress() -> bool {
    let in_sinks = if SINKS_ARE_GIVEN_UP.load(Ordering::Relaxed) { 0 } else { IN_SINKS.load(Ordering::Relaxed) };
    UNDER_WAY.load(Ordering::Relaxed) + in_sinks > 0
}

/// Refuses calls of other threads from now on, and waits for those in progress.
pub(crate) fn end_calls(py: Python<'_>) {
    IS_ENDING.set(true);
    IS_OVER.store(true, Ordering::Relaxed);
    py.detach(|| {
        let until = Instant::now() + LONGEST_WAIT;
        while are_in_progress() && Instant::now() < until {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    });
}
