//! A mutex whose waiting threads sleep in the kernel until it is free: for locks that are taken rarely or held long.
//!
//! It is the standard library's mutex without poison: what a plain mutex guards here is valid at every moment. On Linux it is
//! one word for the kernel's futex. The process has no table of sleeping threads that a forked child could inherit (T12).

use std::sync::PoisonError;

pub(crate) use std::sync::MutexGuard as PlainGuard;

#[derive(Debug, Default)]
pub(crate) struct PlainMutex<T>(std::sync::Mutex<T>);

impl<T> PlainMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> PlainGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(feature = "python")]
    pub(crate) fn try_lock(&self) -> Option<PlainGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// Threads wait here for a change of what a [`PlainMutex`] guards. Each wait may return early.
#[cfg(any(feature = "python", feature = "delivery"))]
#[derive(Debug, Default)]
pub(crate) struct PlainCondvar(std::sync::Condvar);

#[cfg(any(feature = "python", feature = "delivery"))]
impl PlainCondvar {
    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Unlocks, waits for a notification, at most until `deadline`, and locks again.
    #[cfg(feature = "python")]
    pub(crate) fn wait_until<'a, T>(
        &self,
        guard: PlainGuard<'a, T>,
        deadline: std::time::Instant,
    ) -> PlainGuard<'a, T> {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        self.0.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(feature = "delivery")]
impl PlainCondvar {
    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Unlocks, waits for a notification, and locks again.
    pub(crate) fn wait<'a, T>(&self, guard: PlainGuard<'a, T>) -> PlainGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`PlainCondvar::wait`], for so long at most.
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: PlainGuard<'a, T>,
        timeout: std::time::Duration,
    ) -> PlainGuard<'a, T> {
        self.0.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
    }
}
