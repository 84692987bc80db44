//! Leaving: an operation is completed once, or taken out; then it is on no list and on no timer (P1, P4, P5).
//!
//! There are two ways to leave: [`complete`], and [`take_out_if`] for all that takes an operation out before it is
//! complete. The order is always the same: off the timer, withdrawn, off the lists, counted, notified. Removed keys and
//! operations are dropped last, because their destructors are foreign code. A panic of one stops nothing else.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::host::Host;
use super::in_progress::{self, EndingRunner};
use super::key_list::{Place, ShortList};
use super::operation_state::{Cause, Completer, OperationKind, Watch};
use super::purgatory_core::{Counters, Purgatory};
use super::watchers::{Removed, drop_removed};

/// An operation that was taken out: its waiters to notify, and the values to drop after that.
struct TakenOut<K: OperationKind> {
    waiters: K::Waiters,
    removed: ShortList<Removed<K>>,
    disarmed: Option<K::DisarmedDeadline>,
}

impl<K: OperationKind> Purgatory<K> {
    /// Takes out the key's operations that are not complete and are not being completed (P4), in order of arrival.
    pub fn cancel_for_key<H: Host<K>>(&self, host: &H, key: &K::Key) -> Vec<K::Op> {
        let Some((mut walk, (mut step, mut more))) = self.watchers.walk(host, key) else { return Vec::new() };
        let mut taken_out = Vec::new();
        loop {
            // An operation that another thread has taken out may wait again, elsewhere.
            let still_waits = |place| move |watch: &Watch<K>| watch.is_in(self) && watch.places.contains(&place);
            for (place, op) in step {
                taken_out.extend(take_out_if(host, &op, still_waits(place)).map(|out| (op, out)));
            }
            if !more {
                return self.notify_taken_out(host, taken_out);
            }
            (step, more) = self.watchers.step(host, &mut walk);
        }
    }

    /// Accepts no more operations, and takes out all that wait, in order of arrival.
    pub fn close<H: Host<K>>(&self, host: &H) -> Vec<K::Op> {
        let waiting = self.watchers.close(host);
        let mut taken_out = Vec::new();
        for op in waiting {
            let mut number = 0;
            let still_waits = |watch: &Watch<K>| {
                number = watch.number;
                watch.is_in(self)
            };
            if let Some(out) = take_out_if(host, &op, still_waits) {
                taken_out.push((number, op, out));
            }
        }
        taken_out.sort_by_key(|(number, ..)| *number);
        self.notify_taken_out(host, taken_out.into_iter().map(|(_, op, out)| (op, out)).collect())
    }

    /// All operations are out before the first is notified, which may watch one again. All are notified before anything is
    /// dropped.
    fn notify_taken_out<H: Host<K>>(&self, host: &H, taken_out: Vec<(K::Op, TakenOut<K>)>) -> Vec<K::Op> {
        let mut dropped = Vec::new();
        let notify = |(op, TakenOut { waiters, removed, disarmed })| {
            host.notify_taken_out(&self.environment, &op, waiters);
            dropped.push((removed, disarmed));
            op
        };
        let ops = taken_out.into_iter().map(notify).collect();
        for (removed, _) in dropped {
            drop_removed(removed);
        }
        ops
    }

    /// No key can be checked any more, so the lists are emptied: an operation with a deadline is kept alive by the
    /// timer alone. Operations without a deadline are taken out, at once or when they lose their deadline.
    pub fn abandon<H: Host<K>>(&self, host: &H) {
        self.is_abandoned.store(true, Ordering::Relaxed);
        for op in self.watchers.clear(host) {
            take_out_and_notify_if(host, &op, |watch| watch.is_in(self) && watch.deadline.is_none());
        }
    }

    /// Takes an operation out, if it still waits as this arrival.
    pub fn cancel_arrival<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, number: u64) -> bool {
        take_out_and_notify_if(host, op, |watch| watch.is(self, number))
    }

    /// As [`Self::cancel_arrival`], for a refused operation. The operation has not waited, and keeps its earlier
    /// deadline.
    pub(super) fn refuse_arrival<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, number: u64) {
        let state = K::state(op);
        let mut watch = host.lock(&state.watch);
        if !watch.is(self, number) || !state.withdraw() {
            return; // another thread has completed it or taken it out
        }
        let ended = watch.take().map(|ended| (ended, host.take_waiters(op)));
        drop(watch);
        let Some((ended, waiters)) = ended else { return };
        let removed = remove(host, self, ended.places);
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        host.notify_taken_out(&self.environment, op, waiters);
        drop_removed(removed);
    }
}

/// Completes an operation, unless it is complete: `true` for one caller ever (P1).
pub fn force_complete<K: OperationKind, H: Host<K>>(host: &H, op: &K::Op) -> bool {
    let is_in_own_try = in_progress::is_trying(K::state(op).address());
    complete(host, op, Cause::Event, if is_in_own_try { Completer::Try } else { Completer::Any })
}

/// The operation's deadline has passed.
pub fn expire<K: OperationKind, H: Host<K>>(host: &H, op: &K::Op, completer: Completer) -> bool {
    complete(host, op, Cause::Expiry, completer)
}

