//! Model tests of the protocol, on `crate::model`: the real purgatory, with operations and a timer made for it.
//!
//! - The timer is a list of what was armed, and one of the checks for later. [`fire`] and [`check_later`] are what its
//!   threads would do.
//! - What an operation waits for are `std`'s atomics: no switch of threads there, so that there are fewer interleavings.
//!   It happens before each step of the protocol that reads or writes anything shared.
//! - A panic would be caught like one of `try_complete`: operations write down, and the test's own thread judges.

mod adding;
mod ending;
mod locked_operations;
mod marks;
mod remaining_checks;
mod system_timer;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::{Armed, Asked, Attempt, Cause, Completer, Few, Host, Kind, Later, Life, ListName, Purgatory, Rounds};
use crate::model::count;
use crate::sync::{self, Mutex, MutexGuard, ThreadId, thread_local, yield_now};

/// Of each kind, in a sample: there are more tests than of the timer, and each is small.
const RUNS: usize = crate::model::RUNS / 2;

type Pool = Arc<Purgatory<Model>>;

struct Model;

/// An operation and what became of it.
#[derive(Clone)]
struct Op(Arc<Inner>);

struct Inner {
    life: Life<Model>,
    try_complete: Box<dyn Fn(&Op) + Send + Sync>,
    own_lock: Option<OwnLock>,
    completed: AtomicU32,
    expired: AtomicU32,
}

/// Re-entrant, and never waited for.
#[derive(Default)]
struct OwnLock(Mutex<Option<(ThreadId, u32)>>);

impl OwnLock {
    fn enter(&self) -> bool {
        let own = sync::current_thread().id();
        let mut holder = self.0.lock();
        match &mut *holder {
            None => *holder = Some((own, 1)),
            Some((thread, depth)) if *thread == own => *depth += 1,
            Some(_) => return false,
        }
        true
    }

    fn leave(&self) {
        let mut holder = self.0.lock();
        *holder = holder.take().filter(|(_, depth)| *depth > 1).map(|(thread, depth)| (thread, depth - 1));
    }
}

impl Op {
    fn new(try_complete: impl Fn(&Op) + Send + Sync + 'static) -> Self {
        Self::with(None, try_complete)
    }

    fn with(own_lock: Option<OwnLock>, try_complete: impl Fn(&Op) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            life: Life::new(),
            try_complete: Box::new(try_complete),
            own_lock,
            completed: AtomicU32::new(0),
            expired: AtomicU32::new(0),
        }))
    }

    /// Completes once all events are there.
    fn after(events: &[Event]) -> Self {
        Self::new(once_there(events))
    }

    /// The same, with a lock of its own.
    fn locked_after(events: &[Event]) -> Self {
        Self::with(Some(OwnLock::default()), once_there(events))
    }

    /// Takes its own lock, without waiting.
    fn enter(&self) -> bool {
        self.0.own_lock.as_ref().is_none_or(OwnLock::enter)
    }

    fn leave(&self) {
        self.0.own_lock.iter().for_each(OwnLock::leave);
    }

    fn force_complete(&self) -> bool {
        super::force_complete(&Side, self)
    }

    fn cancel(&self) -> bool {
        super::cancel(&Side, self)
    }

    fn completed(&self) -> u32 {
        self.0.completed.load(Ordering::Relaxed)
    }

    fn expired(&self) -> u32 {
        self.0.expired.load(Ordering::Relaxed)
    }
}

fn once_there(events: &[Event]) -> impl Fn(&Op) + Send + Sync + 'static {
    let events = events.to_vec();
    move |op| {
        if events.iter().all(Event::is_there) {
            op.force_complete();
        }
    }
}

/// What an operation waits for.
#[derive(Clone, Default)]
struct Event(Arc<AtomicBool>);

