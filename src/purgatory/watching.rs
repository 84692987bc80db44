//! Watching: the call that lets an operation wait (P2).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::operation_state::Watch;
use super::{Few, Host, Kind, Purgatory, Refused, in_progress};
use crate::panics;

impl<K: Kind> Purgatory<K> {
    /// Tries once; watches under every key; tries once more; puts it on the timer (P2).
    pub(crate) fn try_complete_else_watch<H: Host<K>>(
        self: &Arc<Self>,
        host: &H,
        op: &K::Op,
        keys: Few<K::Key>,
    ) -> Result<Watched, Refused<H::Error>> {
        let Some(number) = self.begin(host, op)? else { return Ok(Watched::BEFORE) };
        let unfinished = Unfinished { purgatory: self, host, op, number };
        let watched = self.watch(host, op, number, keys);
        if let Err(Refused::Failed(_)) = watched {
            drop(unfinished);
        } else {
            std::mem::forget(unfinished);
        }
        watched.map(|is_won| Watched { is_won, number: Some(number) }).inspect_err(|refused| {
            if !matches!(refused, Refused::Failed(_)) && host.is_here() {
                self.refuse_arrival(host, op, number);
            }
        })
    }

    /// The rest of it. Where it fails or is refused, the caller takes the operation out again.
    fn watch<H: Host<K>>(
        self: &Arc<Self>,
        host: &H,
        op: &K::Op,
        number: u64,
        keys: Few<K::Key>,
    ) -> Result<bool, Refused<H::Error>> {
        let life = K::life(op);
        // Not so any more where someone else completed it or took it out.
        let is_mine = |watch: &Watch<K>| watch.is(self, number) && life.is_open();
        if self.try_for_caller(host, op)? {
            return Ok(true);
        }
        for key in keys {
            let hash = self.watchers.hash(&key);
            let mut watch = host.lock(&life.watch);
            if !is_mine(&watch) {
                return Ok(false);
            }
            let (place, spare) = self.watchers.add(host, hash, key, || host.share(op));
            watch.places.extend(place);
            drop(watch);
            panics::contain(|| drop(spare)); // after the lock: a destructor is foreign code
            if place.is_none() {
                return Err(Refused::Closed);
            }
        }
        if self.try_for_caller(host, op)? {
            return Ok(true);
        }
        let mut watch = host.lock(&life.watch);
        if is_mine(&watch) {
            let armed = host.arm(&self.home, op).map_err(Refused::Timer)?;
            // It may have had one already.
            watch.set_deadline(armed.deadline);
            watch.since_us = armed.now_us;
        }
        Ok(false)
    }

    /// Says where the operation waits from now on; `None` if it is complete.
    fn begin<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op) -> Result<Option<u64>, Refused<H::Error>> {
        let life = K::life(op);
        let mut watch = host.lock(&life.watch);
        // Who completes it from here on takes the lock after that, and finds where it waits.
        if life.is_completed() {
            return Ok(None);
        }
        if watch.purgatory.is_some() {
            return Err(Refused::Waiting);
        }
        watch.purgatory = Some(Arc::clone(self));
        watch.number = self.counters.arrived.fetch_add(1, Ordering::Relaxed);
        watch.since_us = u64::MAX; // until it has been tried twice it has not waited
        // A check that was put off elsewhere may have been lost with the timer there.
        life.is_put_off.swap(false, Ordering::AcqRel);
        // One that is on a timer already has a deadline, which is this purgatory's from now on.
        let deadline = host.deadline(op);
        watch.set_deadline(deadline);
        life.reopen();
        host.begins(&self.home, op);
        Ok(Some(watch.number))
    }

    /// One of the two tries of a watching call: what it raises reaches the caller (P8).
    fn try_for_caller<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op) -> Result<bool, Refused<H::Error>> {
        if in_progress::is_trying(K::life(op).address()) {
            // Cancelled and watched again inside its own try, which may have looked before the keys were watched.
            if !K::life(op).mark() && self.put_off(host, op, 0).is_err() {
                K::life(op).mark_the_last(); // the timer was shut down, and cannot check it
            }
            return Ok(false);
        }
        let checked = self.check_one(host, op, 0);
        checked.failure.map_or(Ok(checked.is_won), |error| Err(Refused::Failed(error)))
    }
}

/// What came of a watching call.
pub(crate) struct Watched {
    /// This call completed the operation.
    pub(crate) is_won: bool,
    /// Which arrival of the purgatory it was; `None` if the operation was complete before.
    #[cfg_attr(not(feature = "python"), expect(dead_code, reason = "a wait from Python is cancelled by it"))]
    pub(crate) number: Option<u64>,
}

impl Watched {
    const BEFORE: Self = Self { is_won: false, number: None };
}

/// A watching call on its way. Dropped before its end, by a try that failed or a panic, it takes the operation out again.
struct Unfinished<'a, K: Kind, H: Host<K>> {
    purgatory: &'a Arc<Purgatory<K>>,
    host: &'a H,
    op: &'a K::Op,
    number: u64,
}

impl<K: Kind, H: Host<K>> Drop for Unfinished<'_, K, H> {
    fn drop(&mut self) {
        if self.host.is_here() {
            self.purgatory.cancel_arrival(self.host, self.op, self.number);
        }
    }
}
