//! What a Python timer, its tasks and its threads share.
//!
//! Tasks in the native timer are strong references to `TimerTask` or `TaskBatch`: a pending task is alive because its
//! timer is. What of this the garbage collector sees is in `docs/concurrency.md` (border rule 8).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::executor::Released;
use crate::python::core::callees::{Callees, Uses};
use crate::python::engine::dispatch::Line;
use crate::python::operations::operation;
use crate::python::operations::operation_protocol;
use crate::python::scheduled::batch::TaskBatch;
use crate::python::scheduled::task::TimerTask;
use crate::python::tools::errors;
use crate::python::tools::fork::fork_epoch;
use crate::python::tools::gil_cell::GilCell;
use crate::python::tools::native_lock::{self, OfProcess};
use crate::python::values::report::{self, Failure};
use crate::state::{Pending, State};
use crate::sync::{JoinHandle, MutexGuard, PlainMutex, Sender};
use crate::timer::Timer as Core;
use crate::wheel::Handle;

/// The tag of an entry that is a task of its own; any other tag is an index in a batch.
pub(crate) const NO_INDEX: u32 = u32::MAX;

/// How long a wait goes on before it looks whether Ctrl-C was pressed.
pub(crate) const SLICE_US: u64 = 50_000;

pub(crate) type Task = Py<PyAny>;

pub(crate) struct Shared {
    pub(crate) timer: Arc<Core<Task>>,
    pub(crate) name: String,
    pub(crate) driver: Driver,
    pub(crate) callees: Callees,
    epoch: u32,
    pub(crate) threads: Threads,
    /// Where an asyncio loop is the executor: what one of its turns left to the next, in order.
    pub(crate) backlog: GilCell<VecDeque<Line>>,
}

/// What moves a timer on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    /// A native thread.
    Reaper,
    /// The callers of `advance_clock`; released tasks go to the worker.
    Caller,
    /// The callers of a `ManualTimer`, which run the callbacks too.
    Manual,
}

/// The threads of a `SystemTimer`; a `ManualTimer` has none.
#[derive(Default)]
pub(crate) struct Threads {
    pub(crate) reaper: PlainMutex<Option<JoinHandle<()>>>,
    /// The worker ends when this and the reaper's copy are gone.
    pub(crate) queue: PlainMutex<Option<Sender<Released>>>,
    /// A `threading.Thread`.
    pub(crate) worker: GilCell<Option<Py<PyAny>>>,
    /// Held by the one caller of `advance_clock` who waits.
    pub(crate) driving: PlainMutex<()>,
}

/// A task, or timers of a batch, that the executor refused.
struct Refused {
    task: Task,
    callback: Option<Py<PyAny>>,
    /// Of the batch.
    indices: Vec<u32>,
}

impl OfProcess for Shared {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

impl Shared {
    pub(crate) fn new(timer: Core<Task>, name: String, driver: Driver, callees: Callees) -> Self {
        Self {
            timer: Arc::new(timer),
            name,
            driver,
            callees,
            epoch: fork_epoch(),
            threads: Threads::default(),
            backlog: GilCell::default(),
        }
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.epoch != fork_epoch()
    }

    /// What an error calls it that names another timer too: both may have the same name.
    pub(crate) fn other_than(&self, other: &Self) -> String {
        let another = if self.name == other.name { "another timer that is named" } else { "timer" };
        format!("{another} '{}'", self.name)
    }

    /// Read before any lock: in a forked child it may be held by a thread that is not there (border rule 7).
    pub(crate) fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_forked() {
            return Err(errors::forked(py, &self.name));
        }
        Ok(())
    }

    /// All that is pending, under the lock.
    pub(crate) fn lock<'a>(&'a self, py: Python<'_>) -> PyResult<MutexGuard<'a, State<Task>>> {
        self.check_process(py)?;
        Ok(self.state(py))
    }

    /// As [`Shared::lock`], for a caller that knows that the timer is of this process.
    #[inline]
    pub(crate) fn state<'a>(&'a self, py: Python<'_>) -> MutexGuard<'a, State<Task>> {
        self.timer.state().try_lock().unwrap_or_else(|| self.wait_for_state(py))
    }

    #[cold]
    fn wait_for_state<'a>(&'a self, py: Python<'_>) -> MutexGuard<'a, State<Task>> {
        let _outside = self.callees.enter_outside(py);
        native_lock::lock(py, self.timer.state())
    }

