//! Leaving: an operation is completed once, or taken out, and is on no list and no timer any more (P1, P4, P5).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::here::{self, Teller};
use super::operation::{Left, Watch};
use super::watchers::Walk;
use super::{Cause, Counters, Host, Kind, Purgatory};

impl<K: Kind> Purgatory<K> {
    /// Takes out the key's operations that are not complete and are not being completed (P4), in order of arrival.
    pub(crate) fn cancel_for_key<H: Host<K>>(&self, host: &H, key: &K::Key) -> Vec<K::Op> {
        let hash = self.watchers.hash(key);
        let mut walk = Walk::default();
        let mut cancelled = Vec::new();
        let mut more = true;
        while more {
            let step;
            (step, more) = self.watchers.walk(host, hash, key, &mut walk);
            // One that was taken out meanwhile may wait again, elsewhere.
            let is_there = |place| move |watch: &Watch<K>| watch.is_in(self) && watch.places.contains(&place);
            let taken = step.into_iter().filter(|(place, op)| cancel_if(host, op, is_there(*place)));
            cancelled.extend(taken.map(|(_, op)| op));
        }
        cancelled
    }

    /// Lets nobody in any more, and takes out all that wait, in order of arrival.
    pub(crate) fn close<H: Host<K>>(&self, host: &H) -> Vec<K::Op> {
        let mut waiting = self.watchers.close(host);
        waiting.retain(|op| cancel_if(host, op, |watch| watch.is_in(self)));
        waiting.sort_by_cached_key(|op| host.lock(&K::life(op).watch).number);
        waiting
    }

    /// Nobody can check a key any more: takes out what has no deadline either, and what loses it later.
    #[cfg(feature = "python")]
    pub(crate) fn abandon<H: Host<K>>(&self, host: &H) {
        self.is_abandoned.store(true, Ordering::Relaxed);
        for op in self.watchers.close(host) {
            cancel_if(host, &op, |watch| watch.deadline.is_none());
        }
    }
}

/// Completes an operation, unless somebody else has: `true` for one caller ever (P1).
pub(crate) fn force_complete<K: Kind, H: Host<K>>(host: &H, op: &K::Op) -> bool {
    let is_inside = here::is_trying(K::life(op).address());
    complete(host, op, Cause::Event, is_inside)
}

/// An operation's time has run out.
pub(crate) fn expire<K: Kind, H: Host<K>>(host: &H, op: &K::Op) -> bool {
    complete(host, op, Cause::Expiry, true)
}

fn complete<K: Kind, H: Host<K>>(host: &H, op: &K::Op, cause: Cause, for_the_purgatory: bool) -> bool {
    let life = K::life(op);
    if !life.win(cause, for_the_purgatory) {
        return false;
    }
    let left = host.lock(&life.watch).take();
    let purgatory = left.map(|left| {
        let since_us = left.since_us;
        let purgatory = undo(host, op, left);
        let Counters { completed, expired, waited_us, .. } = &purgatory.counters;
        let count = if cause == Cause::Event { completed } else { expired };
        count.fetch_add(1, Ordering::Relaxed);
        waited_us.fetch_add(host.now_us(&purgatory.home).saturating_sub(since_us), Ordering::Relaxed);
        purgatory
    });
    match here::won(life.address(), cause) {
        Teller::Try => {}
        Teller::Outermost => host.defer(op, cause, purgatory),
        Teller::Caller => host.end(op, cause, purgatory.as_ref().map(|purgatory| &purgatory.home)),
    }
    true
}

/// Takes an operation out of its purgatory: `true` if from now on only the caller may complete it (P4).
pub(crate) fn cancel<K: Kind, H: Host<K>>(host: &H, op: &K::Op) -> bool {
    cancel_if(host, op, |_| true)
}

/// As [`cancel`], if the operation waits where it should.
fn cancel_if<K: Kind, H: Host<K>>(host: &H, op: &K::Op, is_there: impl FnOnce(&Watch<K>) -> bool) -> bool {
    let life = K::life(op);
    let mut watch = host.lock(&life.watch);
    let is_meant = life.is_open() && is_there(&watch);
    let Some(purgatory) = watch.purgatory.clone().filter(|_| is_meant) else { return false };
    if let Some(deadline) = watch.deadline.take() {
        if !host.disarm(&purgatory.home, op, &deadline) {
            watch.deadline = Some(deadline);
            return false; // it is being expired
        }
        purgatory.counters.delayed.fetch_sub(1, Ordering::Relaxed);
    }
    // Where somebody completes it at this moment, he takes it out.
    let left = if life.withdraw() { watch.take() } else { None };
    drop(watch);
    take_out(host, op, left)
}

/// Whether an operation is open, and waits nowhere.
#[cfg(feature = "python")]
pub(crate) fn is_idle<K: Kind, H: Host<K>>(host: &H, op: &K::Op) -> bool {
    let life = K::life(op);
    let watch = host.lock(&life.watch);
    watch.purgatory.is_none() && !life.is_completed()
}

/// The operation may have been put on its timer or taken off by other means than the purgatory's: `now` says how it is.
#[cfg(feature = "python")]
pub(crate) fn sync_deadline<K: Kind, H: Host<K>>(host: &H, op: &K::Op, now: impl FnOnce() -> Option<K::Deadline>) {
    let mut watch = host.lock(&K::life(op).watch);
    let Some(purgatory) = watch.purgatory.clone() else { return };
    let earlier = std::mem::replace(&mut watch.deadline, now());
    let is_hopeless = watch.deadline.is_none() && purgatory.is_abandoned.load(Ordering::Relaxed);
    let delayed = &purgatory.counters.delayed;
    delayed.fetch_add(usize::from(watch.deadline.is_some()), Ordering::Relaxed);
    delayed.fetch_sub(usize::from(earlier.is_some()), Ordering::Relaxed);
    drop(watch);
    if is_hopeless {
        cancel(host, op);
    }
}

pub(super) fn take_out<K: Kind, H: Host<K>>(host: &H, op: &K::Op, left: Option<Left<K>>) -> bool {
    let Some(left) = left else { return false };
    undo(host, op, left).counters.cancelled.fetch_add(1, Ordering::Relaxed);
    true
}

/// Takes an operation off the timer and off every list; returns where it waited.
fn undo<K: Kind, H: Host<K>>(host: &H, op: &K::Op, left: Left<K>) -> Arc<Purgatory<K>> {
    let Left { purgatory, places, deadline, .. } = left;
    if let Some(deadline) = deadline {
        // Where its expiry is on its way, that finds it completed.
        host.disarm(&purgatory.home, op, &deadline);
        purgatory.counters.delayed.fetch_sub(1, Ordering::Relaxed);
    }
    for place in places {
        purgatory.watchers.remove(host, place);
    }
    purgatory
}
