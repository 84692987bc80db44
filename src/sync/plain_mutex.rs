//! A mutex whose waiting threads sleep in the kernel until it is free: for locks that are taken rarely or held long.
//!
//! It is the standard library's mutex without poison: what a plain mutex guards here is valid at every moment. On Linux it is
//! one word for the kernel's futex. The process has no table of sleeping threads that a forked child could inherit (T12).

use std::sync::PoisonError;

pub use std::sync::MutexGuard as PlainGuard;

/// A mutex without poison, whose waiting threads sleep.
#[derive(Debug, Default)]
pub struct PlainMutex<T>(std::sync::Mutex<T>);

impl<T> PlainMutex<T> {
    /// A free lock.
    pub fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Waits until the lock is free, and takes it.
    pub fn lock(&self) -> PlainGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<PlainGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// Threads wait here for a change of what a [`PlainMutex`] guards. Each wait may return early.
#[derive(Debug, Default)]
pub struct PlainCondvar(std::sync::Condvar);

impl PlainCondvar {
    /// Wakes every thread that waits here.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Unlocks, waits for a notification, at most until `deadline`, and locks again.
    pub fn wait_until<'a, T>(&self, guard: PlainGuard<'a, T>, deadline: std::time::Instant) -> PlainGuard<'a, T> {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        self.0.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
    }
}

impl PlainCondvar {
    /// Unlocks, waits for a notification, and locks again.
    pub fn wait<'a, T>(&self, guard: PlainGuard<'a, T>) -> PlainGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`PlainCondvar::wait`], for so long at most.
    pub fn wait_timeout<'a, T>(&self, guard: PlainGuard<'a, T>, timeout: std::time::Duration) -> PlainGuard<'a, T> {
        self.0.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
    }
}
