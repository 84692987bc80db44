//! Leaving: an operation is completed once, or taken out, and is on no list and no timer any more (P1, P4, P5).
//!
//! There are two ways to leave, [`complete`] and [`cancel_if`]. All that takes an operation out goes through the latter,
//! so each tells the same waiters in the same order: off the timer, withdrawn, off the lists, counted, told. What was
//! taken off is dropped last: keys and operations are foreign code, and one that panics costs no operation.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::in_progress::{self, Teller};
use super::operation_state::{Completer, Watch};
use super::watchers::{Few, Place, Taken, discard};
use super::{Cause, Counters, Host, Kind, Purgatory};

/// An operation that was taken out: what is to be told of that, and what is to be dropped after it.
struct Out<K: Kind> {
    waiters: K::Waiters,
    removed: Few<Taken<K>>,
    disarmed: Option<K::Remains>,
}

impl<K: Kind> Purgatory<K> {
    /// Takes out the key's operations that are not complete and are not being completed (P4), in order of arrival.
    pub(crate) fn cancel_for_key<H: Host<K>>(&self, host: &H, key: &K::Key) -> Vec<K::Op> {
        let Some((mut walk, (mut step, mut more))) = self.watchers.walk(host, key) else { return Vec::new() };
        let mut cancelled = Vec::new();
        loop {
            // One that was taken out meanwhile may wait again, elsewhere.
            let is_there = |place| move |watch: &Watch<K>| watch.is_in(self) && watch.places.contains(&place);
            for (place, op) in step {
                cancelled.extend(cancel_if(host, &op, is_there(place)).map(|out| (op, out)));
            }
            if !more {
                return self.tell_taken_out(host, cancelled);
            }
            (step, more) = self.watchers.step(host, &mut walk);
        }
    }

    /// Lets nothing in any more, and takes out all that wait, in order of arrival.
    pub(crate) fn close<H: Host<K>>(&self, host: &H) -> Vec<K::Op> {
        let waiting = self.watchers.close(host);
        let mut cancelled = Vec::new();
        for op in waiting {
            let mut number = 0;
            let is_there = |watch: &Watch<K>| {
                number = watch.number;
                watch.is_in(self)
            };
            if let Some(out) = cancel_if(host, &op, is_there) {
                cancelled.push((number, op, out));
            }
        }
        cancelled.sort_by_key(|(number, ..)| *number);
        self.tell_taken_out(host, cancelled.into_iter().map(|(_, op, out)| (op, out)).collect())
    }

    /// All of them are out before the first is told, which may watch one again; and all are told before anything is dropped.
    fn tell_taken_out<H: Host<K>>(&self, host: &H, cancelled: Vec<(K::Op, Out<K>)>) -> Vec<K::Op> {
        let mut dropped = Vec::new();
        let tell = |(op, Out { waiters, removed, disarmed })| {
            host.tell_taken_out(&self.home, &op, waiters);
            dropped.push((removed, disarmed));
            op
        };
        let cancelled = cancelled.into_iter().map(tell).collect();
        for (removed, _) in dropped {
            discard(removed);
        }
        cancelled
    }

    /// No key can be checked any more, so the lists are of no use: what waits for its deadline lives by the timer alone.
    /// What has no deadline is taken out, and so is what loses it later.
    pub(crate) fn abandon<H: Host<K>>(&self, host: &H) {
        self.is_abandoned.store(true, Ordering::Relaxed);
        for op in self.watchers.clear(host) {
            take_out_if(host, &op, |watch| watch.is_in(self) && watch.deadline.is_none());
        }
    }

    /// Takes an operation out, if it still waits as it did when it arrived.
    pub(crate) fn cancel_arrival<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, number: u64) -> bool {
        take_out_if(host, op, |watch| watch.is(self, number))
    }

    /// As [`Self::cancel_arrival`], for one that was refused: it never waited, and keeps the deadline that it had before.
    pub(super) fn refuse_arrival<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, number: u64) {
        let life = K::life(op);
        let mut watch = host.lock(&life.watch);
        if !watch.is(self, number) || !life.withdraw() {
            return; // completed or taken out meanwhile
        }
        let left = watch.take().map(|left| (left, host.take_waiters(op)));
        drop(watch);
        let Some((left, waiters)) = left else { return };
        let removed = remove(host, self, left.places);
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        host.tell_taken_out(&self.home, op, waiters);
        discard(removed);
    }
}

/// Completes an operation, unless it is complete: `true` for one caller ever (P1).
pub(crate) fn force_complete<K: Kind, H: Host<K>>(host: &H, op: &K::Op) -> bool {
    let is_inside = in_progress::is_trying(K::life(op).address());
    complete(host, op, Cause::Event, if is_inside { Completer::Try } else { Completer::Any })
}

/// An operation's time has run out.
pub(crate) fn expire<K: Kind, H: Host<K>>(host: &H, op: &K::Op, completer: Completer) -> bool {
    complete(host, op, Cause::Expiry, completer)
}

