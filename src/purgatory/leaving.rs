//! Leaving: an operation is completed once, or taken out, and is on no list and no timer any more (P1, P4, P5).
//!
//! There are two ways to leave, [`complete`] and [`cancel_if`]. All that takes an operation out goes through the latter,
//! so each tells the same waiters in the same order: off the timer, withdrawn, off the lists, counted, told.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::here::{self, Teller};
use super::kind::Disarmed;
use super::operation::Watch;
use super::watchers::{Few, Place, Taken};
use super::{Cause, Counters, Host, Kind, Purgatory};

impl<K: Kind> Purgatory<K> {
    /// Takes out the key's operations that are not complete and are not being completed (P4), in order of arrival.
    pub(crate) fn cancel_for_key<H: Host<K>>(&self, host: &H, key: &K::Key) -> Vec<K::Op> {
        let Some((mut walk, (mut step, mut more))) = self.watchers.walk(host, key) else { return Vec::new() };
        let mut cancelled = Vec::new();
        loop {
            // One that was taken out meanwhile may wait again, elsewhere.
            let is_there = |place| move |watch: &Watch<K>| watch.is_in(self) && watch.places.contains(&place);
            for (place, op) in step {
                cancelled.extend(cancel_if(host, &op, is_there(place)).map(|waiters| (op, waiters)));
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
            if let Some(waiters) = cancel_if(host, &op, is_there) {
                cancelled.push((number, op, waiters));
            }
        }
        cancelled.sort_by_key(|(number, ..)| *number);
        self.tell_taken_out(host, cancelled.into_iter().map(|(_, op, waiters)| (op, waiters)).collect())
    }

    /// All of them are out before the first is told: what is told may watch one again.
    fn tell_taken_out<H: Host<K>>(&self, host: &H, cancelled: Vec<(K::Op, K::Waiters)>) -> Vec<K::Op> {
        let tell = |(op, waiters)| {
            host.tell_taken_out(&self.home, &op, waiters);
            op
        };
        cancelled.into_iter().map(tell).collect()
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
}

/// Completes an operation, unless it is complete: `true` for one caller ever (P1).
pub(crate) fn force_complete<K: Kind, H: Host<K>>(host: &H, op: &K::Op) -> bool {
    let is_inside = here::is_trying(K::life(op).address());
    complete(host, op, Cause::Event, is_inside)
}

/// An operation's time has run out; `for_the_purgatory` if a cancel may have overtaken that.
pub(crate) fn expire<K: Kind, H: Host<K>>(host: &H, op: &K::Op, for_the_purgatory: bool) -> bool {
    complete(host, op, Cause::Expiry, for_the_purgatory)
}

fn complete<K: Kind, H: Host<K>>(host: &H, op: &K::Op, cause: Cause, for_the_purgatory: bool) -> bool {
    let life = K::life(op);
    if !life.win(cause, for_the_purgatory) {
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
    match here::won(life.address(), cause, host.process()) {
        Teller::Try => {}
        Teller::Outermost => host.defer(op, cause, purgatory),
        Teller::Caller => host.end(op, cause, purgatory.as_ref().map(|purgatory| &purgatory.home)),
    }
    // Last: destructors are foreign code, and may even panic.
    drop((removed, disarmed));
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
    matches!(disarmed, Disarmed::WasOn(_))
}

/// Takes an operation out if it waits where it should, and tells so.
fn take_out_if<K: Kind, H: Host<K>>(host: &H, op: &K::Op, is_there: impl FnOnce(&Watch<K>) -> bool) -> bool {
    let mut purgatory = None;
    let is_there = |watch: &Watch<K>| {
        purgatory.clone_from(&watch.purgatory);
        is_there(watch)
    };
    let waiters = cancel_if(host, op, is_there);
    let is_out = waiters.is_some();
    if let (Some(waiters), Some(purgatory)) = (waiters, purgatory) {
        host.tell_taken_out(&purgatory.home, op, waiters);
    }
    is_out
}

/// The one way out for what is not complete: what waits for it is for the caller to tell. `None` if it does not wait
/// where it should, or is being completed.
fn cancel_if<K: Kind, H: Host<K>>(
    host: &H,
    op: &K::Op,
    is_there: impl FnOnce(&Watch<K>) -> bool,
) -> Option<K::Waiters> {
    let life = K::life(op);
    let mut watch = host.lock(&life.watch);
    let is_meant = life.is_open() && is_there(&watch);
    let purgatory = watch.purgatory.clone().filter(|_| is_meant)?;
    let disarmed = host.disarm(op, Some(&purgatory.home), watch.deadline.as_ref());
    if matches!(disarmed, Disarmed::Expires) {
        return None;
    }
    watch.set_deadline(None);
    // If another thread completes it at this moment, that thread takes it out.
    let left = if life.withdraw() { watch.take() } else { None };
    let left = left.map(|left| (left, host.take_waiters(op)));
    drop(watch);
    drop(disarmed);
    let (left, waiters) = left?;
    let removed = remove(host, &purgatory, left.places);
    purgatory.counters.cancelled.fetch_add(1, Ordering::Relaxed);
    drop(removed);
    Some(waiters)
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
