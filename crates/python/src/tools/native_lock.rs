//! Native locks and the GIL: how a thread with the GIL takes a lock, and how a native thread takes the GIL.
//!
//! - [`lock`] and [`lock_plain`] never wait for a native lock while they hold the GIL (border rule 2).
//! - [`attach`] counts every time that a reaper takes the GIL, which must never happen (border rule 3).

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

use tickwheel::internal::sync::{Mutex, MutexGuard, PlainGuard, PlainMutex};

/// How long a wait without the GIL lasts until it checks for Ctrl-C.
pub(crate) const SIGNAL_CHECK_US: u64 = 50_000;

/// Takes a native lock with the GIL held. It tries the lock. If another thread holds it, it waits without the GIL until
/// the lock is free, releases it, and tries again with the GIL. A thread that waited for the GIL while it holds the
/// lock would stop the reaper for as long, so it keeps the lock only after several failed rounds.
pub(crate) fn lock<'a, T: Send>(py: Python<'_>, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
    for _ in 0..8 {
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
        py.detach(|| drop(mutex.lock()));
    }
    py.detach(|| mutex.lock())
}

/// As [`lock`], for a plain mutex. It never keeps the lock that it waited for: the guard of a plain mutex cannot be
/// passed out of `detach`.
pub(crate) fn lock_plain<'a, T: Send>(py: Python<'_>, mutex: &'a PlainMutex<T>) -> PlainGuard<'a, T> {
    loop {
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
        py.detach(|| drop(mutex.lock()));
    }
}

thread_local! {
    static IS_REAPER: Cell<bool> = const { Cell::new(false) };
}

static ATTACHED_BY_REAPER: AtomicU64 = AtomicU64::new(0);

/// Marks this thread as a reaper, which must never attach.
pub(crate) fn this_thread_is_a_reaper() {
    IS_REAPER.set(true);
}

/// The only place where this crate attaches. It counts the calls of reapers.
pub(crate) fn attach<R>(f: impl for<'py> FnOnce(Python<'py>) -> R) -> R {
    if IS_REAPER.get() {
        ATTACHED_BY_REAPER.fetch_add(1, Ordering::Relaxed);
    }
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    Python::attach(f)
}

/// How often a reaper took the GIL since the process started. Anything but 0 breaks border rule 3.
#[pyfunction]
pub(crate) fn _attached_by_reaper() -> u64 {
    ATTACHED_BY_REAPER.load(Ordering::Relaxed)
}
