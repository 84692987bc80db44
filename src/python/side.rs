//! The purgatory's protocol from Python: locks are taken as `border` says, and the user's methods are called.
//!
//! All of it runs with the GIL held. Where the protocol calls `arm` and `disarm` a native lock is held too, and they run
//! no Python code.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::BuildHasherDefault;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::border::{self, OfProcess, Own};
use super::contexts;
use super::coroutines;
use super::errors;
use super::fork::fork_epoch;
use super::kept::intern;
use super::keys::{Key, KeyHasher, Keys};
use super::on_error::{Callee, OnError};
use super::operation::{DelayedOperation, Told};
use super::report::{self, Failure};
use super::run;
use super::share::Share;
use super::shared::Shared;
use super::task::{Remains, TimerTask};
use crate::purgatory::{
    ArmedDeadline, Cause, Host, ListId, Locking, MAX_YIELDS, OperationKind, OperationState, OperationTypes, Purgatory,
    RequestedChecks, Rounds, TimerCheck, TryResult,
};
use crate::state::{Room, When};
use crate::sync::{Mutex, MutexGuard, yield_now};

/// Operations that are Python objects.
pub(super) struct PyOperations;

pub(super) type Core = Purgatory<PyOperations>;

/// What surrounds a Python purgatory.
pub(super) struct Home {
    pub(super) name: String,
    pub(super) shared: Own<Shared>,
    pub(super) share: Py<Share>,
    pub(super) timer_enabled: bool,
    pub(super) on_error: OnError,
    /// Whether it was given an `on_error`; by default the timer's is used.
    pub(super) has_on_error: bool,
    pub(super) keys: Arc<Keys>,
}

impl OperationTypes for PyOperations {
    type Key = Key;
    type BuildKeyHasher = BuildHasherDefault<KeyHasher>;
    /// The GIL lets one thread at a time come here.
    const SHARDS: usize = 1;
    type Op = Py<DelayedOperation>;
    /// Where it is on the timer the task itself knows.
    type Deadline = ();
    type DisarmedDeadline = Remains;
    type Waiters = Option<Box<Told>>;
    type Environment = Home;
}

impl OperationKind for PyOperations {
    fn state(op: &Py<DelayedOperation>) -> &OperationState<Self> {
        &op.get().state
    }
}

impl OfProcess for Core {
    fn epoch(&self) -> u32 {
        self.environment.shared.epoch()
    }
}

/// An ending that has to wait for the outermost try.
type Ending = (Py<DelayedOperation>, Cause, Option<Arc<Core>>, Option<Arc<Shared>>);
/// Without a destructor, as in `purgatory::in_progress`. It holds no memory when it is empty.
type Deferred = ManuallyDrop<VecDeque<Ending>>;

/// A check that was asked for inside a try.
pub(super) type Check = (Arc<Core>, ListId);

thread_local! {
    static DEFERRED: RefCell<Deferred> = const { RefCell::new(ManuallyDrop::new(VecDeque::new())) };
    static ASKED: RefCell<RequestedChecks<Check>> = const { RefCell::new(RequestedChecks::new()) };
}

/// One call into the protocol.
pub(super) struct Side<'py> {
    py: Python<'py>,
    /// The process it was made in.
    epoch: u32,
    /// A `KeyboardInterrupt` or `SystemExit`, kept until the call is over, so that nothing is left half done.
    exit: RefCell<Option<PyErr>>,
    /// Whether the caller gets it.
    propagates: bool,
    /// What a watching call is to tell of the end.
    waiter: RefCell<Option<Py<PyAny>>>,
    /// The context of a watching call, for the deadline that it sets.
    context_of_add: RefCell<Option<Py<PyAny>>>,
    /// What setting the deadline let go of, to be dropped without a lock.
    removed: RefCell<Vec<Py<PyAny>>>,
    /// The timer that an operation is on which is in no purgatory: what it raises goes there.
    timer: Option<&'py Arc<Shared>>,
    /// What the ending is to run in.
    context: Option<&'py Py<PyAny>>,
}

impl<'py> Side<'py> {
    pub(super) fn new(py: Python<'py>) -> Self {
        Self::of_timer(py, true)
    }

    /// Where a timer calls: not every one has somebody who would get an exit.
    pub(super) fn of_timer(py: Python<'py>, propagates: bool) -> Self {
        Self {
            py,
            epoch: fork_epoch(),
            exit: RefCell::new(None),
            propagates,
            waiter: RefCell::new(None),
            context_of_add: RefCell::new(None),
            removed: RefCell::default(),
            timer: None,
            context: None,
        }
    }

    /// For an operation that is on this timer, by an add with this context.
    pub(super) fn with_timer(self, timer: Option<&'py Arc<Shared>>, context: Option<&'py Py<PyAny>>) -> Self {
        Self { timer, context, ..self }
    }

