//! The purgatory: operations that wait for an event on a key, or for their deadline, whichever comes first.
//!
//! After Kafka's `DelayedOperationPurgatory`. `README.md` in this folder has the protocol: who may hold what, why no event
//! is lost and nothing deadlocks. `operation` completes once, `watchers` knows who waits on a key, this file brings them
//! together, `kind` is what it needs of its side, and `native` is the side of Rust programs.

#![forbid(unsafe_code)]

mod here;
mod kind;
mod native;
mod operation;
mod watchers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering}; // a model needs no switch of threads at a counter
use std::time::Duration;

pub(crate) use kind::{Armed, Attempt, Cause, Host, Kind};
pub use native::{DelayedOperation, DelayedOperationPurgatory, Operation, PurgatoryStats};
pub(crate) use operation::Life;

use here::{Checking, Teller};
use operation::{Left, Watch};
pub(crate) use watchers::Few;
#[cfg(feature = "python")]
pub(crate) use watchers::shrink;
use watchers::{Walk, Watchers};

/// How often at most a thread gives way before it tries a marked operation again.
pub(crate) const MOST_YIELDS: u32 = 100;

/// A purgatory, whichever side it is used from.
pub(crate) struct Purgatory<K: Kind> {
    pub(crate) home: K::Home,
    watchers: Watchers<K>,
    counters: Counters,
    /// Nobody can check a key any more.
    #[cfg(feature = "python")]
    is_abandoned: AtomicBool,
}

/// Relaxed: they are for people.
#[derive(Default)]
struct Counters {
    arrived: AtomicU64,
    cancelled: AtomicU64,
    completed: AtomicU64,
    expired: AtomicU64,
    delayed: AtomicUsize,
    waited_us: AtomicU64,
}

impl Counters {
    fn waiting(&self) -> u64 {
        let ended = load(&self.cancelled) + load(&self.completed) + load(&self.expired);
        load(&self.arrived).saturating_sub(ended)
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// What a purgatory counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) waiting: u64,
    pub(crate) delayed: usize,
    pub(crate) keys: usize,
    pub(crate) watched: usize,
    pub(crate) completed: u64,
    pub(crate) expired: u64,
    pub(crate) cancelled: u64,
    pub(crate) waited_us: u64,
}

/// Why an operation cannot be watched.
#[derive(Debug)]
pub(crate) enum Refused<E> {
    /// It waits already, here or in another purgatory.
    Waiting,
    /// The purgatory was shut down.
    Closed,
    /// Its `try_complete`, or the timer.
    Failed(E),
}

/// What came of a check.
struct Checked<E> {
    /// This call completed it.
    is_won: bool,
    failure: Option<E>,
}

impl<K: Kind> Purgatory<K> {
    pub(crate) fn new(home: K::Home) -> Self {
        Self {
            home,
            watchers: Watchers::new(),
            counters: Counters::default(),
            #[cfg(feature = "python")]
            is_abandoned: AtomicBool::new(false),
        }
    }

    /// Tries once; watches under every key; tries once more; puts it on the timer (P2). `true` if this call completed it.
    pub(crate) fn try_complete_else_watch<H: Host<K>>(
        self: &Arc<Self>,
        host: &H,
        op: &K::Op,
        keys: Few<K::Key>,
    ) -> Result<bool, Refused<H::Error>> {
        let Some(number) = self.begin(host, op)? else { return Ok(false) };
        let unfinished = Unfinished { purgatory: self, host, op, number };
        let watched = self.watch(host, op, number, keys)?;
        std::mem::forget(unfinished);
        Ok(watched)
    }

