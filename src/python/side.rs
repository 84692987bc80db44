//! The purgatory's protocol from Python: locks are taken as `border` says, and the user's methods are called.
//!
//! All of it runs with the GIL held. Where the protocol calls `arm` and `disarm` a native lock is held too, and they run
//! no Python code.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;

use super::border::{self, OfProcess, Own};
use super::callees::{Callee, OnError};
use super::errors;
use super::fork::fork_epoch;
use super::keys::{Key, KeyHasher, Keys};
use super::operation::{DelayedOperation, Told};
use super::report::{self, Failure};
use super::run;
use super::share::Share;
use super::shared::Shared;
use super::task::{Remains, TimerTask};
use crate::purgatory::{
    self, Armed, Asked, Attempt, Cause, Disarmed, Host, Kind, Life, ListName, MOST_YIELDS, Purgatory, PutOff, Rounds,
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
    /// How many checks of its operations were put off and have not been dropped: each refers to the purgatory.
    pub(super) put_off: AtomicU64,
}

/// Whether only the purgatory's object, what waits in it and checks that were put off hold it.
pub(super) fn is_quiet(core: &Arc<Core>) -> bool {
    Core::is_quiet(core, core.home.put_off.load(Ordering::Relaxed))
}

impl Kind for PyOperations {
    type Key = Key;
    type Hashing = BuildHasherDefault<KeyHasher>;
    /// The GIL lets one thread at a time come here.
    const SHARDS: usize = 1;
    type Op = Py<DelayedOperation>;
    /// Where it is on the timer the task itself knows.
    type Deadline = ();
    type Remains = Remains;
    type Waiters = Option<Box<Told>>;
    type Home = Home;

    fn life(op: &Py<DelayedOperation>) -> &Life<Self> {
        &op.get().life
    }
}

impl OfProcess for Core {
    fn epoch(&self) -> u32 {
        self.home.shared.epoch()
    }
}

/// An ending that has to wait for the outermost try.
type Deferred = (Py<DelayedOperation>, Cause, Option<Arc<Core>>);

/// A check that was asked for inside a try.
pub(super) type Check = (Arc<Core>, ListName);

thread_local! {
    static DEFERRED: RefCell<VecDeque<Deferred>> = const { RefCell::new(VecDeque::new()) };
    static ASKED: RefCell<Asked<Check>> = const { RefCell::new(Asked::new()) };
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
}

impl<'py> Side<'py> {
    pub(super) fn new(py: Python<'py>) -> Self {
        Self::of_timer(py, true)
    }

    /// Where a timer calls: not every one has somebody who would get an exit.
    pub(super) fn of_timer(py: Python<'py>, propagates: bool) -> Self {
        Self { py, epoch: fork_epoch(), exit: RefCell::new(None), propagates, waiter: RefCell::new(None) }
    }

    /// For a watching call that has the waiter told how the wait ends.
    pub(super) fn with_waiter(py: Python<'py>, waiter: &Bound<'py, PyAny>) -> Self {
        let side = Self::new(py);
        side.waiter.replace(Some(waiter.clone().unbind()));
        side
    }