    /// For a watching call that has the waiter told how the wait ends.
    pub(super) fn with_waiter(py: Python<'py>, waiter: &Bound<'py, PyAny>) -> Self {
        let side = Self::new(py);
        side.waiter.replace(Some(waiter.clone().unbind()));
        side
    }

    /// The deadline that this watching call sets runs in this context.
    pub(super) fn set_context(&self, context: Option<Py<PyAny>>) {
        self.context_of_add.replace(context);
    }

    /// Calls what waits for an operation.
    fn tell_waiters(&self, home: Option<&Home>, op: &Py<DelayedOperation>, told: Option<Box<Told>>, how: Option<bool>) {
        let Some(told) = told else { return };
        for waiter in &told.waiters {
            if let Err(error) = waiter.call1(self.py, (how,)) {
                let on_error = told.on_error.as_ref().map(|on_error| on_error.clone_ref(self.py));
                self.tell((home, on_error), op, None, error);
            }
        }
    }

    /// Calls a method of an operation that ends.
    fn call_method(&self, op: &Py<DelayedOperation>, name: &Bound<'_, PyString>) -> PyResult<()> {
        let op = op.bind(self.py);
        let returned = match self.context {
            None => op.call_method0(name),
            Some(_) => contexts::call(self.context, &op.getattr(name)?, None),
        };
        coroutines::check_method(&returned?, name)
    }

    pub(super) fn exits(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// The call's result, unless it is to be left by an exit.
    pub(super) fn over<T>(self, result: T) -> PyResult<T> {
        self.check().map(|()| result)
    }

    /// The call is over: whether it is to be left by an exit.
    pub(super) fn check(&self) -> PyResult<()> {
        match self.exit.take() {
            Some(exit) => Err(exit),
            None if self.epoch == fork_epoch() => Ok(()),
            // A method forked, and this is the child.
            None => Err(errors::operation_forked(self.py)),
        }
    }

    /// Tells of an error that the caller does not see (P8). With the home comes the operation's own reference to the
    /// `on_error` of its purgatory, which has let go of it if its object is gone.
    fn tell(
        &self,
        (home, on_error): (Option<&Home>, Option<Callee>),
        op: &Py<DelayedOperation>,
        method: Option<&Bound<'_, PyString>>,
        error: PyErr,
    ) {
        if self.epoch != fork_epoch() {
            return; // a method forked, and this is the child: `over` says so
        }
        if self.propagates && run::is_exit(self.py, &error) {
            self.keep_exit(error);
            return;
        }
        let task = op.bind(self.py).as_any();
        let method = method.map(ToString::to_string);
        let method = method.as_deref();
        let failure = match home {
            Some(home) => {
                let of_timer = Failure::of(&home.shared, task, error);
                let own = || home.on_error.get(self.py, false).or_else(|| on_error?.whole(self.py));
                let of_home = home.has_on_error.then(own);
                let on_error = of_home.unwrap_or_else(|| home.shared.on_error(self.py));
                Failure { on_error, purgatory: Some(&home.name), method, ..of_timer }
            }
            None => match self.timer {
                Some(timer) => Failure { method, ..Failure::of(timer, task, error) },
                None => Failure { method, ..Failure::of_none(task, error) },
            },
        };
        if let Err(exit) = report::report(self.py, &failure, self.propagates) {
            self.keep_exit(exit);
        }
    }

    fn keep_exit(&self, exit: PyErr) {
        let earlier = self.exit.take();
        if earlier.is_some() {
            exit.set_context(self.py, earlier);
        }
        self.exit.replace(Some(exit));
    }

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
        coroutines::check_method(&said, intern!(self.py, "try_complete"))?;
        if said.is_truthy()? && !op.get().state.is_completed() {
            let said = said.repr()?;
            return Err(PyRuntimeError::new_err(format!(
                "try_complete returned {said}, but the operation is not complete: return self.force_complete()"
            )));
        }
        Ok(())
    }
}

impl Locking<PyOperations> for Side<'_> {
    fn lock<'a, T: Send>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        border::lock(self.py, mutex)
    }

    fn clone_ref(&self, op: &Py<DelayedOperation>) -> Py<DelayedOperation> {
        op.clone_ref(self.py)
    }
}