impl Event {
    fn happens(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_there(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The timer of a model: what waits for its deadline, and the checks that were put off or left over.
#[derive(Default)]
struct Home {
    armed: Mutex<Vec<(Op, Completer)>>,
    later: Mutex<VecDeque<Later<Model>>>,
}

impl Kind for Model {
    type Key = u8;
    type Hashing = BuildHasherDefault<DefaultHasher>;
    const SHARDS: usize = 2;
    type Op = Op;
    type Deadline = ();
    type Remains = ();
    type Waiters = ();
    type Home = Home;

    fn life(op: &Op) -> &Life<Self> {
        &op.0.life
    }
}

struct Side;

thread_local! {
    static DEFERRED: RefCell<VecDeque<(Op, Cause)>> = const { RefCell::new(VecDeque::new()) };
    static ASKED: RefCell<Asked<(Pool, ListName)>> = const { RefCell::new(Asked::new()) };
    /// What happens while this thread gives way.
    static MEANWHILE: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

impl Host<Model> for Side {
    type Error = ();

    fn lock<'a, T: Send>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        mutex.lock()
    }

    fn share(&self, op: &Op) -> Op {
        op.clone()
    }

    fn attempt(&self, op: &Op) -> Attempt<()> {
        if !op.enter() {
            return Attempt::Locked;
        }
        (op.0.try_complete)(op);
        op.leave();
        Attempt::Ran
    }

    fn arm(&self, home: &Home, op: &Op) -> Result<Armed<Model>, ()> {
        home.armed.lock().push((op.clone(), Completer::Deadline(op.0.life.wait())));
        Ok(Armed { deadline: Some(()), now_us: 0 })
    }

    fn deadline(&self, _op: &Op) -> Option<()> {
        None
    }

    fn disarm(&self, op: &Op, home: Option<&Home>, deadline: Option<&()>) -> Option<()> {
        let (home, ()) = (home?, deadline?);
        let mut armed = home.armed.lock();
        let found = armed.iter().position(|(other, _)| Arc::ptr_eq(&other.0, &op.0));
        found.map(|index| drop(armed.swap_remove(index)))
    }

    fn begins(&self, _home: &Home, _op: &Op) {}

    fn take_waiters(&self, _op: &Op) {}

    fn tell_taken_out(&self, _home: &Home, _op: &Op, (): ()) {}

    fn add_later(&self, home: &Home, later: Later<Model>) -> Result<(), ()> {
        home.later.lock().push_back(later);
        Ok(())
    }

    fn process(&self) -> u32 {
        0
    }

    fn is_here(&self) -> bool {
        true
    }

    fn give_way(&self, _rounds: u32) {
        MEANWHILE.with(|meanwhile| meanwhile.borrow().iter().for_each(|happens| happens()));
        yield_now();
    }

    fn end(&self, op: &Op, cause: Cause, _home: Option<&Home>) {
        count(&op.0.completed);
        if cause == Cause::Expiry {
            count(&op.0.expired);
        }
    }

    fn defer(&self, op: &Op, cause: Cause, _purgatory: Option<Pool>) {
        DEFERRED.with(|deferred| deferred.borrow_mut().push_back((op.clone(), cause)));
    }

    fn end_deferred(&self) {
        while let Some((op, cause)) = DEFERRED.with(|deferred| deferred.borrow_mut().pop_front()) {
            self.end(&op, cause, None);
        }
    }

    type Check = (Pool, ListName);

    fn check_of(&self, purgatory: &Pool, list: ListName) -> Self::Check {
        (Arc::clone(purgatory), list)
    }

    fn make(&self, (purgatory, list): &Self::Check, rounds: &mut Rounds) -> usize {
        purgatory.pass(self, *list, rounds)
    }

    fn leave_over(&self, (purgatory, list): &Self::Check, by: Option<usize>, in_vain: u32) {
        purgatory.leave_over(self, *list, by, in_vain);
    }

    fn asked<T>(&self, f: impl FnOnce(&mut Asked<Self::Check>) -> T) -> T {
        ASKED.with(|asked| f(&mut asked.borrow_mut()))
    }

    fn report(&self, _home: &Home, _op: &Op, _error: ()) {}

    fn now_us(&self, _home: &Home) -> u64 {
        0
    }
}

fn purgatory() -> Pool {
    Arc::new(Purgatory::new(Home::default()))
}

/// Whether this call completed it; `None` where the purgatory lets nobody in.
fn watch(purgatory: &Pool, op: &Op, keys: &[u8]) -> Option<bool> {
    let keys: Few<u8> = keys.iter().copied().collect();
    purgatory.try_complete_else_watch(&Side, op, keys).ok().map(|watched| watched.is_won)
}

/// The deadlines of all that is armed pass: the timer lets go of them, one by one, then expires each.
fn fire(purgatory: &Pool) {
    loop {
        let next = purgatory.home.armed.lock().pop();
        let Some((op, completer)) = next else { return };
        super::expire(&Side, &op, completer);
    }
}

/// The next of the checks for later is due: how long it waited; `None` if there is none.
fn check_later(purgatory: &Pool) -> Option<Duration> {
    let later = purgatory.home.later.lock().pop_front()?;
    later.make(&Side);
    Some(later.delay())
}

/// Nobody waits, nothing is on any list, and nothing on the timer.
fn assert_empty(purgatory: &Pool) {
    let counts = purgatory.counts(&Side);
    assert_eq!((counts.waiting, counts.watched, counts.keys, counts.delayed), (0, 0, 0, 0), "{counts:?}");
    assert!(purgatory.home.armed.lock().is_empty(), "a deadline was left behind");
}