    /// Whether it never shows what is pending: then a plain task is spared the collector's lists while it is pending.
    #[inline]
    pub(crate) fn hides_pending(&self) -> bool {
        self.driver == Driver::Reaper
    }

    /// Runs `f` without the GIL. Every use of the native timer without the GIL goes through here (border rule 8).
    pub(crate) fn detach<R: Send>(&self, py: Python<'_>, f: impl FnOnce() -> R + Send) -> R {
        let _outside = self.callees.enter_outside(py);
        py.detach(f)
    }

    /// For the garbage collector: the timer's lock, if all that is owed is pending there, and only a call of the timer could
    /// change that. The same answer throughout a collection; `docs/concurrency.md` says why.
    fn idle_state(&self, uses: Uses) -> Option<MutexGuard<'_, State<Task>>> {
        if self.hides_pending() || self.is_forked() || uses.outside > 0 {
            return None;
        }
        let state = self.timer.state().try_lock()?;
        let pending = match self.driver {
            // There is no worker: what was released waits for the next call.
            Driver::Manual => state.schedule.wheel.slab.len(),
            _ => state.schedule.len(),
        };
        (pending == uses.owed).then_some(state)
    }

    /// Shows the garbage collector what the timer refers to, as far as only calls of the timer can use it.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let uses = self.callees.uses_seen(visit);
        if uses.owed == 0 {
            return self.callees.visit(visit);
        }
        let Some(state) = self.idle_state(uses) else { return Ok(()) };
        self.callees.visit(visit)?;
        // Each entry is a reference of its own, those of one batch too.
        let pages = (0..).map_while(|page| state.schedule.page(page));
        pages.flatten().try_for_each(|(_, _, task)| visit.call(task))
    }

    /// The collector clears the `Timer` object. That may be garbage while the timer still owes a call: then the timer keeps
    /// what it has not shown.
    pub(crate) fn clear(&self, py: Python<'_>) {
        let uses = self.callees.uses(py);
        let lets_go = uses.owed == 0 || self.idle_state(uses).is_some();
        self.callees.clear(py, lets_go);
    }

    pub(crate) fn error(&self, py: Python<'_>, error: &crate::error::Error) -> PyErr {
        errors::from_core(py, &self.name, error)
    }

    /// What failures of callbacks go to; `None` also if the collector is about to clear it.
    pub(crate) fn on_error<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let is_hidden = self.hides_pending() && self.callees.uses(py).owed > 0;
        self.callees.on_error(py, is_hidden)
    }

    /// Takes tasks out that the executor refused, and tells the user once for each, or once for those of a batch that come
    /// together. `cause`: what the executor raised.
    pub(crate) fn reject(&self, py: Python<'_>, handles: &[Handle], why: &str, cause: Option<&PyErr>) {
        let mut refused: Vec<Refused> = Vec::new();
        for handle in handles {
            let Ok(mut state) = self.lock(py) else { return };
            let tag = state.schedule.peek(*handle).map_or(NO_INDEX, |(_, tag)| tag);
            let task = state.refuse(*handle);
            self.timer.settle(state);
            let Some(task) = task else { continue };
            if TimerTask::is_internal(task.bind(py)) {
                forget(py, &task, *handle);
                operation_protocol::refused(py, task.bind(py), self.rejected(py, why, Vec::new(), cause));
                self.callees.settle(py, 1);
                continue;
            }
            let callback = report::callback_of(task.bind(py));
            forget(py, &task, *handle);
            operation::sync_deadline(py, task.bind(py));
            if let Some(last) = refused.last_mut().filter(|last| tag != NO_INDEX && last.task.is(&task)) {
                last.indices.push(tag);
            } else {
                let indices = if tag == NO_INDEX { Vec::new() } else { vec![tag] };
                refused.push(Refused { task, callback, indices });
            }
        }
        for Refused { task, callback, indices } in refused {
            let count = indices.len().max(1);
            let error = self.rejected(py, why, indices, cause);
            let failure = Failure { callback: callback.as_ref(), ..Failure::of(self, task.bind(py), error) };
            // Nothing is propagated: there is no caller.
            let _ = report::report(py, &failure, false);
            self.callees.settle(py, count); // after the report, which may need `on_error`
        }
    }

    fn rejected(&self, py: Python<'_>, why: &str, indices: Vec<u32>, cause: Option<&PyErr>) -> PyErr {
        let error = errors::rejected(py, &self.name, why, indices);
        error.set_cause(py, cause.map(|cause| cause.clone_ref(py)));
        error
    }

    /// Accepts no more, joins the reaper, and lets the worker end once it has nothing left. Does not wait for callbacks.
    pub(crate) fn end_threads(&self, py: Python<'_>) {
        self.detach(py, || {
            self.timer.close();
            if let Some(reaper) = self.threads.reaper.lock().take() {
                // A reaper that panicked has said so already.
                let _ = reaper.join();
            }
            self.threads.queue.lock().take();
        });
    }

    /// Waits until nothing is released or running, at the longest to `limit_us`, looking for Ctrl-C now and then.
    pub(crate) fn wait_idle(&self, py: Python<'_>, limit_us: u64) -> PyResult<bool> {
        let clock = self.timer.clock();
        loop {
            let left_us = limit_us.saturating_sub(clock.now_us());
            let slice = Duration::from_micros(left_us.min(SLICE_US));
            if self.detach(py, || self.timer.wait_idle(Some(slice))) {
                return Ok(true);
            }
            if left_us <= SLICE_US {
                return Ok(false);
            }
            self.check_signals(py)?;
        }
    }

    /// Runs signal handlers, if this is the main thread. Errors: what a handler raises; `TimerForked` in a child that it forked.
    pub(crate) fn check_signals(&self, py: Python<'_>) -> PyResult<()> {
        py.check_signals()?;
        self.check_process(py)
    }

    /// Takes out all that is left, detached, and lets the tasks know.
    pub(crate) fn drain(&self, py: Python<'_>) -> Vec<Pending<Task>> {
        self.forget_all(py, self.detach(py, || self.timer.drain()))
    }

    /// As [`Shared::drain`], but leaves what was released to the executor.
    fn drain_unreleased(&self, py: Python<'_>) -> Vec<Pending<Task>> {
        self.forget_all(py, self.detach(py, || self.timer.drain_unreleased()))
    }

    fn forget_all(&self, py: Python<'_>, drained: Vec<Pending<Task>>) -> Vec<Pending<Task>> {
        for pending in &drained {
            forget(py, &pending.task, pending.handle);
            operation::sync_deadline(py, pending.task.bind(py));
        }
        self.callees.settle(py, drained.len());
        drained
    }

    /// The `Timer` object is gone. A timer with a reaper lives until it is empty. Without one nothing more can come due: what
    /// was released to the worker still runs, the rest is dropped.
    pub(crate) fn abandon(&self, py: Python<'_>) {
        match self.driver {
            Driver::Reaper => self.detach(py, || {
                self.timer.abandon();
                self.threads.queue.lock().take();
            }),
            Driver::Caller => {
                self.end_threads(py);
                drop(self.drain_unreleased(py));
            }
            Driver::Manual => {
                self.detach(py, || self.timer.close());
                drop(self.drain(py));
            }
        }
        self.callees.unhold(py);
    }
}

