//! `SlowSync`: writes a line to the log if a sink's `sync` takes long (rule D15). Nothing is committed until it
//! returns.
//!
//! Another thread watches, because the writer's thread is inside the call. The first sync after a pause wakes it, and
//! then it wakes up once in [`SLOW`], not for each sync.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::tools::finalizing::ForeignCall;
use crate::tools::fork::fork_epoch;
use crate::tools::native_lock::attach;
use tickwheel::internal::sync::{PlainCondvar, PlainMutex, spawn};

/// A sync that takes longer is logged.
const SLOW: Duration = Duration::from_secs(3);

/// Each sink has one. The first sync starts the thread, which ends after the drop. A forked child has no such thread,
/// and takes no lock that the thread uses.
pub(crate) struct SlowSync {
    epoch: u32,
    watched: Arc<Watched>,
}

#[derive(Default)]
struct Watched {
    state: PlainMutex<State>,
    changed: PlainCondvar,
}

#[derive(Default)]
struct State {
    /// The number of the last sync, and since when it runs.
    number: u64,
    since: Option<Instant>,
    /// The thread waits for the next change, and not for a time.
    is_waiting: bool,
    has_thread: bool,
    is_dropped: bool,
}

impl SlowSync {
    pub(crate) fn new() -> Self {
        Self { epoch: fork_epoch(), watched: Arc::default() }
    }

    /// Calls `sync`, without the GIL.
    pub(crate) fn during<R>(&self, sync: impl FnOnce() -> R) -> R {
        self.set(Some(Instant::now()));
        let synced = sync();
        self.set(None);
        synced
    }

    fn set(&self, since: Option<Instant>) {
        if self.epoch != fork_epoch() {
            return;
        }
        let mut state = self.watched.state.lock();
        state.number += u64::from(since.is_some());
        state.since = since;
        let (is_waiting, has_thread) = (state.is_waiting, std::mem::replace(&mut state.has_thread, true));
        drop(state);
        if is_waiting {
            self.watched.changed.notify_all();
        }
        if !has_thread {
            let watched = self.watched.clone();
            // Without a thread there is no line in the log, and nothing else is lost.
            let _ = spawn("watcher-deliver", move || watched.watch());
        }
    }
}

impl Drop for SlowSync {
    fn drop(&mut self) {
        if self.epoch == fork_epoch() {
            self.watched.state.lock().is_dropped = true;
            self.watched.changed.notify_all();
        }
    }
}

impl Watched {
    fn watch(&self) {
        let mut told = 0;
        let mut state = self.state.lock();
        while !state.is_dropped {
            let due = state.since.filter(|_| state.number != told).map(|since| since + SLOW);
            let Some(due) = due else {
                state.is_waiting = true;
                state = self.changed.wait(state);
                state.is_waiting = false;
                continue;
            };
            let left = due.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                state = self.changed.wait_timeout(state, left);
                continue;
            }
            told = state.number;
            drop(state);
            attach(tell);
            state = self.state.lock();
        }
    }
}

fn tell(py: Python<'_>) {
    let Some(_call) = ForeignCall::try_enter(py) else { return };
    let log = || py.import("tickwheel.delivery.observe.log")?.call_method1("log_slow_sync", (SLOW.as_secs(),));
    if let Err(error) = log() {
        error.write_unraisable(py, None);
    }
}
