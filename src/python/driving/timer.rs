//! `Timer`: what `SystemTimer` and `ManualTimer` have in common.

use std::sync::{Arc, OnceLock};

use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::python::core::loop_only;
use crate::python::core::timer_core::Shared;
use crate::python::core::timer_ref::Share;
use crate::python::engine::inspect;
use crate::python::engine::leaving;
use crate::python::engine::recording::{self, Columns};
use crate::python::operations::operation;
use crate::python::scheduled::batch::TaskBatch;
use crate::python::scheduled::task::TimerTask;
use crate::python::tools::args;
use crate::python::tools::errors;
use crate::python::tools::finalizing::{self, ForeignCall};
use crate::python::tools::fork::Own;
use crate::python::tools::gil_cell::GilCell;
use crate::python::tools::int64s;
use crate::python::tools::native_lock;
use crate::state::{Room, When};
use crate::timer::STEP;

/// What `SystemTimer` and `tickwheel.testing.ManualTimer` have in common; not made by itself.
#[pyclass(frozen, subclass, weakref, module = "tickwheel")]
pub(crate) struct Timer {
    /// Set by `__init__`.
    made: OnceLock<Made>,
    /// What shutdown found pending.
    unfinished: GilCell<Option<Py<PyList>>>,
}

/// What a timer consists of once it is initialized.
struct Made {
    shared: Own<Shared>,
    /// What each of its tasks keeps of it.
    share: Py<Share>,
}

/// A timer while a call that may run foreign code uses it.
pub(crate) struct Open<'a> {
    made: &'a Made,
    _call: ForeignCall,
}

impl Open<'_> {
    /// What each of its tasks keeps of it.
    #[inline]
    pub(crate) fn share(&self) -> &Py<Share> {
        &self.made.share
    }

    /// What it shares with its tasks.
    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.made.shared.arc()
    }
}

#[pymethods]
impl Timer {
    #[getter]
    fn name(&self) -> PyResult<&str> {
        Ok(&self.shared()?.name)
    }

