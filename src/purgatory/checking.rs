//! Checking: operations are tried, one thread at a time, and no event is lost (P3, P6).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::here::{self, Checking};
use super::watchers::{Few, Place, Walk};
use super::{Attempt, Cause, Host, Kind, Purgatory};

/// What came of a check.
pub(super) struct Checked<E> {
    /// This call completed it.
    pub(super) is_won: bool,
    pub(super) failure: Option<E>,
}

impl<K: Kind> Purgatory<K> {
    /// Tries every operation that watches the key; how many this call completed (P3).
    ///
    /// Inside a try of a check of that same key it is left to the latter, which goes over the key once more: as often as
    /// there are operations under it, and anew when that completed one.
    pub(crate) fn check_and_complete<H: Host<K>>(self: &Arc<Self>, host: &H, key: &K::Key) -> usize {
        let hash = self.watchers.hash(key);
        let place_of = |list| (Arc::as_ptr(self) as usize, hash, list);
        let mut walk = Walk::default();
        let first = self.watchers.walk(host, hash, key, &mut walk);
        let Some(list) = walk.list else { return 0 };
        let Some(mut checking) = Checking::enter(place_of(list)) else { return 0 };
        let (mut count, mut left) = self.check_all(host, hash, key, walk, first);
        while let Some(goes_on) = checking.leave() {
            checking = goes_on;
            let mut walk = Walk::default();
            let first = self.watchers.walk(host, hash, key, &mut walk);
            let Some(list) = walk.list.filter(|_| left > 0) else { break };
            Checking::goes_over(place_of(list));
            let (more, tried) = self.check_all(host, hash, key, walk, first);
            count += more;
            left = if more > 0 { tried } else { left - 1 };
        }
        count
    }

    /// Tries each once; how many that completed, and how many there were.
    fn check_all<H: Host<K>>(
        self: &Arc<Self>,
        host: &H,
        hash: u64,
        key: &K::Key,
        mut walk: Walk,
        (mut step, mut more): (Few<(Place, K::Op)>, bool),
    ) -> (usize, usize) {
        let (mut count, mut tried) = (0, 0);
        loop {
            for (_, op) in step.into_iter().take_while(|_| host.is_here()) {
                let checked = self.check(host, &op, 0);
                tried += 1;
                count += usize::from(checked.is_won);
                if let Some(error) = checked.failure {
                    host.report(&self.home, &op, error);
                }
            }
            if !more || !host.is_here() {
                return (count, tried);
            }
            (step, more) = self.watchers.walk(host, hash, key, &mut walk);
        }
    }

    /// Tries an operation, and again while there are marks; or marks it for the thread that tries it now (P6).
    pub(super) fn check<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, tries: u32) -> Checked<H::Error> {
        let life = K::life(op);
        if !here::enter(life.address()) {
            return Checked { is_won: false, failure: None };
        }
        let failure = if life.hold_or_mark() { self.try_while_marked(host, op, tries) } else { None };
        let tried = here::leave();
        if let Some(cause) = tried.won {
            self.end(host, op, cause, tried.is_inside);
        }
        if tried.owes {
            host.end_deferred();
        }
        Checked { is_won: tried.won == Some(Cause::Event), failure }
    }

    /// For the thread that holds the operation. Returns what failed last.
    fn try_while_marked<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, tries: u32) -> Option<H::Error> {
        let life = K::life(op);
        let mut failure = None;
        for round in 0.. {
            if life.is_open() {
                match host.attempt(op) {
                    Attempt::Ran => {}
                    Attempt::Locked => self.put_off(host, op, tries),
                    Attempt::Failed(error) => {
                        if let Some(earlier) = failure.replace(error) {
                            host.report(&self.home, op, earlier);
                        }
                    }
                }
            }
            if life.let_go() {
                break;
            }
            host.give_way(round);
            life.unmark();
        }
        failure
    }

    /// Tells that a try completed the operation; inside another one, once that is over.
    fn end<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, cause: Cause, is_inside: bool) {
        if is_inside {
            here::owes();
            host.defer(op, cause, Some(Arc::clone(self)));
        } else {
            host.end(op, cause, Some(&self.home));
        }
    }

    /// A stranger holds the operation's own lock. Nobody waits for that; the operation is checked again a little later.
    fn put_off<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, tries: u32) {
        let life = K::life(op);
        // One that is on its way clears this before it tries, so it sees what led to this check too.
        if life.is_put_off.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Err(error) = host.check_later(self, op, tries) {
            life.is_put_off_no_more();
            // The timer was shut down. The operation goes on waiting, and the next check tries it again.
            host.report(&self.home, op, error);
        }
    }

    /// The check that [`Host::check_later`] put off.
    pub(crate) fn check_again<H: Host<K>>(self: &Arc<Self>, host: &H, put_off: &PutOff<K>) {
        put_off.is_made.store(true, Ordering::Relaxed);
        K::life(&put_off.op).is_put_off_no_more();
        if let Some(error) = self.check(host, &put_off.op, put_off.tries + 1).failure {
            host.report(&self.home, &put_off.op, error);
        }
    }
}

/// A check that is on its way. Dropped without having been made, it no longer stands in for others.
pub(crate) struct PutOff<K: Kind> {
    pub(crate) op: K::Op,
    tries: u32,
    is_made: AtomicBool,
}

impl<K: Kind> PutOff<K> {
    pub(crate) fn new(op: K::Op, tries: u32) -> Self {
        Self { op, tries, is_made: AtomicBool::new(false) }
    }
}

impl<K: Kind> Drop for PutOff<K> {
    fn drop(&mut self) {
        if !self.is_made.load(Ordering::Relaxed) {
            K::life(&self.op).is_put_off_no_more();
        }
    }
}

/// How long a check is put off: a millisecond, then twice as long each time, at most 16.
pub(crate) fn put_off_for(tries: u32) -> Duration {
    Duration::from_millis(1 << tries.min(4))
}
