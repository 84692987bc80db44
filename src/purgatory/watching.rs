//! Watching: the call with which an operation begins to wait (P2).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::host::Host;
use super::in_progress;
use super::key_list::ShortList;
use super::operation_state::{OperationKind, Watch};
use super::purgatory_core::Purgatory;
use crate::panics;

/// Why an operation cannot be watched.
#[derive(Debug)]
pub enum WatchError<E> {
    /// It waits already, in this purgatory or in another one.
    Waiting,
    /// The purgatory was shut down.
    Closed,
    /// Its deadline cannot be set.
    Timer(E),
    /// Its `try_complete` failed.
    Failed(E),
}

/// The result of a watching call.
pub struct WatchResult {
    /// This call completed the operation.
    pub is_completed_by_call: bool,
    /// The number of the arrival in the purgatory; `None` if the operation was complete before.
    pub number: Option<u64>,
}

impl WatchResult {
    const COMPLETE_BEFORE: Self = Self { is_completed_by_call: false, number: None };
}

impl<K: OperationKind> Purgatory<K> {
    /// Tries the operation, watches it under each key, tries it again, and puts it on the timer (P2).
    ///
    /// # Errors
    /// The purgatory is closed, the timer refuses the deadline, or the operation's own code failed.
    pub fn try_complete_else_watch<H: Host<K>>(
        self: &Arc<Self>,
        host: &H,
        op: &K::Op,
        keys: ShortList<K::Key>,
    ) -> Result<WatchResult, WatchError<H::Error>> {
        let Some(number) = self.begin(host, op)? else { return Ok(WatchResult::COMPLETE_BEFORE) };
        let unfinished = UnfinishedWatch { purgatory: self, host, op, number };
        let watched = self.watch(host, op, number, keys);
        if let Err(WatchError::Failed(_)) = watched {
            drop(unfinished);
        } else {
            std::mem::forget(unfinished);
        }
        let watched = watched.map(|is_completed_by_call| WatchResult { is_completed_by_call, number: Some(number) });
        watched.inspect_err(|error| {
            if !matches!(error, WatchError::Failed(_)) && host.is_same_process() {
                self.refuse_arrival(host, op, number);
            }
        })
    }

    /// What follows [`Self::begin`]. After an error the caller takes the operation out again.
    fn watch<H: Host<K>>(
        self: &Arc<Self>,
        host: &H,
        op: &K::Op,
        number: u64,
        keys: ShortList<K::Key>,
    ) -> Result<bool, WatchError<H::Error>> {
        let state = K::state(op);
        // Not so any more if another thread has completed the operation or taken it out.
        let still_waits = |watch: &Watch<K>| watch.is(self, number) && state.is_open();
        if self.try_for_caller(host, op)? {
            return Ok(true);
        }
        for key in keys {
            let hash = self.watchers.hash(&key);
            let mut watch = host.lock(&state.watch);
            if !still_waits(&watch) {
                return Ok(false);
            }
            let (place, unused_key) = self.watchers.add(host, hash, key, || host.clone_ref(op));
            watch.places.extend(place);
            drop(watch);
            panics::contain(|| drop(unused_key)); // after the lock: a destructor is foreign code
            if place.is_none() {
                return Err(WatchError::Closed);
            }
        }
        if self.try_for_caller(host, op)? {
            return Ok(true);
        }
        let mut watch = host.lock(&state.watch);
        if still_waits(&watch) {
            let armed = host.arm(&self.environment, op).map_err(WatchError::Timer)?;
            watch.set_deadline(armed.deadline); // it may have had one already
            watch.since_us = armed.now_us;
        }
        Ok(false)
    }

    /// Notes that the operation waits in this purgatory; returns the number of the arrival, or `None` if it is complete.
    fn begin<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op) -> Result<Option<u64>, WatchError<H::Error>> {
        let state = K::state(op);
        let mut watch = host.lock(&state.watch);
        // A thread that completes the operation later takes this lock, and finds the notes that are made here.
        if state.is_completed() {
            return Ok(None);
        }
        if watch.purgatory.is_some() {
            return Err(WatchError::Waiting);
        }
        watch.purgatory = Some(Arc::clone(self));
        watch.number = self.counters.arrived.fetch_add(1, Ordering::Relaxed);
        watch.since_us = u64::MAX; // the wait begins after the second try
        // A recheck in another purgatory may have been lost with the timer of that one. Its thread set the flag before
        // it took the watch's lock. If it took the lock before this call, the flag is seen here. If it takes the lock
        // later, it puts its recheck on this purgatory's timer.
        if state.is_recheck_scheduled.load(Ordering::Relaxed) {
            state.is_recheck_scheduled.swap(false, Ordering::AcqRel);
        }
        // If the operation is on a timer already, that deadline belongs to this purgatory from now on.
        let deadline = host.current_deadline(op);
        watch.set_deadline(deadline);
        state.reopen();
        host.wait_begins(&self.environment, op);
        Ok(Some(watch.number))
    }

    /// Makes a try, the first or the second, of a watching call. Its error reaches the caller (P8).
    fn try_for_caller<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op) -> Result<bool, WatchError<H::Error>> {
        let state = K::state(op);
        if in_progress::is_trying(state.address()) {
            // Cancelled and watched again inside its own try, which may have looked before the keys were watched.
            if !state.mark() && self.schedule_recheck(host, op, 0).is_err() {
                state.mark_last_try(); // the timer was shut down, and cannot check the operation
            }
            return Ok(false);
        }
        let checked = self.check_one(host, op, 0);
        checked.failure.map_or(Ok(checked.is_completed_by_call), |error| Err(WatchError::Failed(error)))
    }
}

/// A watching call that has not ended. Dropped, after a failed try or a panic, it takes the operation out again.
struct UnfinishedWatch<'a, K: OperationKind, H: Host<K>> {
    purgatory: &'a Arc<Purgatory<K>>,
    host: &'a H,
    op: &'a K::Op,
    number: u64,
}

impl<K: OperationKind, H: Host<K>> Drop for UnfinishedWatch<'_, K, H> {
    fn drop(&mut self) {
        if self.host.is_same_process() {
            self.purgatory.cancel_arrival(self.host, self.op, self.number);
        }
    }
}