    #[getter]
    /// What `shutdown` found pending, in order; empty before it.
    pub(crate) fn unfinished<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.made()?;
        Ok(self.unfinished_list(py).unwrap_or_else(|| PyList::empty(py)))
    }

    /// The timer's clock, rounded down to a millisecond.
    fn now_ms(&self, py: Python<'_>) -> PyResult<u64> {
        let shared = self.shared()?;
        shared.check_process(py)?;
        Ok(shared.timer.clock().now_ms())
    }

    /// The timer's clock, rounded down to a microsecond.
    fn now_us(&self, py: Python<'_>) -> PyResult<u64> {
        let shared = self.shared()?;
        shared.check_process(py)?;
        Ok(shared.timer.clock().now_us())
    }

    /// How many tasks are not yet released to the executor.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.shared()?.lock(py)?.schedule.len())
    }

    /// A timer is not a container: an empty one is true.
    fn __bool__(&self) -> bool {
        true
    }

    /// Schedule `task` in `task.delay_ms`; one that is pending here is moved. O(levels), never runs a callback.
    ///
    /// `context`: as for `after`. Errors: `TimerClosed`, `TimerForked`, `TimerFull`, `ValueError` if it is pending on
    /// another timer, `TypeError` if it runs a coroutine function and the executor is no asyncio loop.
    #[pyo3(signature = (task, *, context=None))]
    fn add(&self, task: &Bound<'_, PyAny>, context: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let open = self.open(task.py())?;
        let (share, shared) = (open.share(), open.shared());
        let task = task.cast::<TimerTask>().map_err(|_| {
            let given = task.get_type().name().map_or_else(|_| String::new(), |name| name.to_string());
            PyTypeError::new_err(format!(
                "add takes a TimerTask, got {given}: use after(delay_ms, callback) for a plain callable"
            ))
        })?;
        let (delay, is_coroutine) = task.get().delay_and_kind(task.py())?;
        if is_coroutine && !shared.callees.has_loop() {
            return Err(loop_only::coroutine_function_refused(shared, "what this task runs"));
        }
        let mut context = loop_only::context_of_add(shared, context, task.py())?;
        TimerTask::schedule_in(task, share, When::AfterUs(delay.to_us()), Room::IfAny, &mut context, &mut Vec::new())?;
        operation::sync_deadline(task.py(), task.as_any());
        Ok(())
    }

    /// Run `callback(*args)` once, in `delay_ms` milliseconds; returns the task, for `cancel()`.
    ///
    /// The task lets go of its callback once it can never run again. Where the executor is an asyncio loop, `callback`
    /// may be a coroutine function, and runs in `context`, by default a copy of the current one. Errors: as `add`, and
    /// as `TimerTask`.
    #[pyo3(signature = (delay_ms, callback, *args, context=None))]
    fn after<'py>(
        &self,
        delay_ms: &Bound<'py, PyAny>,
        callback: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        context: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, TimerTask>> {
        let open = self.open(delay_ms.py())?;
        let share = open.share();
        let delay = args::ms(delay_ms, "delay_ms")?;
        let when = When::AfterUs(delay.to_us());
        TimerTask::add_one_shot(delay_ms.py(), share, (Some(delay), when), callback, args, context)
    }

    /// As `after`, at an instant of the timer's own clock (see `now_ms`); an instant in the past is due at once.
    #[pyo3(signature = (due_ms, callback, *args, context=None))]
    fn at<'py>(
        &self,
        due_ms: &Bound<'py, PyAny>,
        callback: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        context: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, TimerTask>> {
        let py = due_ms.py();
        let open = self.open(py)?;
        let share = open.share();
        let due = args::ms(due_ms, "due_ms")?;
        TimerTask::add_one_shot(py, share, (None, When::AtUs(due.to_us())), callback, args, context)
    }

    /// Add one timer per int64 of a buffer, Arrow array or Arrow stream, at one Python call per group that expires
    /// together.
    ///
    /// `callback(indices)` gets a memoryview of int64 in order of expiry. All or nothing: `ValueError` for nulls and
    /// delays out of range, `TimerFull` where `max_pending` would be passed. `context`: as for `after`, one for the
    /// whole batch. About 50 bytes a timer.
    #[pyo3(signature = (delays_ms, callback, *, context=None))]
    fn add_many<'py>(
        &self,
        delays_ms: &Bound<'py, PyAny>,
        callback: &Bound<'py, PyAny>,
        context: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, TaskBatch>> {
        let open = self.open(callback.py())?;
        let delays_ms = int64s::read(delays_ms, "delays_ms")?;
        TaskBatch::add(callback.py(), open.shared(), &delays_ms, callback, context)
    }

    /// Cancel these tasks; returns how many will certainly not run.
    ///
    /// A `DelayedOperation` that waits in a purgatory loses its deadline only, and goes on waiting for its events.
    #[pyo3(signature = (tasks))]
    fn cancel_many(&self, tasks: &Bound<'_, PyAny>) -> PyResult<usize> {
        let py = tasks.py();
        let Some(open) = self.try_open(py)? else { return Ok(0) };
        let shared = open.shared();
        let mut list = Vec::new();
        for task in args::items(tasks, "tasks", "TimerTasks", "for one task pass [task]")? {
            let task = task?.cast_into::<TimerTask>().map_err(|error| {
                PyTypeError::new_err(format!(
                    "cancel_many takes TimerTasks ({error}): cancel a batch by its own cancel_many"
                ))
            })?;
            if let Some((other, _)) = task.get().on(py)
                && !Arc::ptr_eq(&other, shared)
            {
                let (other, own) = (other.other_than(shared), &shared.name);
                let text = format!("a task is on {other}, not on '{own}': nothing was cancelled");
                return Err(PyValueError::new_err(text));
            }
            list.push(task);
        }
        let mut count = 0;
        for step in list.chunks(STEP) {
            let mut state = shared.lock(py)?;
            let cancel = |task: &Bound<'_, TimerTask>| {
                let (on, handle) = task.get().on(py)?;
                let entry = Arc::ptr_eq(&on, shared).then(|| state.cancel(shared.timer.clock(), handle)).flatten()?;
                Some((entry, handle))
            };
            let cancelled: Vec<_> = step.iter().map(cancel).collect();
            shared.timer.settle(state);
            shared.callees.settle(py, cancelled.iter().flatten().count());
            for (task, cancelled) in step.iter().zip(cancelled) {
                if let Some((_, handle)) = cancelled {
                    TimerTask::ended(task, handle);
                    operation::sync_deadline(py, task.as_any());
                    count += 1;
                }
            }
        }
        Ok(count)
    }

    /// What is to come, in order, as `(due_ms, task)`, `due_ms` on the timer's clock; of a batch `(batch, index)`.
    ///
    /// Each was pending at some moment of the call. What the library itself has put on the timer is not listed, but
    /// `len` counts it. O(pending), in short steps.
    #[pyo3(signature = (*, before_ms=None, limit=None))]
    fn pending<'py>(
        &self,
        py: Python<'py>,
        before_ms: Option<&Bound<'py, PyAny>>,
        limit: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Vec<(f64, Bound<'py, PyAny>)>> {
        let Some(open) = self.try_open(py)? else { return Ok(Vec::new()) };
        let before_us = before_ms.map_or(Ok(u64::MAX), |ms| Ok::<_, PyErr>(args::ms(ms, "before_ms")?.to_us()))?;
        let hint = "leave it out for all";
        let limit = limit.map_or(Ok(u64::MAX), |limit| args::int_in(limit, "limit", 0, u64::MAX, hint))?;
        inspect::pending(py, open.shared(), before_us, usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// Levels, buckets, queue, size and front at one moment, for debugging: holds the timer's lock, O(pending).
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        inspect::snapshot(py, self.open(py)?.shared())
    }

    /// Counters and the lateness histogram.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        inspect::stats(py, self.shared()?)
    }

    /// Begin to record what happens; keeps `bound` events until they are taken. For `tickwheel.recording`.
    fn _record(&self, py: Python<'_>, bound: usize) -> PyResult<bool> {
        Ok(self.shared()?.lock(py)?.record(bound))
    }

    /// The oldest events recorded and not yet taken, about `limit`, as columns.
    fn _take_recorded<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Columns<'py>> {
        let open = self.open(py)?;
        let shared = open.shared();
        shared.check_process(py)?;
        let _outside = shared.callees.enter_outside(py);
        Ok(recording::columns(py, || shared.timer.take_recorded(limit)))
    }

    /// End the recording; returns the rest, as columns.
    fn _stop_recording<'py>(&self, py: Python<'py>) -> PyResult<Columns<'py>> {
        let open = self.open(py)?;
        let shared = open.shared();
        shared.check_process(py)?;
        let _outside = shared.callees.enter_outside(py);
        Ok(recording::columns(py, || shared.timer.stop_recording()))
    }

    /// Stop: accept no more, run what is due by now, and return the tasks still pending, in order [T11].
    ///
    /// `timeout_ms` bounds the wait for callbacks; what has not started by then counts as pending. InsideCallback one of the
    /// timer's own callbacks, and in a signal handler or a destructor that interrupts a shutdown of the same thread,
    /// it waits for nothing. The list stays in `unfinished`; calling twice is fine.
    #[pyo3(signature = (timeout_ms=None))]
    fn shutdown(&self, timeout_ms: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let _ = timeout_ms;
        Err(PyNotImplementedError::new_err("a Timer is not made by itself: use SystemTimer or ManualTimer"))
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().made()?;
        Ok(slf)
    }

    #[pyo3(signature = (exc_type, _exc, _traceback, /))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        exc_type: &Bound<'_, PyAny>,
        _exc: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let Some(open) = slf.get().try_open(slf.py())? else { return Ok(()) };
        if open.shared().is_forked() && !exc_type.is_none() {
            return Ok(()); // a child that leaves its parent's block by sys.exit gets its exit
        }
        slf.call_method0("shutdown").map(drop)
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        Err(errors::not_picklable(slf.get_type().name()?.to_str()?))
    }

    /// What a timer refers to, as far as only its callers can use it (border rule 8).
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(made) = self.made.get() {
            made.shared.visit(&visit)?;
        }
        self.unfinished.visit(&visit, |list| visit.call(list))
    }

    /// For what else cannot be cleared: a method of the timer itself, which it was given as `on_error`.
    fn __clear__(&self, py: Python<'_>) {
        let Some(_call) = ForeignCall::try_enter(py) else { return };
        if let Some(made) = self.made.get() {
            made.shared.clear(py);
        }
        let unfinished = self.unfinished.with(py, Option::take);
        drop(unfinished);
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let class = slf.get_type().name()?;
        let Ok(shared) = slf.get().shared() else { return Ok(format!("<{class} not initialized>")) };
        if shared.is_forked() {
            return Ok(format!("<{class} '{}' of the parent process>", shared.name));
        }
        let count = shared.lock(slf.py())?.schedule.len();
        Ok(format!("<{class} '{}' {count} pending>", shared.name))
    }
}