/// A task was taken out of its slot, and is not to be run.
pub(crate) fn forget(py: Python<'_>, task: &Task, handle: Handle) {
    let task = task.bind(py);
    if let Ok(task) = task.cast::<TimerTask>() {
        TimerTask::was_taken_out(task, handle);
    } else if let Ok(batch) = task.cast::<TaskBatch>() {
        batch.get().left_timer(py, 1);
    }
}

/// How a task appears where tasks are listed: itself, or `(batch, index)` (T18).
pub(crate) fn listed<'py>(py: Python<'py>, task: &Task, tag: u32) -> PyResult<Bound<'py, PyAny>> {
    if tag == NO_INDEX {
        return Ok(task.bind(py).clone());
    }
    Ok((task, tag).into_pyobject(py)?.into_any())
}

thread_local! {
    /// The timers whose callbacks run on this thread, by address.
    static RUNNING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Marks this thread as inside a callback of the timer while it lives.
pub(crate) struct Inside;

impl Inside {
    pub(crate) fn enter(shared: &Shared) -> Self {
        RUNNING.with_borrow_mut(|running| running.push(std::ptr::from_ref(shared) as usize));
        Self
    }

    pub(crate) fn is(shared: &Shared) -> bool {
        RUNNING.with_borrow(|running| running.contains(&(std::ptr::from_ref(shared) as usize)))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        RUNNING.with_borrow_mut(Vec::pop);
    }
}

/// Why a timer, a task or a batch cannot be pickled (T12).
pub(crate) fn not_picklable(what: &str) -> PyErr {
    pyo3::exceptions::PyTypeError::new_err(format!(
        "cannot pickle a {what}: its threads and what is pending belong to this process; make one where it is used"
    ))
}
