//! The lock and the condition variable of `parking_lot`, which the feature of that name uses instead of the timer's own.
//!
//! For programs that use `parking_lot` anyway and want one kind of lock. Its table of sleeping threads belongs to the process
//! and is not repaired in a forked child, so it cannot be used from Python.

use std::time::Instant;

pub use parking_lot::MutexGuard;

/// The lock of the timer.
#[derive(Debug, Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Waits until the lock is free, and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Unlocks in the middle of long work: a waiting thread gets the lock next.
    #[expect(clippy::unused_self, reason = "the other locks need it")]
    pub(crate) fn unlock_fair(&self, guard: MutexGuard<'_, T>) {
        MutexGuard::unlock_fair(guard);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Unlocks, waits for a notification, at most until `deadline`, and locks again.
    pub(crate) fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>, deadline: Option<Instant>) -> MutexGuard<'a, T> {
        match deadline {
            None => self.0.wait(&mut guard),
            Some(deadline) => _ = self.0.wait_until(&mut guard, deadline),
        }
        guard
    }
}