fn complete<K: OperationKind, H: Host<K>>(host: &H, op: &K::Op, cause: Cause, completer: Completer) -> bool {
    let state = K::state(op);
    if !state.set_completed(cause, completer) {
        return false;
    }
    let ended = host.lock(&state.watch).take();
    let environment = ended.as_ref().map(|ended| &ended.purgatory.environment);
    let deadline = ended.as_ref().and_then(|ended| ended.deadline.as_ref());
    // An expiry that the timer has released already finds the operation completed.
    let disarmed = host.disarm(op, environment, deadline);
    let mut removed = ShortList::new();
    let purgatory = ended.map(|ended| {
        removed = remove(host, &ended.purgatory, ended.places);
        let Counters { completed, expired, waited_us, .. } = &ended.purgatory.counters;
        let count = if cause == Cause::Event { completed } else { expired };
        count.fetch_add(1, Ordering::Relaxed);
        let now_us = host.now_us(&ended.purgatory.environment);
        waited_us.fetch_add(now_us.saturating_sub(ended.since_us), Ordering::Relaxed);
        ended.purgatory
    });
    match in_progress::note_completion(state.address(), cause, host.process()) {
        EndingRunner::OwnTry => {}
        EndingRunner::OutermostTry => host.defer_ending(op, cause, purgatory),
        EndingRunner::Caller => {
            host.run_ending(op, cause, purgatory.as_ref().map(|purgatory| &purgatory.environment));
        }
    }
    drop(disarmed);
    drop_removed(removed);
    true
}

/// Takes an operation out of its purgatory, or, if it is in none, off the timer that it is on: `true` if from now on only
/// the caller may complete it (P4).
pub fn cancel<K: OperationKind, H: Host<K>>(host: &H, op: &K::Op) -> bool {
    let state = K::state(op);
    let watch = host.lock(&state.watch);
    if watch.purgatory.is_some() || state.is_completed() {
        drop(watch);
        return take_out_and_notify_if(host, op, |_| true);
    }
    let disarmed = host.disarm(op, None, None);
    drop(watch);
    disarmed.is_some()
}

/// As [`take_out_if`]; also notifies the waiters, and drops the removed values.
fn take_out_and_notify_if<K: OperationKind, H: Host<K>>(
    host: &H,
    op: &K::Op,
    still_waits: impl FnOnce(&Watch<K>) -> bool,
) -> bool {
    let mut purgatory = None;
    let still_waits = |watch: &Watch<K>| {
        purgatory.clone_from(&watch.purgatory);
        still_waits(watch)
    };
    let Some(TakenOut { waiters, removed, disarmed }) = take_out_if(host, op, still_waits) else { return false };
    if let Some(purgatory) = purgatory {
        host.notify_taken_out(&purgatory.environment, op, waiters);
    }
    drop(disarmed);
    drop_removed(removed);
    true
}

/// Takes an operation out before it is complete; `None` if it is complete or `still_waits` returns `false`. The caller
/// notifies, and drops what was removed.
fn take_out_if<K: OperationKind, H: Host<K>>(
    host: &H,
    op: &K::Op,
    still_waits: impl FnOnce(&Watch<K>) -> bool,
) -> Option<TakenOut<K>> {
    let state = K::state(op);
    let mut watch = host.lock(&state.watch);
    let is_meant = state.is_open() && still_waits(&watch);
    let purgatory = watch.purgatory.clone().filter(|_| is_meant)?;
    // An expiry that the timer has released already fails after `withdraw`.
    let disarmed = host.disarm(op, Some(&purgatory.environment), watch.deadline.as_ref());
    watch.set_deadline(None);
    // If another thread completes it at this moment, that thread takes it out.
    let ended = if state.withdraw() { watch.take() } else { None };
    let ended = ended.map(|ended| (ended, host.take_waiters(op)));
    drop(watch);
    let (ended, waiters) = ended?;
    let removed = remove(host, &purgatory, ended.places);
    purgatory.counters.cancelled.fetch_add(1, Ordering::Relaxed);
    Some(TakenOut { waiters, removed, disarmed })
}

/// Whether an operation is not complete and waits nowhere.
pub fn is_idle<K: OperationKind, H: Host<K>>(host: &H, op: &K::Op) -> bool {
    let state = K::state(op);
    let watch = host.lock(&state.watch);
    watch.purgatory.is_none() && !state.is_completed()
}

/// The operation was put on a timer, or taken off one, by other means than its purgatory.
pub fn sync_deadline<K: OperationKind, H: Host<K>>(host: &H, op: &K::Op) {
    let state = K::state(op);
    let mut watch = host.lock(&state.watch);
    if state.is_completed() {
        // A deadline of a complete operation has no effect.
        let disarmed = host.disarm(op, None, None);
        drop(watch);
        drop(disarmed);
        return;
    }
    let Some(purgatory) = watch.purgatory.clone() else { return };
    watch.set_deadline(host.current_deadline(op));
    let cannot_end = watch.deadline.is_none() && purgatory.is_abandoned.load(Ordering::Relaxed);
    drop(watch);
    if cannot_end {
        take_out_and_notify_if(host, op, |watch| watch.is_in(&purgatory) && watch.deadline.is_none());
    }
}

/// Removes an operation from each of its places.
fn remove<K: OperationKind, H: Host<K>>(
    host: &H,
    purgatory: &Purgatory<K>,
    places: ShortList<Place>,
) -> ShortList<Removed<K>> {
    let mut removed = ShortList::new();
    for place in places {
        if let Some(one) = purgatory.watchers.remove(host, place) {
            removed.push(one);
        }
    }
    removed
}
