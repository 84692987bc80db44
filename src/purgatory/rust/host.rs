//! The host of Rust programs: locks are simply taken, and the panic hook has reported what panics.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::super::check_requests::RequestedChecks;
use super::super::host::{ArmedDeadline, Host, MAX_YIELDS, TryResult};
use super::super::key_list::ListId;
use super::super::leaving::expire;
use super::super::operation_state::{Cause, Completer};
use super::super::operation_types::Locking;
use super::super::purgatory_core::Purgatory;
use super::super::rounds::Rounds;
use super::super::timer_check::TimerCheck;
use super::operation::{DelayedOperation, Environment, Inner, Operation, RustOperations};
use crate::error::Error;
use crate::panics;
use crate::state::Room;
use crate::sync::{Mutex, MutexGuard, thread_local, yield_now};
use crate::wheel::Handle;

pub(super) struct RustHost;

pub(super) enum HostError {
    Timer(Error),
    Panic(Box<dyn Any + Send>),
}

/// A completed operation of any type, whose ending was deferred.
trait DeferredEnding: Send + Sync {
    fn run(&self, cause: Cause);
}

impl<O: DelayedOperation> DeferredEnding for Inner<O> {
    fn run(&self, cause: Cause) {
        panics::contain(|| self.operation.on_complete());
        if cause == Cause::Expiry {
            panics::contain(|| self.operation.on_expiration());
        }
    }
}

/// The check of a list with operations of any type.
pub(super) trait ListCheck {
    fn run(&self, rounds: &mut Rounds) -> usize;
    fn leave_to_timer(&self, requested_by: Option<usize>, fruitless_runs: u32);
}

impl<O: DelayedOperation> ListCheck for (Arc<Purgatory<RustOperations<O>>>, ListId) {
    fn run(&self, rounds: &mut Rounds) -> usize {
        self.0.check_list(&RustHost, self.1, rounds)
    }

    fn leave_to_timer(&self, requested_by: Option<usize>, fruitless_runs: u32) {
        self.0.leave_to_timer(&RustHost, self.1, requested_by, fruitless_runs);
    }
}

/// Without a destructor, as in `in_progress`. It holds no memory when it is empty.
type DeferredEndings = ManuallyDrop<VecDeque<(Arc<dyn DeferredEnding>, Cause)>>;

thread_local! {
    static DEFERRED: RefCell<DeferredEndings> = const { RefCell::new(ManuallyDrop::new(VecDeque::new())) };
    static REQUESTED: RefCell<RequestedChecks<Box<dyn ListCheck>>> = const { RefCell::new(RequestedChecks::new()) };
}

impl<O: DelayedOperation> Locking<RustOperations<O>> for RustHost {
    fn lock<'a, T: Send>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        mutex.lock()
    }

    fn clone_ref(&self, op: &Operation<O>) -> Operation<O> {
        op.clone()
    }
}

impl<O: DelayedOperation> Host<RustOperations<O>> for RustHost {
    type Error = HostError;

    fn call_try_complete(&self, op: &Operation<O>) -> TryResult<HostError> {
        let mut is_locked = true;
        let result = catch_unwind(AssertUnwindSafe(|| {
            is_locked = !op.locked(&mut || {
                let returned = O::try_complete(op);
                debug_assert!(
                    !returned || op.is_completed(),
                    "try_complete returned true, but the operation is not complete: return this.force_complete()"
                );
            });
        }));
        match result {
            Err(payload) => TryResult::Failed(HostError::Panic(payload)),
            Ok(()) if is_locked => TryResult::Locked,
            Ok(()) => TryResult::Returned,
        }
    }

    fn arm(&self, environment: &Environment, op: &Operation<O>) -> Result<ArmedDeadline<RustOperations<O>>, HostError> {
        if !environment.timer_enabled {
            return Ok(ArmedDeadline { deadline: None, now_us: environment.timer.clock().now_us() });
        }
        let (expired, completer) = (op.clone(), Completer::Deadline(op.0.state.wait_number()));
        let expire = move || {
            expire(&RustHost, &expired, completer);
        };
        let added = environment.timer.add(op.0.delay, Box::new(expire), Room::IfAny);
        added.map(|(handle, now_us)| ArmedDeadline { deadline: Some(handle), now_us }).map_err(HostError::Timer)
    }

    fn disarm(&self, _op: &Operation<O>, environment: Option<&Environment>, deadline: Option<&Handle>) -> Option<()> {
        environment?.timer.cancel(*deadline?).then_some(())
    }

    fn add_timer_check(
        &self,
        environment: &Environment,
        check: TimerCheck<RustOperations<O>>,
    ) -> Result<(), HostError> {
        let delay = check.delay();
        let added = environment.timer.add(delay, Box::new(move || check.run(&RustHost)), Room::Always);
        added.map(drop).map_err(HostError::Timer)
    }

    fn yield_to_others(&self, rounds: u32) {
        (0..rounds.min(MAX_YIELDS)).for_each(|_| yield_now());
    }

    fn run_ending(&self, op: &Operation<O>, cause: Cause, _environment: Option<&Environment>) {
        op.0.run(cause);
    }

    fn defer_ending(&self, op: &Operation<O>, cause: Cause, _purgatory: Option<Arc<Purgatory<RustOperations<O>>>>) {
        let ending: Arc<dyn DeferredEnding> = Arc::clone(&op.0) as _;
        DEFERRED.with(|deferred| deferred.borrow_mut().push_back((ending, cause)));
    }

    fn run_deferred_endings(&self) {
        while let Some((ending, cause)) = DEFERRED.with(|deferred| deferred.borrow_mut().pop_front()) {
            ending.run(cause);
            panics::contain(|| drop(ending)); // it may be the last reference
        }
        DEFERRED.with(|deferred| deferred.borrow_mut().shrink_to_fit());
    }

    type Check = Box<dyn ListCheck>;

    fn list_check(&self, purgatory: &Arc<Purgatory<RustOperations<O>>>, list: ListId) -> Box<dyn ListCheck> {
        Box::new((Arc::clone(purgatory), list))
    }

    fn run_check(&self, check: &Box<dyn ListCheck>, rounds: &mut Rounds) -> usize {
        check.run(rounds)
    }

    fn leave_to_timer(&self, check: &Box<dyn ListCheck>, requested_by: Option<usize>, fruitless_runs: u32) {
        check.leave_to_timer(requested_by, fruitless_runs);
    }

    fn requested_checks<T>(&self, f: impl FnOnce(&mut RequestedChecks<Box<dyn ListCheck>>) -> T) -> T {
        REQUESTED.with(|requested| f(&mut requested.borrow_mut()))
    }

    /// The panic hook has reported it. The destructor of a panic's payload is foreign code.
    fn report(&self, _environment: &Environment, _op: &Operation<O>, error: HostError) {
        panics::contain(|| drop(error));
    }

    fn now_us(&self, environment: &Environment) -> u64 {
        environment.timer.clock().now_us()
    }
}