    /// Calls what waits for an operation.
    fn tell_waiters(&self, home: Option<&Home>, op: &Py<DelayedOperation>, told: Option<Box<Told>>, how: Option<bool>) {
        let Some(told) = told else { return };
        for waiter in &told.waiters {
            if let Err(error) = waiter.call1(self.py, (how,)) {
                self.tell(home, told.on_error.as_ref().map(|on_error| on_error.clone_ref(self.py)), op, error);
            }
        }
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

    /// Tells of an error that the caller does not see (P8). `on_error`: the operation's own reference to that of its
    /// purgatory, which has let go of it if its object is gone.
    fn tell(&self, home: Option<&Home>, on_error: Option<Callee>, op: &Py<DelayedOperation>, error: PyErr) {
        if self.epoch != fork_epoch() {
            return; // a method forked, and this is the child: `over` says so
        }
        if self.propagates && run::is_exit(self.py, &error) {
            self.keep_exit(error);
            return;
        }
        let task = op.bind(self.py).as_any();
        let failure = match home {
            Some(home) => {
                let of_timer = Failure::of(&home.shared, task, error);
                let of_home = home.on_error.callee(self.py).or(on_error);
                let of_home = home.has_on_error.then(|| of_home.and_then(|callee| callee.whole(self.py)));
                Failure { on_error: of_home.unwrap_or_else(|| home.shared.on_error(self.py)), ..of_timer }
            }
            None => Failure { timer: None, event_loop: None, on_error: None, task, callback: None, error },
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

    fn try_locked(&self, op: &Py<DelayedOperation>) -> Attempt<PyErr> {
        let Some(lock) = op.get().lock.get() else {
            return self.try_complete(op).map_or_else(Attempt::Failed, |()| Attempt::Ran);
        };
        let lock = lock.bind(self.py);
        let is_taken = lock.call_method1(intern!(self.py, "acquire"), (false,)).and_then(|taken| taken.is_truthy());
        match is_taken {
            Err(error) => return Attempt::Failed(error),
            Ok(false) => return Attempt::Locked,
            Ok(true) => {}
        }
        let tried = self.try_complete(op);
        let released = lock.call_method0(intern!(self.py, "release"));
        tried.and(released.map(drop)).map_or_else(Attempt::Failed, |()| Attempt::Ran)
    }

    fn try_complete(&self, op: &Py<DelayedOperation>) -> PyResult<()> {
        let said = op.bind(self.py).call_method0(intern!(self.py, "try_complete"))?;
        if said.is_truthy()? && !op.get().life.is_completed() {
            let said = said.repr()?;
            return Err(PyRuntimeError::new_err(format!(
                "try_complete returned {said}, but the operation is not complete: return self.force_complete()"
            )));
        }
        Ok(())
    }
}

impl Host<PyOperations> for Side<'_> {
    type Error = PyErr;

    fn lock<'a, T: Send>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        border::lock(self.py, mutex)
    }

    fn share(&self, op: &Py<DelayedOperation>) -> Py<DelayedOperation> {
        op.clone_ref(self.py)
    }

    fn attempt(&self, op: &Py<DelayedOperation>) -> Attempt<PyErr> {
        let attempt = self.try_locked(op);
        if let Err(forked) = op.get().check_process(self.py) {
            // The method forked, and this is the child.
            return Attempt::Failed(forked);
        }
        attempt
    }

    fn process(&self) -> u32 {
        self.epoch
    }

    fn is_here(&self) -> bool {
        self.epoch == fork_epoch()
    }

    fn arm(&self, home: &Home, op: &Py<DelayedOperation>) -> PyResult<Armed<PyOperations>> {
        if !home.timer_enabled {
            return Ok(Armed { deadline: self.deadline(op), now_us: self.now_us(home) });
        }
        let task = op.bind(self.py).as_super();
        let delay = task.get().delay(self.py)?;
        let now_us = TimerTask::schedule_with(task, &home.share, When::AfterUs(delay.to_us()), Room::IfAny)?;
        Ok(Armed { deadline: Some(()), now_us })
    }

    fn deadline(&self, op: &Py<DelayedOperation>) -> Option<()> {
        op.bind(self.py).as_super().get().on(self.py).map(drop)
    }

    fn disarm(&self, op: &Py<DelayedOperation>, _home: Option<&Home>, _deadline: Option<&()>) -> Disarmed<Remains> {
        // A claimed one is complete before any other thread gets the GIL (see `run`), so what is open is not being expired.
        // In a forked child there is nothing to take it off.
        let taken = op.bind(self.py).as_super().get().taken_off(self.py);
        taken.ok().flatten().map_or(Disarmed::WasNot, Disarmed::WasOn)
    }

    fn begins(&self, home: &Home, op: &Py<DelayedOperation>) {
        op.get().begins(self.py, self.waiter.take(), home.on_error.callee(self.py));
    }

    fn take_waiters(&self, op: &Py<DelayedOperation>) -> Option<Box<Told>> {
        op.get().take_told(self.py)
    }

    fn tell_taken_out(&self, home: &Home, op: &Py<DelayedOperation>, told: Option<Box<Told>>) {
        self.tell_waiters(Some(home), op, told, None);
    }

    fn check_later(&self, purgatory: &Arc<Core>, op: &Py<DelayedOperation>, tries: u32) -> PyResult<()> {
        let put_off = PutOff::new(op.clone_ref(self.py), tries);
        let check = Bound::new(self.py, CheckAgain::new(purgatory, put_off))?.into_any();
        let delay = purgatory::put_off_for(tries);
        let task = TimerTask::internal(self.py, &check)?;
        let when = When::AfterUs(delay.as_micros() as u64);
        TimerTask::schedule_with(&task, &purgatory.home.share, when, Room::Always).map(drop)
    }

    fn give_way(&self, rounds: u32) {
        if rounds > 0 {
            self.py.detach(|| (0..rounds.min(MOST_YIELDS)).for_each(|_| yield_now()));
        }
    }

    fn end(&self, op: &Py<DelayedOperation>, cause: Cause, home: Option<&Home>) {
        if op.get().check_process(self.py).is_err() {
            return; // a method forked, and this is the child
        }
        let object = op.bind(self.py);
        let call = |name| {
            if let Err(error) = object.call_method0(name) {
                self.tell(home, op.get().on_error(self.py), op, error);
            }
        };
        call(intern!(self.py, "on_complete"));
        if cause == Cause::Expiry && self.epoch == fork_epoch() {
            call(intern!(self.py, "on_expiration"));
        }
        self.tell_waiters(home, op, op.get().ended(self.py, cause), Some(cause == Cause::Event));
    }

    fn defer(&self, op: &Py<DelayedOperation>, cause: Cause, purgatory: Option<Arc<Core>>) {
        DEFERRED.with_borrow_mut(|deferred| deferred.push_back((op.clone_ref(self.py), cause, purgatory)));
    }

    fn end_deferred(&self) {
        while let Some((op, cause, purgatory)) = DEFERRED.with_borrow_mut(VecDeque::pop_front) {
            self.end(&op, cause, purgatory.as_ref().map(|purgatory| &purgatory.home));
        }
    }

    type Check = Check;

    fn check_of(&self, purgatory: &Arc<Core>, list: ListName) -> Check {
        (Arc::clone(purgatory), list)
    }

    fn make(&self, (purgatory, list): &Check, rounds: &mut Rounds) -> usize {
        purgatory.pass(self, *list, rounds)
    }

    fn asked<T>(&self, f: impl FnOnce(&mut Asked<Check>) -> T) -> T {
        ASKED.with_borrow_mut(f)
    }

    fn report(&self, home: &Home, op: &Py<DelayedOperation>, error: PyErr) {
        self.tell(Some(home), op.get().on_error(self.py), op, error);
    }

    fn now_us(&self, home: &Home) -> u64 {
        home.shared.timer.clock().now_us()
    }
}

/// A check that was put off, as a stranger held the operation's lock.
#[pyclass(frozen, module = "tickwheel._native")]
struct CheckAgain {
    purgatory: Own<Core>,
    put_off: PutOff<PyOperations>,
}

impl CheckAgain {
    fn new(purgatory: &Arc<Core>, put_off: PutOff<PyOperations>) -> Self {
        purgatory.home.put_off.fetch_add(1, Ordering::Relaxed);
        Self { purgatory: Own::new(Arc::clone(purgatory)), put_off }
    }
}

impl Drop for CheckAgain {
    fn drop(&mut self) {
        self.purgatory.home.put_off.fetch_sub(1, Ordering::Relaxed);
    }
}

#[pymethods]
impl CheckAgain {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let side = Side::of_timer(py, run::propagates());
        // A share of its own: while it checks, the purgatory is in use.
        self.purgatory.share().check_again(&side, &self.put_off);
        side.over(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.put_off.op)
    }

    /// What a list of pending tasks shows.
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<check again {}>", self.put_off.op.bind(py).repr()?))
    }
}
