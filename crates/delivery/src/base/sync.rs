//! The locks of this crate: the standard library's, without poison.
//!
//! Poison is not needed: the guarded data is valid at every moment, and each thread catches its panics. On Linux a lock is one
//! word for the kernel's futex. So there is no table of sleeping threads in the process, which a forked child would inherit.

#![expect(clippy::disallowed_types, reason = "they are wrapped here")]

use std::sync::PoisonError;
use std::time::Duration;

pub(crate) use std::sync::MutexGuard;

/// Threads that find it locked sleep in the kernel.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads wait here for a change of what a [`Mutex`] guards. Each wait may return early.
#[derive(Debug, Default)]
pub(crate) struct Condvar(std::sync::Condvar);

impl Condvar {
    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Unlocks, waits for a notification, and locks again.
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Condvar::wait`], for so long at most.
    pub(crate) fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, timeout: Duration) -> MutexGuard<'a, T> {
        self.0.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
    }
}
