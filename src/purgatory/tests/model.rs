//! Model tests of the protocol, on `crate::model`: the real purgatory, with operations and a timer made for it.
//!
//! - The timer is a list of deadlines and a list of checks. [`expire_all`] and [`run_next_check`] do what its threads would do.
//! - Events are `std`'s atomics: the model checker does not switch threads there, so there are fewer interleavings. An event
//!   happens before each step of the protocol that reads or writes shared data.
//! - The protocol would catch a panic inside a try. So operations count, and the test's own thread asserts.

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

use super::super::check_requests::RequestedChecks;
use super::super::host::{ArmedDeadline, Host, TryResult};
use super::super::key_list::{ListId, ShortList};
use super::super::leaving;
use super::super::operation_state::{Cause, Completer, OperationKind, OperationState};
use super::super::operation_types::{Locking, OperationTypes};
use super::super::purgatory_core::Purgatory;
use super::super::rounds::Rounds;
use super::super::timer_check::TimerCheck;
use crate::model::count;
use crate::sync::{self, Mutex, MutexGuard, ThreadId, thread_local, yield_now};

/// The runs of each kind in a sample. Fewer than the timer has: there are more tests, and each is small.
const RUNS: usize = crate::model::RUNS / 2;

type Pool = Arc<Purgatory<Model>>;

struct Model;

/// An operation, and how often it ended.
#[derive(Clone)]
struct Op(Arc<Inner>);

struct Inner {
    state: OperationState<Model>,
    try_complete: Box<dyn Fn(&Op) + Send + Sync>,
    own_lock: Option<OwnLock>,
    completed: AtomicU32,
    expired: AtomicU32,
}

/// A re-entrant lock that no thread waits for.
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
            state: OperationState::new(),
            try_complete: Box::new(try_complete),
            own_lock,
            completed: AtomicU32::new(0),
            expired: AtomicU32::new(0),
        }))
    }

    /// Is completed by a try when all events have happened.
    fn after(events: &[Event]) -> Self {
        Self::new(when_happened(events))
    }

    /// As [`Self::after`], with a lock of its own.
    fn locked_after(events: &[Event]) -> Self {
        Self::with(Some(OwnLock::default()), when_happened(events))
    }

    /// Takes its own lock, if it is free.
    fn enter(&self) -> bool {
        self.0.own_lock.as_ref().is_none_or(OwnLock::enter)
    }

    fn leave(&self) {
        self.0.own_lock.iter().for_each(OwnLock::leave);
    }

    fn force_complete(&self) -> bool {
        leaving::force_complete(&ModelHost, self)
    }

    fn cancel(&self) -> bool {
        leaving::cancel(&ModelHost, self)
    }

    fn completed(&self) -> u32 {
        self.0.completed.load(Ordering::Relaxed)
    }

    fn expired(&self) -> u32 {
        self.0.expired.load(Ordering::Relaxed)
    }
}

