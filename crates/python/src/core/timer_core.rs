//! The state that a Python timer shares with its tasks and its threads.
//!
//! Tasks in the native timer are strong references to `TimerTask` or `TaskBatch`: a pending task lives because its
//! timer does. `garbage_collection` says what the garbage collector sees of this (border rule 8).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;

use crate::core::attached_timer::AttachedTimer;
pub(crate) use crate::core::attached_timer::TaskRef;
use crate::core::callees::Callees;
use crate::tools::errors;
use crate::tools::fork::{BelongsToProcess, fork_epoch};
use crate::tools::gil_cell::GilCell;
use crate::tools::native_lock::SIGNAL_CHECK_US;
use crate::values::due_line::DueLine;
use crate::values::logged_failures::LoggedFailures;
use tickwheel::internal::State;
use tickwheel::internal::sync::{JoinHandle, MutexGuard, PlainMutex, Sender};
use tickwheel::{Released, Timer as NativeTimer};

/// The tag of an entry that is a task of its own: the timer keeps no memory for it. See [`tag_of`].
pub(crate) const NO_INDEX: u32 = 0;
/// How many timers a batch holds at most.
pub(crate) const MAX_BATCH: usize = u32::MAX as usize - 1;

/// The tag of the timer with this index in its batch.
pub(crate) fn tag_of(index: usize) -> u32 {
    index as u32 + 1
}

/// The index of a timer in its batch, by its tag.
pub(crate) fn index_of(tag: u32) -> u32 {
    tag - 1
}

/// The shared state of a timer, its tasks and its threads.
pub(crate) struct TimerCore {
    pub(crate) timer: AttachedTimer,
    pub(crate) name: String,
    pub(crate) driver: Driver,
    pub(crate) callees: Callees,
    pub(crate) logged_failures: Arc<LoggedFailures>,
    epoch: u32,
    pub(crate) threads: Threads,
    pub(crate) backlog: GilCell<Backlog>,
}

/// If the executor is an asyncio loop: the released tasks that the loop has taken over and not yet called, in order.
#[derive(Default)]
pub(crate) struct Backlog {
    pub(crate) lines: VecDeque<DueLine>,
    /// The loop will make a call that goes on with these.
    pub(crate) is_continued: bool,
}

/// What advances a timer.
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
    /// The worker ends when this sender and the reaper's copy are dropped.
    pub(crate) queue: PlainMutex<Option<Sender<Released>>>,
    /// A `threading.Thread`.
    pub(crate) worker: GilCell<Option<Py<PyAny>>>,
    /// Held by the one caller of `advance_clock` that waits.
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
            timer: AttachedTimer::new(timer),
            name,
            driver,
            callees,
            logged_failures: Arc::default(),
            epoch: fork_epoch(),
            threads: Threads::default(),
            backlog: GilCell::default(),
        }
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.epoch != fork_epoch()
    }

    /// Names this timer in an error that also names another one: both may have the same name.
    pub(crate) fn name_beside(&self, other: &Self) -> String {
        let another = if self.name == other.name { "another timer that is named" } else { "timer" };
        format!("{another} '{}'", self.name)
    }

    /// Checked before any lock is taken: in a forked child a thread that does not exist there may hold it (border rule
    /// 7).
    pub(crate) fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_forked() {
            return Err(errors::timer_forked(py, &self.name));
        }
        Ok(())
    }

    /// The state of the native timer, locked.
    pub(crate) fn lock<'a>(&'a self, py: Python<'_>) -> PyResult<MutexGuard<'a, State<TaskRef>>> {
        self.check_process(py)?;
        Ok(self.lock_unchecked(py))
    }

    /// As [`TimerCore::lock`]; the caller has checked the process.
    #[inline]
    pub(crate) fn lock_unchecked<'a>(&'a self, py: Python<'_>) -> MutexGuard<'a, State<TaskRef>> {
        self.timer.try_lock().unwrap_or_else(|| self.wait_for_state(py))
    }

    #[cold]
    fn wait_for_state<'a>(&'a self, py: Python<'_>) -> MutexGuard<'a, State<TaskRef>> {
        let _detached_use = self.callees.begin_detached_use(py);
        self.timer.lock(py)
    }

    /// Whether pending tasks are always hidden from the collector. A plain task is then off the collector's lists while
    /// it is pending.
    #[inline]
    pub(crate) fn hides_pending(&self) -> bool {
        self.driver == Driver::Reaper
    }

    /// Runs `f` without the GIL. Every use of the native timer without the GIL goes through this function (border rule
    /// 8).
    pub(crate) fn detach<R: Send>(&self, py: Python<'_>, f: impl FnOnce(&NativeTimer<TaskRef>) -> R + Send) -> R {
        let _detached_use = self.callees.begin_detached_use(py);
        self.timer.detach(py, f)
    }

    pub(crate) fn to_python_error(&self, py: Python<'_>, error: &tickwheel::Error) -> PyErr {
        errors::from_core(py, &self.name, error)
    }

    /// The callable for failures of callbacks; `None` also if the collector is about to clear it.
    pub(crate) fn on_error<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let is_hidden = self.hides_pending() && self.callees.use_counts(py).open_entries > 0;
        self.callees.on_error(py, is_hidden)
    }

    /// Accepts no more tasks, joins the reaper, and lets the worker end when its queue is empty. Does not wait for
    /// callbacks.
    pub(crate) fn end_threads(&self, py: Python<'_>) {
        self.detach(py, |timer| {
            timer.close();
            if let Some(reaper) = self.threads.reaper.lock().take() {
                // A reaper that panicked has already printed that.
                let _ = reaper.join();
            }
            self.threads.queue.lock().take();
        });
    }

    /// Waits until nothing is released or running, until `limit_us` at the latest. Checks for Ctrl-C now and then.
    pub(crate) fn wait_idle(&self, py: Python<'_>, limit_us: u64) -> PyResult<bool> {
        let clock = self.timer.clock();
        loop {
            let left_us = limit_us.saturating_sub(clock.now_us());
            let slice = Duration::from_micros(left_us.min(SIGNAL_CHECK_US));
            if self.detach(py, |timer| timer.wait_idle(Some(slice))) {
                return Ok(true);
            }
            if left_us <= SIGNAL_CHECK_US {
                return Ok(false);
            }
            self.check_signals(py)?;
        }
    }

    /// Runs signal handlers if this is the main thread. Errors: what a handler raises; `TimerForked` in a child that a
    /// handler forked.
    pub(crate) fn check_signals(&self, py: Python<'_>) -> PyResult<()> {
        py.check_signals()?;
        self.check_process(py)
    }
}