impl Host<PyOperations> for Side<'_> {
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

    fn arm(&self, home: &Home, op: &Py<DelayedOperation>) -> PyResult<ArmedDeadline<PyOperations>> {
        if !home.timer_enabled {
            return Ok(ArmedDeadline { deadline: self.current_deadline(op), now_us: self.now_us(home) });
        }
        let task = op.bind(self.py).as_super();
        let delay = task.get().delay(self.py)?;
        let (when, mut context) = (When::AfterUs(delay.to_us()), self.context_of_add.take());
        let mut removed = self.removed.take();
        let added = TimerTask::schedule_in(task, &home.share, when, Room::IfAny, &mut context, &mut removed);
        // Dropped when the call is over: the operation's watch is locked here.
        removed.extend(context);
        self.removed.replace(removed);
        added.map(|now_us| ArmedDeadline { deadline: Some(()), now_us })
    }

    fn current_deadline(&self, op: &Py<DelayedOperation>) -> Option<()> {
        op.bind(self.py).as_super().get().on(self.py).map(drop)
    }

    fn disarm(&self, op: &Py<DelayedOperation>, _home: Option<&Home>, _deadline: Option<&()>) -> Option<Remains> {
        // A claimed one is complete before any other thread gets the GIL (see `run`), so what is open is not being expired.
        // In a forked child there is nothing to take it off.
        op.bind(self.py).as_super().get().taken_off(self.py).ok().flatten()
    }

    fn wait_begins(&self, home: &Home, op: &Py<DelayedOperation>) {
        op.get().begins(self.py, self.waiter.take(), home.on_error.callee(self.py));
    }

    fn take_waiters(&self, op: &Py<DelayedOperation>) -> Option<Box<Told>> {
        op.get().take_told(self.py)
    }

    fn notify_taken_out(&self, home: &Home, op: &Py<DelayedOperation>, told: Option<Box<Told>>) {
        self.tell_waiters(Some(home), op, told, None);
    }

    fn add_timer_check(&self, home: &Home, check: TimerCheck<PyOperations>) -> PyResult<()> {
        let when = When::AfterUs(check.delay().as_micros() as u64);
        let check = Bound::new(self.py, CheckLater(check))?.into_any();
        let task = TimerTask::internal(self.py, &check)?;
        TimerTask::schedule_with(&task, &home.share, when, Room::Always).map(drop)
    }

    fn yield_to_others(&self, rounds: u32) {
        if rounds > 0 {
            self.py.detach(|| (0..rounds.min(MAX_YIELDS)).for_each(|_| yield_now()));
        }
    }

    fn run_ending(&self, op: &Py<DelayedOperation>, cause: Cause, home: Option<&Home>) {
        if op.get().check_process(self.py).is_err() {
            return; // a method forked, and this is the child
        }
        let call = |name: &Bound<'_, PyString>| {
            if let Err(error) = self.call_method(op, name) {
                self.tell((home, op.get().on_error(self.py)), op, Some(name), error);
            }
        };
        call(intern!(self.py, "on_complete"));
        if cause == Cause::Expiry && self.epoch == fork_epoch() {
            call(intern!(self.py, "on_expiration"));
        }
        self.tell_waiters(home, op, op.get().ended(self.py, cause), Some(cause == Cause::Event));
    }

    fn defer_ending(&self, op: &Py<DelayedOperation>, cause: Cause, purgatory: Option<Arc<Core>>) {
        let ending = (op.clone_ref(self.py), cause, purgatory, self.timer.map(Arc::clone));
        DEFERRED.with_borrow_mut(|deferred| deferred.push_back(ending));
    }

    fn run_deferred_endings(&self) {
        while let Some((op, cause, purgatory, timer)) = DEFERRED.with_borrow_mut(|deferred| deferred.pop_front()) {
            let side = Side::of_timer(self.py, self.propagates).with_timer(timer.as_ref(), None);
            side.run_ending(&op, cause, purgatory.as_ref().map(|purgatory| &purgatory.environment));
            if let Some(exit) = side.exit.take() {
                self.keep_exit(exit);
            }
        }
        DEFERRED.with_borrow_mut(|deferred| deferred.shrink_to_fit());
    }

    type Check = Check;

    fn list_check(&self, purgatory: &Arc<Core>, list: ListId) -> Check {
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

    fn report(&self, home: &Home, op: &Py<DelayedOperation>, error: PyErr) {
        self.tell((Some(home), op.get().on_error(self.py)), op, Some(intern!(self.py, "try_complete")), error);
    }

    fn now_us(&self, home: &Home) -> u64 {
        home.shared.timer.clock().now_us()
    }
}

/// Checks for later, as a task of a timer.
#[pyclass(frozen, module = "tickwheel._native")]
pub(super) struct CheckLater(TimerCheck<PyOperations>);

#[pymethods]
impl CheckLater {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let side = Side::of_timer(py, run::propagates());
        self.0.run(&side);
        side.over(())
    }

    /// The collector clears the task that refers to this.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(self.0.operation())
    }
}

/// The executor refused a task of the library's own: its error is reported as that of an operation, and the callers never
/// see the task.
pub(super) fn refused(py: Python<'_>, task: &Bound<'_, PyAny>, error: PyErr) {
    let callback = task.cast::<TimerTask>().ok().and_then(|task| task.get().callback(py));
    if let Some(Ok(check)) = callback.as_ref().map(|callback| callback.bind(py).cast::<CheckLater>()) {
        check.get().0.refuse(&Side::of_timer(py, false), error);
    }
}
