//! What a Python timer, its tasks and its threads share.
//!
//! Tasks in the native timer are strong references to `TimerTask` or `TaskBatch`: a pending task is alive because its
//! timer is, and the timer does not show it to the garbage collector (border rule 8).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use pyo3::prelude::*;

use super::batch::TaskBatch;
use super::border::{self, OfProcess, fork_epoch};
use super::errors;
use super::gil::GilCell;
use super::operation;
use super::report::{self, Failure};
use super::run::Line;
use super::task::TimerTask;
use super::worker::Target;
use crate::executor::Released;
use crate::state::State;
use crate::sync::{JoinHandle, Mutex, MutexGuard, Sender};
use crate::timer::{Pending, Timer as Core};
use crate::wheel::Handle;

/// The tag of an entry that is a task of its own; any other tag is an index in a batch.
pub(super) const NO_INDEX: u32 = u32::MAX;

/// How long a wait goes on before it looks whether Ctrl-C was pressed.
pub(super) const SLICE_US: u64 = 50_000;

pub(super) type Task = Py<PyAny>;

pub(super) struct Shared {
    pub(super) timer: Arc<Core<Task>>,
    pub(super) name: String,
    pub(super) on_error: Option<Py<PyAny>>,
    pub(super) target: Target,
    epoch: u32,
    pub(super) threads: Threads,
    /// Where an asyncio loop is the executor: what one of its turns left to the next, in order.
    pub(super) backlog: GilCell<VecDeque<Line>>,
}

/// The threads of a `SystemTimer`; a `ManualTimer` has none.
#[derive(Default)]
pub(super) struct Threads {
    pub(super) reaper: Mutex<Option<JoinHandle<()>>>,
    /// The worker ends when this and the reaper's copy are gone.
    pub(super) queue: Mutex<Option<Sender<Released>>>,
    /// A `threading.Thread`.
    pub(super) worker: GilCell<Option<Py<PyAny>>>,
    /// Held by the one caller of `advance_clock` who waits.
    pub(super) driving: Mutex<()>,
}

impl OfProcess for Shared {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

impl Shared {
    pub(super) fn new(timer: Core<Task>, name: String, on_error: Option<Py<PyAny>>, target: Target) -> Self {
        Self {
            timer: Arc::new(timer),
            name,
            on_error,
            target,
            epoch: fork_epoch(),
            threads: Threads::default(),
            backlog: GilCell::default(),
        }
    }

    pub(super) fn is_forked(&self) -> bool {
        self.epoch != fork_epoch()
    }

    /// Read before any lock: in a forked child it may be held by a thread that is not there (border rule 7).
    pub(super) fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_forked() {
            return Err(errors::forked(py, &self.name));
        }
        Ok(())
    }

    /// All that is pending, under the lock.
    pub(super) fn lock<'a>(&'a self, py: Python<'_>) -> PyResult<MutexGuard<'a, State<Task>>> {
        self.check_process(py)?;
        Ok(border::lock(py, self.timer.state()))
    }

    pub(super) fn error(&self, py: Python<'_>, error: &crate::error::Error) -> PyErr {
        errors::from_core(py, &self.name, error)
    }

    /// Takes tasks out that the executor refused, and tells the user once for each, or once for a batch.
    /// `cause`: what the executor raised.
    pub(super) fn reject(&self, py: Python<'_>, handles: &[Handle], why: &str, cause: Option<&PyErr>) {
        let mut told: Option<Task> = None;
        for handle in handles {
            let Ok(mut state) = self.lock(py) else { return };
            let task = state.refuse(*handle);
            self.timer.settle(state);
            let Some(task) = task else { continue };
            let is_told = told.as_ref().is_some_and(|told| told.is(&task));
            let callback = report::callback_of(task.bind(py));
            forget(py, &task, *handle);
            operation::sync_deadline(py, task.bind(py));
            if !is_told {
                let error = errors::rejected(py, &self.name, why);
                error.set_cause(py, cause.map(|cause| cause.clone_ref(py)));
                let failure = Failure { callback: callback.as_ref(), ..Failure::of(self, task.bind(py), error) };
                // Nothing is propagated: there is no caller.
                let _ = report::report(py, &failure, false);
            }
            told = Some(task);
        }
    }

    /// Accepts no more, joins the reaper, and lets the worker end once it has nothing left. Does not wait for callbacks.
    pub(super) fn end_threads(&self, py: Python<'_>) {
        py.detach(|| {
            self.timer.close();
            if let Some(reaper) = self.threads.reaper.lock().take() {
                // A reaper that panicked has said so already.
                let _ = reaper.join();
            }
            self.threads.queue.lock().take();
        });
    }

    /// Waits until nothing is released or running, at the longest to `limit_us`, looking for Ctrl-C now and then.
    pub(super) fn wait_idle(&self, py: Python<'_>, limit_us: u64) -> PyResult<bool> {
        let clock = self.timer.clock();
        loop {
            let slice_us = limit_us.min(clock.now_us().saturating_add(SLICE_US));
            if py.detach(|| self.timer.wait_idle(slice_us)) {
                return Ok(true);
            }
            if slice_us == limit_us {
                return Ok(false);
            }
            py.check_signals()?;
        }
    }

    /// Takes out all that is left, detached, and lets the tasks know.
    pub(super) fn drain(&self, py: Python<'_>) -> Vec<Pending<Task>> {
        Self::forget_all(py, py.detach(|| self.timer.drain()))
    }

    /// As [`Shared::drain`], but leaves what was released to the executor.
    pub(super) fn drain_unreleased(&self, py: Python<'_>) -> Vec<Pending<Task>> {
        Self::forget_all(py, py.detach(|| self.timer.drain_unreleased()))
    }

    fn forget_all(py: Python<'_>, drained: Vec<Pending<Task>>) -> Vec<Pending<Task>> {
        for pending in &drained {
            forget(py, &pending.task, pending.handle);
            operation::sync_deadline(py, pending.task.bind(py));
        }
        drained
    }
}

/// A task was taken out of its slot, and is not to be run.
pub(super) fn forget(py: Python<'_>, task: &Task, handle: Handle) {
    let task = task.bind(py);
    if let Ok(task) = task.cast::<TimerTask>() {
        TimerTask::was_taken_out(task, handle);
    } else if let Ok(batch) = task.cast::<TaskBatch>() {
        batch.get().left_timer(py, 1);
    }
}

/// How a task appears where tasks are listed: itself, or `(batch, index)` (T18).
pub(super) fn listed<'py>(py: Python<'py>, task: &Task, tag: u32) -> PyResult<Bound<'py, PyAny>> {
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
pub(super) struct Inside;

impl Inside {
    pub(super) fn enter(shared: &Shared) -> Self {
        RUNNING.with_borrow_mut(|running| running.push(std::ptr::from_ref(shared) as usize));
        Self
    }

    pub(super) fn is(shared: &Shared) -> bool {
        RUNNING.with_borrow(|running| running.contains(&(std::ptr::from_ref(shared) as usize)))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        RUNNING.with_borrow_mut(Vec::pop);
    }
}

/// Why a timer, a task or a batch cannot be pickled (T12).
pub(super) fn not_picklable(what: &str) -> PyErr {
    pyo3::exceptions::PyTypeError::new_err(format!(
        "cannot pickle a {what}: its threads and what is pending belong to this process; make one where it is used"
    ))
}
