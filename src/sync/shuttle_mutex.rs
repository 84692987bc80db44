//! The lock and the condition variable of a model. A wait ends only with a notification, so a lost wake-up is a deadlock.

use std::sync::{PoisonError, TryLockError};
use std::time::Instant;

use shuttle::sync::MutexGuard;
use shuttle::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub struct Mutex<T> {
    inner: shuttle::sync::Mutex<T>,
    waiting: AtomicUsize,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { inner: shuttle::sync::Mutex::new(value), waiting: AtomicUsize::new(0) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        if let Some(guard) = self.try_lock() {
            return guard;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(super) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// A model has no time: the wait ignores the deadline.
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>, _deadline: Option<Instant>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }
}
