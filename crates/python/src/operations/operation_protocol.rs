//! What the protocol of the purgatory needs of Python: locks are taken by `native_lock`, and the methods of the user
//! are called.
//!
//! All of this runs with the GIL held. The protocol calls `arm` and `disarm` with a native lock held too, so these run
//! no Python code.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::core::timer_core::TimerCore;
use crate::operations::operation_host::PythonHost;
use crate::operations::operation_object::{DelayedOperation, LaterCheck, NativePurgatory, PyOperations, Waiters};
use crate::operations::purgatory_setup::PurgatorySetup;
use crate::scheduled::task_adding;
use crate::scheduled::task_leaving::{self, RemovedTask};
use crate::tools::fork::fork_epoch;
use crate::tools::made_once::intern;
use crate::tools::native_lock;
use crate::values::coroutines;
use tickwheel::When;
use tickwheel::internal::Room;
use tickwheel::internal::purgatory::{
    ArmedDeadline, Cause, Host, ListId, Locking, MAX_YIELDS, RequestedChecks, Rounds, TimerCheck, TryResult,
};
use tickwheel::internal::sync::{Mutex, MutexGuard, yield_now};

/// An ending that waits for the outermost try of this thread.
type Ending = (Py<DelayedOperation>, Cause, Option<Arc<NativePurgatory>>, Option<Arc<TimerCore>>);
/// Without a destructor: the destructor of another thread-local value may still use it. It holds no memory when it is
/// empty.
type Deferred = ManuallyDrop<VecDeque<Ending>>;

/// A check that was requested inside a try.
pub(crate) type Check = (Arc<NativePurgatory>, ListId);

thread_local! {
    static DEFERRED: RefCell<Deferred> = const { RefCell::new(ManuallyDrop::new(VecDeque::new())) };
    static ASKED: RefCell<RequestedChecks<Check>> = const { RefCell::new(RequestedChecks::new()) };
}

impl PythonHost<'_> {
    fn try_locked(&self, op: &Py<DelayedOperation>) -> TryResult<PyErr> {
        let Some(lock) = op.get().lock(self.py) else {
            return self.try_complete(op).map_or_else(TryResult::Failed, |()| TryResult::Returned);
        };
        let is_taken = lock.call_method1(intern!(self.py, "acquire"), (false,)).and_then(|taken| taken.is_truthy());
        match is_taken {
            Err(error) => return TryResult::Failed(error),
            Ok(false) => return TryResult::Locked,
            Ok(true) => {}
        }
        let tried = self.try_complete(op);
        let released = lock.call_method0(intern!(self.py, "release"));
        match (tried, released) {
            (Ok(()), Ok(_)) => TryResult::Returned,
            (Err(error), Ok(_)) | (Ok(()), Err(error)) => TryResult::Failed(error),
            (Err(first), Err(second)) => {
                second.set_context(self.py, Some(first));
                TryResult::Failed(second)
            }
        }
    }

    fn try_complete(&self, op: &Py<DelayedOperation>) -> PyResult<()> {
        let said = op.bind(self.py).call_method0(intern!(self.py, "try_complete"))?;
        coroutines::check_method_result(&said, intern!(self.py, "try_complete"))?;
        if said.is_truthy()? && !op.get().state.is_completed() {
            let said = said.repr()?;
            return Err(PyRuntimeError::new_err(format!(
                "try_complete returned {said}, but the operation is not complete: return self.force_complete()"
            )));
        }
        Ok(())
    }
}

impl Locking<PyOperations> for PythonHost<'_> {
    fn lock<'a, T: Send>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        native_lock::lock(self.py, mutex)
    }

    fn clone_ref(&self, op: &Py<DelayedOperation>) -> Py<DelayedOperation> {
        op.clone_ref(self.py)
    }
}