fn when_happened(events: &[Event]) -> impl Fn(&Op) + Send + Sync + 'static {
    let events = events.to_vec();
    move |op| {
        if events.iter().all(Event::has_happened) {
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

    fn has_happened(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The timer of a model: the deadlines, and the entries that make checks.
#[derive(Default)]
struct Environment {
    armed: Mutex<Vec<(Op, Completer)>>,
    timer_checks: Mutex<VecDeque<TimerCheck<Model>>>,
}

impl OperationTypes for Model {
    type Key = u8;
    type BuildKeyHasher = BuildHasherDefault<DefaultHasher>;
    const SHARDS: usize = 2;
    type Op = Op;
    type Deadline = ();
    type DisarmedDeadline = ();
    type Waiters = ();
    type Environment = Environment;
}

impl OperationKind for Model {
    fn state(op: &Op) -> &OperationState<Self> {
        &op.0.state
    }
}

struct ModelHost;

thread_local! {
    static DEFERRED: RefCell<VecDeque<(Op, Cause)>> = const { RefCell::new(VecDeque::new()) };
    static REQUESTED_CHECKS: RefCell<RequestedChecks<(Pool, ListId)>> = const { RefCell::new(RequestedChecks::new()) };
    /// Runs when this thread yields to others.
    static ON_YIELD: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

impl Locking<Model> for ModelHost {
    fn lock<'a, T: Send>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        mutex.lock()
    }

    fn clone_ref(&self, op: &Op) -> Op {
        op.clone()
    }
}

impl Host<Model> for ModelHost {
    type Error = ();

    fn call_try_complete(&self, op: &Op) -> TryResult<()> {
        if !op.enter() {
            return TryResult::Locked;
        }
        (op.0.try_complete)(op);
        op.leave();
        TryResult::Returned
    }

    fn arm(&self, environment: &Environment, op: &Op) -> Result<ArmedDeadline<Model>, ()> {
        environment.armed.lock().push((op.clone(), Completer::Deadline(op.0.state.wait_number())));
        Ok(ArmedDeadline { deadline: Some(()), now_us: 0 })
    }

    fn disarm(&self, op: &Op, environment: Option<&Environment>, deadline: Option<&()>) -> Option<()> {
        let (environment, ()) = (environment?, deadline?);
        let mut armed = environment.armed.lock();
        let found = armed.iter().position(|(other, _)| Arc::ptr_eq(&other.0, &op.0));
        found.map(|index| drop(armed.swap_remove(index)))
    }

    fn add_timer_check(&self, environment: &Environment, check: TimerCheck<Model>) -> Result<(), ()> {
        environment.timer_checks.lock().push_back(check);
        Ok(())
    }

    fn yield_to_others(&self, _rounds: u32) {
        ON_YIELD.with(|on_yield| on_yield.borrow().iter().for_each(|run| run()));
        yield_now();
    }

    fn run_ending(&self, op: &Op, cause: Cause, _environment: Option<&Environment>) {
        count(&op.0.completed);
        if cause == Cause::Expiry {
            count(&op.0.expired);
        }
    }

    fn defer_ending(&self, op: &Op, cause: Cause, _purgatory: Option<Pool>) {
        DEFERRED.with(|deferred| deferred.borrow_mut().push_back((op.clone(), cause)));
    }

    fn run_deferred_endings(&self) {
        while let Some((op, cause)) = DEFERRED.with(|deferred| deferred.borrow_mut().pop_front()) {
            self.run_ending(&op, cause, None);
        }
    }

    type Check = (Pool, ListId);

    fn list_check(&self, purgatory: &Pool, list: ListId) -> Self::Check {
        (Arc::clone(purgatory), list)
    }

    fn run_check(&self, (purgatory, list): &Self::Check, rounds: &mut Rounds) -> usize {
        purgatory.check_list(self, *list, rounds)
    }

    fn leave_to_timer(&self, (purgatory, list): &Self::Check, requested_by: Option<usize>, fruitless_runs: u32) {
        purgatory.leave_to_timer(self, *list, requested_by, fruitless_runs);
    }

    fn requested_checks<T>(&self, f: impl FnOnce(&mut RequestedChecks<Self::Check>) -> T) -> T {
        REQUESTED_CHECKS.with(|requested| f(&mut requested.borrow_mut()))
    }

    fn report(&self, _environment: &Environment, _op: &Op, _error: ()) {}

    fn now_us(&self, _environment: &Environment) -> u64 {
        0
    }
}

fn purgatory() -> Pool {
    Arc::new(Purgatory::new(Environment::default()))
}

/// Whether this call completed the operation; `None` if the purgatory refused it.
fn watch(purgatory: &Pool, op: &Op, keys: &[u8]) -> Option<bool> {
    let keys: ShortList<u8> = keys.iter().copied().collect();
    purgatory.try_complete_else_watch(&ModelHost, op, keys).ok().map(|watched| watched.is_completed_by_call)
}

/// All deadlines pass: the timer takes each out, then expires its operation.
fn expire_all(purgatory: &Pool) {
    loop {
        let next = purgatory.environment.armed.lock().pop();
        let Some((op, completer)) = next else { return };
        leaving::expire(&ModelHost, &op, completer);
    }
}

/// Runs the next of the timer's checks; returns its delay, or `None` if there is no check.
fn run_next_check(purgatory: &Pool) -> Option<Duration> {
    let check = purgatory.environment.timer_checks.lock().pop_front()?;
    check.run(&ModelHost);
    Some(check.delay())
}

/// No operation waits, all lists are empty, and no deadline is on the timer.
fn assert_empty(purgatory: &Pool) {
    let counts = purgatory.counts(&ModelHost);
    assert_eq!((counts.waiting, counts.watched, counts.keys, counts.delayed), (0, 0, 0, 0), "{counts:?}");
    assert!(purgatory.environment.armed.lock().is_empty(), "a deadline was left behind");
}