    /// The rest of it. Where it fails, the caller takes the operation out again.
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
            drop(spare); // after the lock: a destructor is foreign code
            if place.is_none() {
                return Err(Refused::Closed);
            }
        }
        if self.try_for_caller(host, op)? {
            return Ok(true);
        }
        let mut watch = host.lock(&life.watch);
        if is_mine(&watch) {
            let armed = host.arm(&self.home, op).map_err(Refused::Failed)?;
            (watch.deadline, watch.since_us) = (armed.deadline, armed.now_us);
            self.counters.delayed.fetch_add(usize::from(watch.deadline.is_some()), Ordering::Relaxed);
        }
        Ok(false)
    }

    /// Tries every operation that watches the key; how many this call completed (P3).
    ///
    /// Inside a try of a check of that same key it is left to the latter, which goes over the key once more: as often as
    /// there are operations under it, and anew when that completed one.
    pub(crate) fn check_and_complete<H: Host<K>>(self: &Arc<Self>, host: &H, key: &K::Key) -> usize {
        let hash = self.watchers.hash(key);
        let list = || self.watchers.list(host, hash, key);
        let Some(mut checking) = Checking::enter(Arc::as_ptr(self) as usize, hash, list) else { return 0 };
        let (mut count, mut left) = self.check_all(host, hash, key);
        while let Some(goes_on) = checking.leave() {
            checking = goes_on;
            if left == 0 {
                break;
            }
            let (more, tried) = self.check_all(host, hash, key);
            count += more;
            left = if more > 0 { tried } else { left - 1 };
        }
        count
    }

    /// Tries each once; how many that completed, and how many there were.
    fn check_all<H: Host<K>>(self: &Arc<Self>, host: &H, hash: u64, key: &K::Key) -> (usize, usize) {
        let mut walk = Walk::default();
        let (mut count, mut tried) = (0, 0);
        let mut more = true;
        while more && host.is_here() {
            let step;
            (step, more) = self.watchers.walk(host, hash, key, &mut walk);
            Checking::goes_over(walk.list);
            for (_, op) in step.into_iter().take_while(|_| host.is_here()) {
                let checked = self.check(host, &op, 0);
                tried += 1;
                count += usize::from(checked.is_won);
                if let Some(error) = checked.failure {
                    host.report(&self.home, &op, error);
                }
            }
        }
        (count, tried)
    }

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

    pub(crate) fn counts<H: Host<K>>(&self, host: &H) -> Counts {
        let (keys, watched) = self.watchers.count(host);
        Counts {
            waiting: self.counters.waiting(),
            delayed: self.delayed(),
            keys,
            watched,
            completed: load(&self.counters.completed),
            expired: load(&self.counters.expired),
            cancelled: load(&self.counters.cancelled),
            waited_us: load(&self.counters.waited_us),
        }
    }

    /// Whether no deadline can come, and no operation is ending. For the garbage collector, so it takes no lock; it changes
    /// only with the GIL held.
    #[cfg(feature = "python")]
    pub(crate) fn is_quiet(this: &Arc<Self>) -> bool {
        let holders = 1 + this.counters.waiting();
        this.delayed() == 0 && Arc::strong_count(this) as u64 == holders
    }

    /// Operations on the timer.
    pub(crate) fn delayed(&self) -> usize {
        self.counters.delayed.load(Ordering::Relaxed)
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

    /// The check that [`Host::check_later`] put off.
    pub(crate) fn check_again<H: Host<K>>(self: &Arc<Self>, host: &H, put_off: &PutOff<K>) {
        put_off.is_made.store(true, Ordering::Relaxed);
        K::life(&put_off.op).is_put_off_no_more();
        if let Some(error) = self.check(host, &put_off.op, put_off.tries + 1).failure {
            host.report(&self.home, &put_off.op, error);
        }
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
        life.reopen();
        Ok(Some(watch.number))
    }

    /// One of the two tries of a watching call: what it raises reaches the caller (P8).
    fn try_for_caller<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op) -> Result<bool, Refused<H::Error>> {
        if here::is_trying(K::life(op).address()) {
            // Cancelled and watched again inside its own try, which may have looked before the keys were watched.
            K::life(op).mark();
            return Ok(false);
        }
        let checked = self.check(host, op, 0);
        checked.failure.map_or(Ok(checked.is_won), |error| Err(Refused::Failed(error)))
    }

    /// Undoes a watching call that failed.
    fn withdraw<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, number: u64) {
        let life = K::life(op);
        let mut watch = host.lock(&life.watch);
        // Whoever completed it meanwhile takes it out.
        let is_mine = watch.is(self, number) && life.withdraw();
        let left = if is_mine { watch.take() } else { None };
        drop(watch);
        take_out(host, op, left);
    }

    /// Tries an operation, and again while there are marks; or marks it for the thread that tries it now (P6).
    fn check<H: Host<K>>(self: &Arc<Self>, host: &H, op: &K::Op, tries: u32) -> Checked<H::Error> {
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

/// A watching call on its way. Dropped before its end, by an error or a panic, it takes the operation out again.
struct Unfinished<'a, K: Kind, H: Host<K>> {
    purgatory: &'a Arc<Purgatory<K>>,
    host: &'a H,
    op: &'a K::Op,
    number: u64,
}

impl<K: Kind, H: Host<K>> Drop for Unfinished<'_, K, H> {
    fn drop(&mut self) {
        if self.host.is_here() {
            self.purgatory.withdraw(self.host, self.op, self.number);
        }
    }
}

fn take_out<K: Kind, H: Host<K>>(host: &H, op: &K::Op, left: Option<Left<K>>) -> bool {
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

#[cfg(all(test, tickwheel_model))]
mod model;
