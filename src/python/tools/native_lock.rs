//! The border between native locks and the GIL, in one place.
//!
//! - [`lock`] and [`lock_plain`] take a native lock without waiting for it while the GIL is held (border rule 2).
//! - [`ProcessOwned`] keeps a timer alive, but leaks it in a forked child, where its lock may be held by nobody (border rule 7).
//! - [`attached_by_reaper`] counts what must never happen (border rule 3).

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

use crate::sync::{Mutex, MutexGuard, PlainGuard, PlainMutex};

/// Takes a native lock with the GIL held: tries; if it is taken, waits for it detached, lets it go again, and tries once
/// more. A thread that waits for the GIL while it holds the lock would stop the reaper for as long, so only after several
/// rounds is it taken that way.
pub(crate) fn lock<'a, T: Send>(py: Python<'_>, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
    for _ in 0..8 {
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
        py.detach(|| drop(mutex.lock()));
    }
    py.detach(|| mutex.lock())
}

/// As [`lock`], for a plain mutex, which is never waited for and kept detached: its guard belongs to this thread's GIL.
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

/// Marks this thread as one that must never attach.
pub(crate) fn this_thread_is_a_reaper() {
    IS_REAPER.set(true);
}

/// The only way in which code of this crate attaches: counts it where the reaper does.
pub(crate) fn attach<R>(f: impl for<'py> FnOnce(Python<'py>) -> R) -> R {
    if IS_REAPER.get() {
        ATTACHED_BY_REAPER.fetch_add(1, Ordering::Relaxed);
    }
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    Python::attach(f)
}

/// How often a reaper took the GIL since the process started: 0, or border rule 3 is broken.
#[pyfunction]
pub(crate) fn _attached_by_reaper() -> u64 {
    ATTACHED_BY_REAPER.load(Ordering::Relaxed)
}
