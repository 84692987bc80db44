//! The native timer as a thread with the GIL may use it: no call here waits for a lock (border rule 2).
//!
//! A call that takes a lock of the timer by itself needs [`AttachedTimer::detach`], which passes the timer to a closure
//! without the GIL. So the compiler refuses such a call elsewhere.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::tools::native_lock;
use tickwheel::internal::State;
use tickwheel::internal::sync::{MutexGuard, PlainGuard};
use tickwheel::{Clock, Timer};

/// A `TimerTask` or a `TaskBatch`, as the native timer holds it.
pub(crate) type TaskRef = Py<PyAny>;
pub(crate) type Guard<'a> = MutexGuard<'a, State<TaskRef>>;

pub(crate) struct AttachedTimer(Arc<Timer<TaskRef>>);

impl AttachedTimer {
    pub(crate) fn new(timer: Timer<TaskRef>) -> Self {
        Self(Arc::new(timer))
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.0.clock()
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_>> {
        self.0.state().try_lock()
    }

    /// The lock of the state, however long that takes; without the GIL meanwhile.
    pub(crate) fn lock(&self, py: Python<'_>) -> Guard<'_> {
        native_lock::lock(py, self.0.state())
    }

    /// The lock of a batch, which is added whole or not at all.
    pub(crate) fn lock_bulk(&self, py: Python<'_>) -> PlainGuard<'_, ()> {
        native_lock::lock_plain(py, &self.0.bulk)
    }

    /// See [`Timer::unlock_after_removal`].
    #[inline]
    pub(crate) fn unlock_after_removal(&self, state: Guard<'_>) {
        self.0.unlock_after_removal(state);
    }

    /// See [`Timer::notify_if_idle`].
    #[inline]
    pub(crate) fn notify_if_idle(&self, state: &State<TaskRef>) {
        self.0.notify_if_idle(state);
    }

    /// See [`Timer::finish_locked`].
    #[inline]
    pub(crate) fn finish_locked(&self, state: &mut State<TaskRef>, count: usize) {
        self.0.finish_locked(state, count);
    }

    /// See [`Timer::wake_driver_if`].
    #[inline]
    pub(crate) fn wake_driver_if(&self, must_wake: bool) {
        self.0.wake_driver_if(must_wake);
    }

    /// Runs `f` without the GIL.
    pub(crate) fn detach<R: Send>(&self, py: Python<'_>, f: impl FnOnce(&Timer<TaskRef>) -> R + Send) -> R {
        let timer = &*self.0;
        py.detach(|| f(timer))
    }

    /// For a thread that uses it only without the GIL.
    pub(crate) fn for_detached_thread(&self) -> Arc<Timer<TaskRef>> {
        Arc::clone(&self.0)
    }
}