impl Timer {
    /// For a subclass of ours: to be filled in by its `__init__`.
    pub(crate) fn empty() -> Self {
        Self { made: OnceLock::new(), unfinished: GilCell::new(None) }
    }

    /// `RuntimeError` if `__init__` has run before.
    pub(crate) fn check_new(&self) -> PyResult<()> {
        match self.made.get() {
            None => Ok(()),
            Some(made) => Err(PyRuntimeError::new_err(format!(
                "timer '{}' is initialized already, and nothing was changed: make a new one for other settings",
                made.shared.name
            ))),
        }
    }

    /// Fills it in. Errors: as [`Timer::check_new`], as another thread may have been faster.
    pub(crate) fn initialize(&self, shared: Own<Shared>, share: Py<Share>) -> PyResult<()> {
        self.made.set(Made { shared, share }).or_else(|_| self.check_new())
    }

    #[inline]
    fn made(&self) -> PyResult<&Made> {
        self.made.get().ok_or_else(uninitialized)
    }

    /// For a call that may run foreign code. Errors: it is not initialized; `TimerClosed` at the end of the interpreter.
    #[inline]
    pub(crate) fn open(&self, py: Python<'_>) -> PyResult<Open<'_>> {
        Ok(Open { made: self.made()?, _call: ForeignCall::enter(py)? })
    }

    /// As [`Timer::open`], for a call that has a harmless answer: `None` at the end of the interpreter.
    pub(crate) fn try_open(&self, py: Python<'_>) -> PyResult<Option<Open<'_>>> {
        let made = self.made()?;
        Ok(ForeignCall::try_enter(py).map(|call| Open { made, _call: call }))
    }

    /// What it shares with its tasks.
    #[inline]
    pub(crate) fn shared(&self) -> PyResult<&Arc<Shared>> {
        Ok(self.made()?.shared.arc())
    }

    /// A copy of what shutdown found pending; `None` before it.
    pub(crate) fn unfinished_list<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyList>> {
        let list = self.unfinished.with(py, |list| list.as_ref().map(|list| list.clone_ref(py)))?.into_bound(py);
        Some(list.get_slice(0, list.len()))
    }

    /// Takes out what is left, in order, and keeps it behind what was taken out before. Returns a copy of all of it.
    pub(crate) fn keep_unfinished<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let new = PyList::empty(py);
        for pending in leaving::drain(py, self.shared()?) {
            if TimerTask::is_internal(pending.task.bind(py)) {
                continue;
            }
            new.append(inspect::as_listed(py, &pending.task, pending.tag)?)?;
        }
        let earlier = self.unfinished.with(py, |unfinished| {
            let earlier = unfinished.as_ref().map(|list| list.clone_ref(py));
            if earlier.is_none() {
                *unfinished = Some(new.clone().unbind());
            }
            earlier
        });
        let Some(all) = earlier else { return Ok(new.get_slice(0, new.len())) };
        let all = all.into_bound(py);
        all.set_slice(all.len(), all.len(), &new)?;
        Ok(all.get_slice(0, all.len()))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        finalizing::let_go(std::mem::take(&mut self.unfinished));
        let Some(made) = self.made.take() else { return };
        if made.shared.is_forked() {
            return;
        }
        native_lock::attach(|py| match ForeignCall::try_enter(py) {
            Some(_call) => {
                leaving::abandon(py, &made.shared);
                drop(made);
            }
            None => std::mem::forget(made), // its destructors are foreign code
        });
    }
}

#[cold]
fn uninitialized() -> PyErr {
    PyRuntimeError::new_err(
        "this timer is not initialized yet: call super().__init__() with the timer's settings first, in the __init__ of \
         the subclass",
    )
}
