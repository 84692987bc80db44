//! The purgatory's protocol from Rust: locks are taken as they are, and what panics has been told of by the panic hook.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::super::{
    Armed, Asked, Attempt, Cause, Completer, Host, Kind, Later, Life, ListName, MOST_YIELDS, Purgatory, Rounds, expire,
};
use super::purgatory::{DelayedOperation, Inner, Operation};
use crate::error::Error;
use crate::panics;
use crate::state::Room;
use crate::sync::{Mutex, MutexGuard, thread_local, yield_now};
use crate::system::SystemTimer;
use crate::wheel::Handle;

/// Operations of Rust programs.
pub(super) struct Native<O>(PhantomData<O>);

/// What surrounds a purgatory of a Rust program.
pub(crate) struct Home {
    pub(super) timer: Arc<SystemTimer>,
    pub(super) timer_enabled: bool,
}

#[cfg(not(tickwheel_model))]
type Hashing = std::hash::RandomState;
/// A model must run the same every time.
#[cfg(tickwheel_model)]
type Hashing = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

impl<O: DelayedOperation> Kind for Native<O> {
    type Key = O::Key;
    type Hashing = Hashing;
    /// Enough for the threads of a large machine.
    const SHARDS: usize = 64;
    type Op = Operation<O>;
    type Deadline = Handle;
    type Remains = ();
    type Waiters = ();
    type Home = Home;

    fn life(op: &Operation<O>) -> &Life<Self> {
        &op.0.life
    }
}

/// The side of Rust programs: locks are taken as they are.
pub(super) struct Rust;

/// Why something failed here.
pub(super) enum Failure {
    Timer(Error),
    Panic(Box<dyn Any + Send>),
}

/// An ending that had to wait, whatever its operation is.
trait Ends: Send + Sync {
    fn end(&self, cause: Cause);
}

impl<O: DelayedOperation> Ends for Inner<O> {
    fn end(&self, cause: Cause) {
        panics::contain(|| self.operation.on_complete());
        if cause == Cause::Expiry {
            panics::contain(|| self.operation.on_expiration());
        }
    }
}

/// A pass along a list, whatever its operations are.
pub(super) trait Pass {
    fn pass(&self, rounds: &mut Rounds) -> usize;
    fn leave_over(&self, by: Option<usize>, in_vain: u32);
}

impl<O: DelayedOperation> Pass for (Arc<Purgatory<Native<O>>>, ListName) {
    fn pass(&self, rounds: &mut Rounds) -> usize {
        self.0.pass(&Rust, self.1, rounds)
    }

    fn leave_over(&self, by: Option<usize>, in_vain: u32) {
        self.0.leave_over(&Rust, self.1, by, in_vain);
    }
}

/// Without a destructor, as in `here`. It holds no memory when it is empty.
type Deferred = ManuallyDrop<VecDeque<(Arc<dyn Ends>, Cause)>>;

thread_local! {
    static DEFERRED: RefCell<Deferred> = const { RefCell::new(ManuallyDrop::new(VecDeque::new())) };
    static ASKED: RefCell<Asked<Box<dyn Pass>>> = const { RefCell::new(Asked::new()) };
}

impl<O: DelayedOperation> Host<Native<O>> for Rust {
    type Error = Failure;

    fn lock<'a, T: Send>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        mutex.lock()
    }

    fn share(&self, op: &Operation<O>) -> Operation<O> {
        op.clone()
    }

    fn attempt(&self, op: &Operation<O>) -> Attempt<Failure> {
        let mut is_locked = true;
        let attempt = catch_unwind(AssertUnwindSafe(|| {
            is_locked = !op.locked(&mut || {
                let said = O::try_complete(op);
                debug_assert!(!said || op.is_completed(), "try_complete said yes: return this.force_complete()");
            });
        }));
        match attempt {
            Err(payload) => Attempt::Failed(Failure::Panic(payload)),
            Ok(()) if is_locked => Attempt::Locked,
            Ok(()) => Attempt::Ran,
        }
    }

    fn arm(&self, home: &Home, op: &Operation<O>) -> Result<Armed<Native<O>>, Failure> {
        if !home.timer_enabled {
            return Ok(Armed { deadline: None, now_us: home.timer.clock().now_us() });
        }
        let (expired, completer) = (op.clone(), Completer::Deadline(op.0.life.wait()));
        let expire = move || {
            expire(&Rust, &expired, completer);
        };
        let added = home.timer.add(op.0.delay, Box::new(expire), Room::IfAny);
        added.map(|(handle, now_us)| Armed { deadline: Some(handle), now_us }).map_err(Failure::Timer)
    }

    /// An operation of Rust has no way onto a timer but its purgatory.
    fn deadline(&self, _op: &Operation<O>) -> Option<Handle> {
        None
    }

    fn disarm(&self, _op: &Operation<O>, home: Option<&Home>, deadline: Option<&Handle>) -> Option<()> {
        home?.timer.cancel(*deadline?).then_some(())
    }

    fn begins(&self, _home: &Home, _op: &Operation<O>) {}

    fn take_waiters(&self, _op: &Operation<O>) {}

    fn tell_taken_out(&self, _home: &Home, _op: &Operation<O>, (): ()) {}

    fn add_later(&self, home: &Home, later: Later<Native<O>>) -> Result<(), Failure> {
        let delay = later.delay();
        home.timer.add(delay, Box::new(move || later.make(&Rust)), Room::Always).map(drop).map_err(Failure::Timer)
    }

    fn process(&self) -> u32 {
        0
    }

    fn is_here(&self) -> bool {
        true
    }

    fn give_way(&self, rounds: u32) {
        (0..rounds.min(MOST_YIELDS)).for_each(|_| yield_now());
    }

    fn end(&self, op: &Operation<O>, cause: Cause, _home: Option<&Home>) {
        op.0.end(cause);
    }

    fn defer(&self, op: &Operation<O>, cause: Cause, _purgatory: Option<Arc<Purgatory<Native<O>>>>) {
        let ends: Arc<dyn Ends> = Arc::clone(&op.0) as _;
        DEFERRED.with(|deferred| deferred.borrow_mut().push_back((ends, cause)));
    }

    fn end_deferred(&self) {
        while let Some((ends, cause)) = DEFERRED.with(|deferred| deferred.borrow_mut().pop_front()) {
            ends.end(cause);
            panics::contain(|| drop(ends)); // it may be the last reference
        }
        DEFERRED.with(|deferred| deferred.borrow_mut().shrink_to_fit());
    }

    type Check = Box<dyn Pass>;

    fn check_of(&self, purgatory: &Arc<Purgatory<Native<O>>>, list: ListName) -> Box<dyn Pass> {
        Box::new((Arc::clone(purgatory), list))
    }

    fn make(&self, check: &Box<dyn Pass>, rounds: &mut Rounds) -> usize {
        check.pass(rounds)
    }

    fn leave_over(&self, check: &Box<dyn Pass>, by: Option<usize>, in_vain: u32) {
        check.leave_over(by, in_vain);
    }

    fn asked<T>(&self, f: impl FnOnce(&mut Asked<Box<dyn Pass>>) -> T) -> T {
        ASKED.with(|asked| f(&mut asked.borrow_mut()))
    }

    /// The panic hook has told of it; the payload's destructor is foreign code.
    fn report(&self, _home: &Home, _op: &Operation<O>, error: Failure) {
        panics::contain(|| drop(error));
    }

    fn now_us(&self, home: &Home) -> u64 {
        home.timer.clock().now_us()
    }
}
