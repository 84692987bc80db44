//! The locks, threads and channel of this crate, or the model checker's in their place.
//!
//! Built with `--cfg tickwheel_model`, every one of them is shuttle's, which tries out interleavings (see
//! `docs/concurrency.md`). Nothing outside this file may name `std::sync::Mutex`, `crossbeam_channel` or `std::thread`.
//!
//! Why the standard library's locks: on Linux each is one futex and nothing else. `parking_lot` keeps all sleeping
//! threads of the process in one table; a forked child inherits it, with threads in it that it does not have, and timers
//! that the child made crashed when the table grew (T12; `test_rule7_fork.py`).

#![forbid(unsafe_code)]
#![cfg_attr(not(tickwheel_model), expect(clippy::disallowed_types, reason = "this is where they are wrapped"))]

#[cfg(not(tickwheel_model))]
mod imp {
    pub(crate) use crossbeam_channel::{Receiver, Sender, unbounded};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread::{Builder, JoinHandle, ThreadId, current as current_thread, yield_now};
    pub(crate) use std::thread_local;
}

#[cfg(tickwheel_model)]
mod imp {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
    pub(crate) use shuttle::sync::mpsc::{Receiver, Sender, channel as unbounded};
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::thread::{Builder, JoinHandle, ThreadId, current as current_thread, yield_now};
    pub(crate) use shuttle::thread_local;
}

use std::sync::{PoisonError, TryLockError};
use std::time::{Duration, Instant};

#[cfg(feature = "python")]
pub(crate) use crossbeam_channel::TryRecvError;
use imp::Builder;
pub(crate) use imp::{
    AtomicBool, AtomicU8, AtomicUsize, JoinHandle, MutexGuard, Ordering, Receiver, Sender, ThreadId, current_thread,
    thread_local, unbounded, yield_now,
};

/// How often a thread gives way to those who wait for a lock that it wants back.
const GIVE_WAY: usize = 100;

/// A lock without poison: after a panic it is the first report that counts.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T> {
    inner: imp::Mutex<T>,
    /// Threads that wait for it. Relaxed: only a hint to whoever lets it go in the middle of long work.
    waiting: AtomicUsize,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { inner: imp::Mutex::new(value), waiting: AtomicUsize::new(0) }
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

    /// Lets the lock go in the middle of long work, and gives way to those who wait for it, within bounds.
    pub(crate) fn unlock_fair(&self, guard: MutexGuard<'_, T>) {
        drop(guard);
        let mut left = GIVE_WAY;
        while left > 0 && self.waiting.load(Ordering::Relaxed) > 0 {
            yield_now();
            left -= 1;
        }
    }

    /// The lock as pyo3 knows it.
    #[cfg(feature = "python")]
    pub(crate) fn inner(&self) -> &imp::Mutex<T> {
        &self.inner
    }
}

/// Where threads wait for what a [`Mutex`] guards.
#[derive(Debug, Default)]
pub(crate) struct Condvar(imp::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits for a notification, at the longest until `deadline`. The lock is let go while it waits.
    ///
    /// A model has no time: there it waits until it is notified, so a lost wake-up shows as a deadlock.
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>, deadline: Option<Instant>) -> MutexGuard<'a, T> {
        match deadline {
            Some(deadline) if !cfg!(tickwheel_model) => {
                let left: Duration = deadline.saturating_duration_since(Instant::now());
                self.0.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
            }
            _ => self.0.wait(guard).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

pub(crate) fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    Builder::new().name(name).spawn(body)
}
