//! What a Python timer, its tasks and its threads share.
//!
//! Tasks in the native timer are strong references to `TimerTask` or `TaskBatch`: a pending task is alive because its
//! timer is. What of this the garbage collector sees is in `docs/concurrency.md` (border rule 8).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;

use crate::executor::Released;
use crate::python::core::callees::Callees;
use crate::python::tools::errors;
use crate::python::tools::fork::{BelongsToProcess, fork_epoch};
use crate::python::tools::gil_cell::GilCell;
use crate::python::tools::native_lock;
use crate::python::values::due_line::DueLine;
use crate::state::State;
use crate::sync::{JoinHandle, MutexGuard, PlainMutex, Sender};
use crate::timer::Timer as NativeTimer;

/// The tag of an entry that is a task of its own; any other tag is an index in a batch.
pub(crate) const NO_INDEX: u32 = u32::MAX;

/// How long a wait goes on before it looks whether Ctrl-C was pressed.
pub(crate) const SIGNAL_CHECK_US: u64 = 50_000;

pub(crate) type TaskRef = Py<PyAny>;

pub(crate) struct TimerCore {
    pub(crate) timer: Arc<NativeTimer<TaskRef>>,
    pub(crate) name: String,
    pub(crate) driver: Driver,
    pub(crate) callees: Callees,
    epoch: u32,
    pub(crate) threads: Threads,
    /// Where an asyncio loop is the executor: what one of its turns left to the next, in order.
    pub(crate) backlog: GilCell<VecDeque<DueLine>>,
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

impl BelongsToProcess for TimerCore {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

impl TimerCore {
    pub(crate) fn new(timer: NativeTimer<TaskRef>, name: String, driver: Driver, callees: Callees) -> Self {
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
            return Err(errors::timer_forked(py, &self.name));
        }
        Ok(())
    }

    /// All that is pending, under the lock.
    pub(crate) fn lock<'a>(&'a self, py: Python<'_>) -> PyResult<MutexGuard<'a, State<TaskRef>>> {
        self.check_process(py)?;
        Ok(self.state(py))
    }

    /// As [`TimerCore::lock`], for a caller that knows that the timer is of this process.
    #[inline]
    pub(crate) fn state<'a>(&'a self, py: Python<'_>) -> MutexGuard<'a, State<TaskRef>> {
        self.timer.state().try_lock().unwrap_or_else(|| self.wait_for_state(py))
    }

    #[cold]
    fn wait_for_state<'a>(&'a self, py: Python<'_>) -> MutexGuard<'a, State<TaskRef>> {
        let _detached_use = self.callees.begin_detached_use(py);
        native_lock::lock(py, self.timer.state())
    }

    /// Whether it never shows what is pending: then a plain task is spared the collector's lists while it is pending.
    #[inline]
    pub(crate) fn hides_pending(&self) -> bool {
        self.driver == Driver::Reaper
    }

    /// Runs `f` without the GIL. Every use of the native timer without the GIL goes through here (border rule 8).
    pub(crate) fn detach<R: Send>(&self, py: Python<'_>, f: impl FnOnce() -> R + Send) -> R {
        let _detached_use = self.callees.begin_detached_use(py);
        py.detach(f)
    }

    pub(crate) fn error(&self, py: Python<'_>, error: &crate::error::Error) -> PyErr {
        errors::from_core(py, &self.name, error)
    }

    /// What failures of callbacks go to; `None` also if the collector is about to clear it.
    pub(crate) fn on_error<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let is_hidden = self.hides_pending() && self.callees.use_counts(py).open_entries > 0;
        self.callees.on_error(py, is_hidden)
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
            let slice = Duration::from_micros(left_us.min(SIGNAL_CHECK_US));
            if self.detach(py, || self.timer.wait_idle(Some(slice))) {
                return Ok(true);
            }
            if left_us <= SIGNAL_CHECK_US {
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
}