fn complete<K: Kind, H: Host<K>>(host: &H, op: &K::Op, cause: Cause, completer: Completer) -> bool {
    let life = K::life(op);
    if !life.win(cause, completer) {
        return false;
    }
    let left = host.lock(&life.watch).take();
    let home = left.as_ref().map(|left| &left.purgatory.home);
    let deadline = left.as_ref().and_then(|left| left.deadline.as_ref());
    // Where its expiry is on its way, that finds it completed.
    let disarmed = host.disarm(op, home, deadline);
    let mut removed = Few::new();
    let purgatory = left.map(|left| {
        removed = remove(host, &left.purgatory, left.places);
        let Counters { completed, expired, waited_us, .. } = &left.purgatory.counters;
        let count = if cause == Cause::Event { completed } else { expired };
        count.fetch_add(1, Ordering::Relaxed);
        let now_us = host.now_us(&left.purgatory.home);
        waited_us.fetch_add(now_us.saturating_sub(left.since_us), Ordering::Relaxed);
        left.purgatory
    });
    match in_progress::won(life.address(), cause, host.process()) {
        Teller::Try => {}
        Teller::Outermost => host.defer(op, cause, purgatory),
        Teller::Caller => host.end(op, cause, purgatory.as_ref().map(|purgatory| &purgatory.home)),
    }
    drop(disarmed);
    discard(removed);
    true
}

/// Takes an operation out of its purgatory, or off the timer that it is on by itself: `true` if from now on only the
/// caller may complete it (P4).
pub(crate) fn cancel<K: Kind, H: Host<K>>(host: &H, op: &K::Op) -> bool {
    let life = K::life(op);
    let watch = host.lock(&life.watch);
    if watch.purgatory.is_some() || life.is_completed() {
        drop(watch);
        return take_out_if(host, op, |_| true);
    }
    let disarmed = host.disarm(op, None, None);
    drop(watch);
    disarmed.is_some()
}

/// Takes an operation out if it waits where it should, and tells so.
fn take_out_if<K: Kind, H: Host<K>>(host: &H, op: &K::Op, is_there: impl FnOnce(&Watch<K>) -> bool) -> bool {
    let mut purgatory = None;
    let is_there = |watch: &Watch<K>| {
        purgatory.clone_from(&watch.purgatory);
        is_there(watch)
    };
    let Some(Out { waiters, removed, disarmed }) = cancel_if(host, op, is_there) else { return false };
    if let Some(purgatory) = purgatory {
        host.tell_taken_out(&purgatory.home, op, waiters);
    }
    drop(disarmed);
    discard(removed);
    true
}

/// The one way out for what is not complete: the caller tells it and drops what is left. `None` if it does not wait where
/// it should, or is complete.
fn cancel_if<K: Kind, H: Host<K>>(host: &H, op: &K::Op, is_there: impl FnOnce(&Watch<K>) -> bool) -> Option<Out<K>> {
    let life = K::life(op);
    let mut watch = host.lock(&life.watch);
    let is_meant = life.is_open() && is_there(&watch);
    let purgatory = watch.purgatory.clone().filter(|_| is_meant)?;
    // An expiry that is on its way already comes too late after the next step.
    let disarmed = host.disarm(op, Some(&purgatory.home), watch.deadline.as_ref());
    watch.set_deadline(None);
    // If another thread completes it at this moment, that thread takes it out.
    let left = if life.withdraw() { watch.take() } else { None };
    let left = left.map(|left| (left, host.take_waiters(op)));
    drop(watch);
    let (left, waiters) = left?;
    let removed = remove(host, &purgatory, left.places);
    purgatory.counters.cancelled.fetch_add(1, Ordering::Relaxed);
    Some(Out { waiters, removed, disarmed })
}

/// Whether an operation is open, and waits nowhere.
#[cfg(feature = "python")]
pub(crate) fn is_idle<K: Kind, H: Host<K>>(host: &H, op: &K::Op) -> bool {
    let life = K::life(op);
    let watch = host.lock(&life.watch);
    watch.purgatory.is_none() && !life.is_completed()
}

/// The operation was put on a timer or taken off by other means than its purgatory's.
#[cfg(feature = "python")]
pub(crate) fn sync_deadline<K: Kind, H: Host<K>>(host: &H, op: &K::Op) {
    let life = K::life(op);
    let mut watch = host.lock(&life.watch);
    if life.is_completed() {
        // Nothing can come of it.
        let disarmed = host.disarm(op, None, None);
        drop(watch);
        drop(disarmed);
        return;
    }
    let Some(purgatory) = watch.purgatory.clone() else { return };
    watch.set_deadline(host.deadline(op));
    let is_hopeless = watch.deadline.is_none() && purgatory.is_abandoned.load(Ordering::Relaxed);
    drop(watch);
    if is_hopeless {
        take_out_if(host, op, |watch| watch.is_in(&purgatory) && watch.deadline.is_none());
    }
}

/// Takes an operation off every list.
fn remove<K: Kind, H: Host<K>>(host: &H, purgatory: &Purgatory<K>, places: Few<Place>) -> Few<Taken<K>> {
    places.into_iter().filter_map(|place| purgatory.watchers.remove(host, place)).collect()
}
