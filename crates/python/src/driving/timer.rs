//! `Timer` as Python sees it: the methods that `SystemTimer` and `ManualTimer` have in common.

use std::sync::Arc;

use pyo3::exceptions::{PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::core::inside_callback::InsideCallback;
use crate::core::loop_only;
use crate::core::timer_core::Driver;
use crate::driving::timer_object::Timer;
use crate::engine::inspect;
use crate::engine::leaving;
use crate::engine::recording::{self, EventColumns};
use crate::operations::operation;
use crate::scheduled::batch::TaskBatch;
use crate::scheduled::periodic::{PeriodicTask, Periods};
use crate::scheduled::task_adding;
use crate::scheduled::task_leaving;
use crate::scheduled::task_object::TimerTask;
use crate::tools::args::{self, Omittable};
use crate::tools::describe;
use crate::tools::errors;
use crate::tools::finalizing::ForeignCall;
use crate::tools::int64s;
use crate::tools::times;
use tickwheel::internal::{Room, STEP};
use tickwheel::{Timer as Native, When};

#[pymethods]
impl Timer {
    #[getter]
    fn name(&self) -> PyResult<&str> {
        Ok(&self.core()?.name)
    }

    /// The tasks that `shutdown` found pending, in order; empty before `shutdown`.
    #[getter]
    pub(crate) fn unfinished<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.parts()?;
        Ok(self.unfinished_list(py).unwrap_or_else(|| PyList::empty(py)))
    }

    /// The time of the timer's clock, rounded down to a millisecond.
    fn now_ms(&self, py: Python<'_>) -> PyResult<u64> {
        let core = self.core()?;
        core.check_process(py)?;
        Ok(core.timer.clock().now_ms())
    }

    /// The time of the timer's clock, rounded down to a microsecond.
    fn now_us(&self, py: Python<'_>) -> PyResult<u64> {
        let core = self.core()?;
        core.check_process(py)?;
        Ok(core.timer.clock().now_us())
    }

    /// How many tasks are not yet released to the executor.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.core()?.lock(py)?.schedule.len())
    }

    /// A timer is not a container: it is true even if it is empty.
    fn __bool__(&self) -> bool {
        true
    }

    /// Schedule `task` to run in `task.delay_ms`; a task that is pending here is moved. O(levels); runs no callback.
    ///
    /// `context`: as for `after`. Errors: `TimerClosed`; `TimerForked`; `TimerFull`; `ValueError` if the task is
    /// pending on another timer; `TypeError` if it runs a coroutine function and the executor is not an asyncio loop.
    #[pyo3(signature = (task, *, context=None))]
    fn add(&self, task: &Bound<'_, PyAny>, context: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let entered = self.enter(task.py())?;
        let (timer_ref, core) = (entered.timer_ref(), entered.core());
        let task = task.cast::<TimerTask>().map_err(|_| {
            let given = describe::type_name(task);
            PyTypeError::new_err(format!(
                "add takes a TimerTask, got {given}: use after(delay_ms, callback) for a plain callable"
            ))
        })?;
        if let Ok(periodic) = task.cast::<PeriodicTask>() {
            PeriodicTask::check_goes_on(periodic)?;
        }
        let (delay, is_coroutine) = task.get().delay_and_is_coroutine(task.py())?;
        if is_coroutine && !core.callees.has_loop() {
            return Err(loop_only::coroutine_function_refused(core, "what this task runs"));
        }
        let mut context = loop_only::context_of_add(core, context, task.py())?;
        task_adding::schedule(
            task,
            timer_ref,
            When::AfterUs(delay.to_us()),
            Room::IfAny,
            &mut context,
            &mut Vec::new(),
        )?;
        operation::sync_deadline(task.py(), task.as_any());
        Ok(())
    }

    /// Run `callback(*args)` once, in `delay_ms` milliseconds. Returns the task, which can be cancelled.
    ///
    /// The task drops its callback when it can never run again. If the executor is an asyncio loop, `callback` may be a
    /// coroutine function, and it runs in `context`, by default a copy of the current one. `name`: as for `TimerTask`.
    /// Errors: as `add`, and as `TimerTask`.
    #[pyo3(signature = (delay_ms, callback, *args, context=None, name=None))]
    fn after<'py>(
        &self,
        delay_ms: &Bound<'py, PyAny>,
        callback: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        context: Option<&Bound<'py, PyAny>>,
        name: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, TimerTask>> {
        let entered = self.enter(delay_ms.py())?;
        let timer_ref = entered.timer_ref();
        let delay = times::ms(delay_ms, "delay_ms")?;
        let when = When::AfterUs(delay.to_us());
        task_adding::add_one_shot(delay_ms.py(), timer_ref, (Some(delay), when), callback, args, (context, name))
    }

    /// As `after`, in seconds: the name and the unit of asyncio's loops.
    #[pyo3(signature = (delay, callback, *args, context=None, name=None))]
    fn call_later<'py>(
        &self,
        delay: &Bound<'py, PyAny>,
        callback: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        context: Option<&Bound<'py, PyAny>>,
        name: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, TimerTask>> {
        let entered = self.enter(delay.py())?;
        let delay = times::seconds(delay, "delay")?;
        let when = When::AfterUs(delay.to_us());
        let timer_ref = entered.timer_ref();
        task_adding::add_one_shot(callback.py(), timer_ref, (Some(delay), when), callback, args, (context, name))
    }

    /// As `after`, at an instant of the timer's own clock (see `now_ms`). An instant in the past is due at once.
    #[pyo3(signature = (due_ms, callback, *args, context=None, name=None))]
    fn at<'py>(
        &self,
        due_ms: &Bound<'py, PyAny>,
        callback: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        context: Option<&Bound<'py, PyAny>>,
        name: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, TimerTask>> {
        let py = due_ms.py();
        let entered = self.enter(py)?;
        let timer_ref = entered.timer_ref();
        let due = times::ms(due_ms, "due_ms")?;
        task_adding::add_one_shot(py, timer_ref, (None, When::AtUs(due.to_us())), callback, args, (context, name))
    }

    /// Call `callback(*args)` again and again, at `start_ms + n * period_ms` of the timer's clock, without drift.
    ///
    /// `start_ms`: by default one period from now; the instants go on from one that is past. `jitter_ms`: each call is
    /// later by a random time up to this one, shorter than the period. `missed` decides about instants that pass while
    /// a call runs or waits. They are left out (`"skip"`), made up for one by one (`"all"`), or one call stands for all
    /// (`"last"`). A coroutine runs as one of `after` does: until it has ended the call runs, and the task is not
    /// pending. An exception goes to `on_error`, and the calls go on. Returns the task; `cancel` ends it, and a call
    /// that has begun goes on. `name`: as for `TimerTask`. Errors: as `after`.
    #[pyo3(signature = (period_ms, callback, *args, start_ms=None, jitter_ms=None, missed=None, context=None, name=None))]
    #[expect(clippy::too_many_arguments, reason = "they are the arguments of the Python method")]
    fn every<'py>(
        &self,
        period_ms: &Bound<'py, PyAny>,
        callback: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        start_ms: Option<&Bound<'py, PyAny>>,
        jitter_ms: Option<&Bound<'py, PyAny>>,
        missed: Option<&Bound<'py, PyAny>>,
        context: Option<&Bound<'py, PyAny>>,
        name: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PeriodicTask>> {
        let entered = self.enter(callback.py())?;
        let periods = Periods { period_ms, start_ms, jitter_ms, missed };
        PeriodicTask::start(entered.timer_ref(), &periods, (callback, args), (context, name))
    }

    /// Add one timer for each int64 of a buffer, Arrow array or Arrow stream. Timers that expire together share one
    /// call.
    ///
    /// `callback(indices)` gets a memoryview of int64, in order of expiry. The call adds all timers or none:
    /// `ValueError` for nulls and for delays out of range, `TimerFull` if `max_pending` would be exceeded. `context`:
    /// as for `after`, one for the whole batch. About 50 bytes for each timer.
    #[pyo3(signature = (delays_ms, callback, *, context=None))]
    fn add_many<'py>(
        &self,
        delays_ms: &Bound<'py, PyAny>,
        callback: &Bound<'py, PyAny>,
        context: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, TaskBatch>> {
        let entered = self.enter(callback.py())?;
        let delays_ms = int64s::read(delays_ms, "delays_ms")?;
        TaskBatch::add(callback.py(), entered.core(), &delays_ms, callback, context)
    }

    /// Cancel these tasks. Returns how many will certainly not run.
    ///
    /// A `DelayedOperation` that waits in a purgatory loses its deadline only, and still waits for its events.
    #[pyo3(signature = (tasks))]
    fn cancel_many(&self, tasks: &Bound<'_, PyAny>) -> PyResult<usize> {
        let py = tasks.py();
        let Some(entered) = self.try_enter(py)? else { return Ok(0) };
        let core = entered.core();
        let mut list = Vec::new();
        for task in args::items(tasks, "tasks", "TimerTasks", "for one task pass [task]")? {
            let task = task?.cast_into::<TimerTask>().map_err(|error| {
                PyTypeError::new_err(format!(
                    "cancel_many takes TimerTasks ({error}): cancel a batch by its own cancel_many"
                ))
            })?;
            if let Some((other, _)) = task.get().timer_and_handle(py)
                && !Arc::ptr_eq(&other, core)
            {
                let (other, own) = (other.name_beside(core), &core.name);
                let text = format!("a task is on {other}, not on '{own}': nothing was cancelled");
                return Err(PyValueError::new_err(text));
            }
            list.push(task);
        }
        let mut count = 0;
        for step in list.chunks(STEP) {
            let mut state = core.lock(py)?;
            let cancel = |task: &Bound<'_, TimerTask>| {
                let (on, handle) = task.get().timer_and_handle(py)?;
                let entry = Arc::ptr_eq(&on, core).then(|| state.cancel(core.timer.clock(), handle)).flatten()?;
                Some((entry, handle))
            };
            let cancelled: Vec<_> = step.iter().map(cancel).collect();
            core.timer.unlock_after_removal(state);
            core.callees.entries_ended(py, cancelled.iter().flatten().count());
            for (task, cancelled) in step.iter().zip(cancelled) {
                let has_ended = task.cast::<PeriodicTask>().is_ok_and(PeriodicTask::end);
                count += usize::from(has_ended || cancelled.is_some());
                if let Some((_, handle)) = cancelled {
                    task_leaving::note_cancelled(task, core, handle);
                    operation::deadline_cancelled(py, task.as_any());
                }
            }
        }
        Ok(count)
    }

    /// List the pending tasks in order, as `(due_ms, task)`. A timer of a batch is `(batch, index)`.
    ///
    /// `due_ms` is an instant of the timer's clock. Each task was pending at some moment of the call. A task that was
    /// pending all the while is listed, moved or not. Internal tasks of the library are not listed, but `len` counts
    /// them. O(pending), in short steps.
    #[pyo3(signature = (*, before_ms=None, limit=None))]
    fn pending<'py>(
        &self,
        py: Python<'py>,
        before_ms: Option<&Bound<'py, PyAny>>,
        limit: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let Some(entered) = self.try_enter(py)? else { return Ok(PyList::empty(py)) };
        let before_us = before_ms.map_or(Ok(u64::MAX), |ms| Ok::<_, PyErr>(times::ms(ms, "before_ms")?.to_us()))?;
        let hint = "leave it out for all";
        let limit = limit.map_or(Ok(u64::MAX), |limit| args::int_in(limit, "limit", 0, u64::MAX, hint))?;
        inspect::pending(py, entered.core(), before_us, usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// Levels, buckets, queue, size and front, for debugging. O(pending log pending), in short steps.
    ///
    /// A task that comes, leaves or moves meanwhile is shown as before or as after, or is missing.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        inspect::snapshot(py, self.enter(py)?.core())
    }

    /// How many tasks each bucket has. O(pending), in steps, without the GIL.
    ///
    /// A task that was moved counts where it is due, as in `snapshot`. A task that comes, leaves or moves meanwhile may
    /// count as before or as after.
    fn occupancy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let counted = {
            let entered = self.enter(py)?;
            let core = entered.core();
            core.check_process(py)?;
            core.detach(py, Native::occupancy)
        };
        inspect::occupancy(py, &counted)
    }

    /// Counters, and a histogram of the lateness.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        inspect::stats(py, self.core()?)
    }

    /// Start to record events. Keeps up to `bound` of them until they are taken. For `tickwheel.recording`.
    fn _record(&self, py: Python<'_>, bound: usize) -> PyResult<bool> {
        Ok(self.core()?.lock(py)?.record(bound))
    }

    /// The oldest recorded events that were not yet taken, about `limit` of them, as columns.
    fn _take_recorded<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<EventColumns<'py>> {
        let entered = self.enter(py)?;
        let core = entered.core();
        core.check_process(py)?;
        let recorded = core.detach(py, |timer| timer.take_recorded(limit));
        Ok(recording::columns(py, || recorded))
    }

    /// Stop the recording. Returns the remaining events, as columns.
    fn _stop_recording<'py>(&self, py: Python<'py>) -> PyResult<EventColumns<'py>> {
        let entered = self.enter(py)?;
        let core = entered.core();
        core.check_process(py)?;
        let recorded = core.detach(py, Native::stop_recording);
        Ok(recording::columns(py, || recorded))
    }

    /// Accept no more tasks, run what is due by now, and return the tasks that are still pending, in order.
    ///
    /// `timeout_ms` limits the wait for callbacks; a task that has not started by then counts as pending. With
    /// `wait_pending=True` it first waits until nothing is pending, as a pool of the standard library does; a periodic
    /// task is pending until it is cancelled, but not while a coroutine of it runs: the wait may end then, and the
    /// series with it. A series whose call runs at a shutdown ends with that call, and is in no list. Inside a callback
    /// of this timer the call waits for nothing, nor in a signal handler or a destructor that interrupts a shutdown of
    /// the same thread, nor on the thread of an executor's loop: `await timer.aclose()` there; `wait_pending=True`
    /// is a `RuntimeError`. The list stays in `unfinished`. A second call is allowed.
    #[pyo3(signature = (timeout_ms=None, *, wait_pending=false))]
    fn shutdown(&self, timeout_ms: Option<&Bound<'_, PyAny>>, wait_pending: bool) -> PyResult<()> {
        let _ = (timeout_ms, wait_pending);
        Err(PyNotImplementedError::new_err("a Timer is not made by itself: use SystemTimer or ManualTimer"))
    }

    /// As `shutdown`, for a coroutine: the loop goes on meanwhile, and runs what is due if it is the executor.
    ///
    /// Arguments and result: as those of `shutdown`. If the wait is cancelled, the timer is shut down at once.
    #[pyo3(
        signature = (timeout_ms=None, *, wait_pending=Omittable::OMITTED),
        text_signature = "($self, timeout_ms=None, *, wait_pending=False)"
    )]
    fn aclose<'py>(
        slf: &Bound<'py, Self>,
        timeout_ms: Option<&Bound<'py, PyAny>>,
        wait_pending: Omittable<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let entered = slf.get().enter(py)?;
        entered.core().check_process(py)?;
        let waits = wait_pending.flag("wait_pending", false, "with True it waits for what is pending")?;
        // A manual timer is driven by the caller, and inside a callback a shutdown waits for nothing.
        let needs_thread = entered.core().driver != Driver::Manual && !InsideCallback::is_inside(entered.core());
        py.import("tickwheel.aio.waiting")?.call_method1("close", (slf, timeout_ms, waits, needs_thread))
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().parts()?;
        Ok(slf)
    }

    #[pyo3(signature = (exc_type, _exc, _traceback, /))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        exc_type: &Bound<'_, PyAny>,
        _exc: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let Some(entered) = slf.get().try_enter(slf.py())? else { return Ok(()) };
        if entered.core().is_forked() && !exc_type.is_none() {
            return Ok(()); // a child that leaves the block of its parent by sys.exit gets its exit
        }
        let core = Arc::clone(entered.core());
        drop(entered);
        let unfinished = slf.call_method0("shutdown")?;
        match unfinished.len() {
            Ok(count) if count > 0 && exc_type.is_none() => leaving::say_left(&core, &unfinished),
            _ => Ok(()), // a subclass may return what it likes
        }
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        Err(errors::not_picklable(slf.get_type().name()?.to_str()?))
    }

    /// Shows the objects that only callers of the timer can use (border rule 8).
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(parts) = self.parts.get() {
            parts.core.visit(&visit)?;
        }
        self.unfinished.visit(&visit, |list| visit.call(list))
    }

    /// For a cycle that nothing else can break: a method of the timer itself as its `on_error`.
    fn __clear__(&self, py: Python<'_>) {
        let Some(_call) = ForeignCall::try_enter(py) else { return };
        if let Some(parts) = self.parts.get() {
            parts.core.clear(py);
        }
        let unfinished = self.unfinished.with(py, Option::take);
        drop(unfinished);
    }

    /// Whether it was shut down: it accepts nothing more.
    #[getter]
    fn is_shut_down(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.core()?.lock(py)?.is_closed)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let class = slf.get_type().name()?;
        let Ok(core) = slf.get().core() else { return Ok(format!("<{class} not initialized>")) };
        if core.is_forked() {
            return Ok(format!("<{class} '{}' of the parent process>", core.name));
        }
        let (count, is_closed) = {
            let state = core.lock(slf.py())?;
            (state.schedule.len(), state.is_closed)
        };
        if is_closed {
            let unfinished = slf.get().unfinished_list(slf.py()).map_or(0, |list| list.len());
            return Ok(format!("<{class} '{}' shut down, {unfinished} unfinished>", core.name));
        }
        Ok(format!("<{class} '{}' {count} pending>", core.name))
    }
}