impl Host<PyOperations> for PythonHost<'_> {
    type Error = PyErr;

    fn call_try_complete(&self, op: &Py<DelayedOperation>) -> TryResult<PyErr> {
        let attempt = self.try_locked(op);
        if let Err(forked) = op.get().check_process(self.py) {
            // The method forked, and this is the child.
            return TryResult::Failed(forked);
        }
        attempt
    }

    fn process(&self) -> u32 {
        self.epoch
    }

    fn is_same_process(&self) -> bool {
        self.epoch == fork_epoch()
    }

    fn arm(&self, setup: &PurgatorySetup, op: &Py<DelayedOperation>) -> PyResult<ArmedDeadline<PyOperations>> {
        if !setup.timer_enabled {
            return Ok(ArmedDeadline { deadline: self.current_deadline(op), now_us: self.now_us(setup) });
        }
        let task = op.bind(self.py).as_super();
        let delay = task.get().delay(self.py)?;
        let (when, mut context) = (When::AfterUs(delay.to_us()), self.context_of_add.take());
        let mut removed = self.removed.take();
        let added = task_adding::schedule(task, &setup.timer_ref, when, Room::IfAny, &mut context, &mut removed);
        // Dropped when the call is over: the operation's watch is locked here.
        removed.extend(context);
        self.removed.replace(removed);
        added.map(|now_us| ArmedDeadline { deadline: Some(()), now_us })
    }

    fn current_deadline(&self, op: &Py<DelayedOperation>) -> Option<()> {
        op.bind(self.py).as_super().get().timer_and_handle(self.py).map(drop)
    }

    fn disarm(
        &self,
        op: &Py<DelayedOperation>,
        _home: Option<&PurgatorySetup>,
        _deadline: Option<&()>,
    ) -> Option<RemovedTask> {
        // A claimed expiry completes its operation before any other thread gets the GIL (`engine::dispatch`), so an
        // open operation is not being expired. In a forked child the operation stays on the parent's timer.
        task_leaving::take_off(op.bind(self.py).as_super().get(), self.py).ok().flatten()
    }

    fn wait_begins(&self, _setup: &PurgatorySetup, op: &Py<DelayedOperation>) {
        op.get().wait_begins(self.py, self.waiter.take());
    }

    fn take_waiters(&self, op: &Py<DelayedOperation>) -> Option<Box<Waiters>> {
        op.get().take_waiters(self.py)
    }

    fn notify_taken_out(&self, setup: &PurgatorySetup, op: &Py<DelayedOperation>, waiters: Option<Box<Waiters>>) {
        self.call_waiters(Some(setup), op, waiters, None);
    }

    fn add_timer_check(&self, setup: &PurgatorySetup, check: TimerCheck<PyOperations>) -> PyResult<()> {
        let when = When::AfterUs(check.delay().as_micros() as u64);
        let check = Bound::new(self.py, LaterCheck(check))?.into_any();
        let task = task_adding::make_internal(self.py, &check)?;
        task_adding::schedule_internal(&task, &setup.timer_ref, when, Room::Always).map(drop)
    }

    fn yield_to_others(&self, rounds: u32) {
        if rounds > 0 {
            self.py.detach(|| (0..rounds.min(MAX_YIELDS)).for_each(|_| yield_now()));
        }
    }

    fn run_ending(&self, op: &Py<DelayedOperation>, cause: Cause, setup: Option<&PurgatorySetup>) {
        if op.get().check_process(self.py).is_err() {
            return; // a method forked, and this is the child
        }
        let call = |name: &Bound<'_, PyString>| {
            if let Err(error) = self.call_method(op, name) {
                self.report_failure(setup, op, Some(name), error);
            }
        };
        call(intern!(self.py, "on_complete"));
        if cause == Cause::Expiry && self.epoch == fork_epoch() {
            call(intern!(self.py, "on_expiration"));
        }
        self.call_waiters(setup, op, op.get().wait_ended(self.py, cause), Some(cause == Cause::Event));
    }

    fn defer_ending(&self, op: &Py<DelayedOperation>, cause: Cause, purgatory: Option<Arc<NativePurgatory>>) {
        let ending = (op.clone_ref(self.py), cause, purgatory, self.timer.map(Arc::clone));
        DEFERRED.with_borrow_mut(|deferred| deferred.push_back(ending));
    }

    fn run_deferred_endings(&self) {
        while let Some((op, cause, purgatory, timer)) = DEFERRED.with_borrow_mut(|deferred| deferred.pop_front()) {
            let host = PythonHost::of_timer(self.py, self.propagates).with_timer(timer.as_ref(), None);
            host.run_ending(&op, cause, purgatory.as_ref().map(|purgatory| &purgatory.environment));
            if let Some(exit) = host.exit.take() {
                self.keep_exit(exit);
            }
        }
        DEFERRED.with_borrow_mut(|deferred| deferred.shrink_to_fit());
    }

    type Check = Check;

    fn list_check(&self, purgatory: &Arc<NativePurgatory>, list: ListId) -> Check {
        (Arc::clone(purgatory), list)
    }

    fn run_check(&self, (purgatory, list): &Check, rounds: &mut Rounds) -> usize {
        purgatory.check_list(self, *list, rounds)
    }

    fn leave_to_timer(&self, (purgatory, list): &Check, requested_by: Option<usize>, fruitless_runs: u32) {
        purgatory.leave_to_timer(self, *list, requested_by, fruitless_runs);
    }

    fn requested_checks<T>(&self, f: impl FnOnce(&mut RequestedChecks<Check>) -> T) -> T {
        ASKED.with_borrow_mut(f)
    }

    fn report(&self, setup: &PurgatorySetup, op: &Py<DelayedOperation>, error: PyErr) {
        self.report_failure(Some(setup), op, Some(intern!(self.py, "try_complete")), error);
    }

    fn now_us(&self, setup: &PurgatorySetup) -> u64 {
        setup.core.timer.clock().now_us()
    }
}
