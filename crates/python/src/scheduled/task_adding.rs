//! Puts tasks on a timer (T7): an add, a move, a one-shot task of `after` or `at`, or an internal task of the library.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::core::attached_timer::Guard;
use crate::core::callback_rules;
use crate::core::timer_core::{NO_INDEX, TimerCore};
use crate::core::timer_ref::TimerRef;
use crate::scheduled::task_fields::{TaskFields, TaskKind};
use crate::scheduled::task_leaving;
use crate::scheduled::task_object::TimerTask;
use crate::tools::args;
use crate::tools::gil_cell;
use crate::tools::times::Ms;
use crate::values::coroutine_functions;
use tickwheel::internal::{Due, Room};
use tickwheel::{Handle, When};

/// Adds a one-shot task, for `after` and `at`.
pub(crate) fn add_one_shot<'py>(
    py: Python<'py>,
    timer_ref: &Py<TimerRef>,
    (delay, when): (Option<Ms>, When),
    callback: &Bound<'py, PyAny>,
    (args, kwargs): (&Bound<'py, PyTuple>, Option<&Bound<'py, PyAny>>),
    (context, name): (Option<&Bound<'py, PyAny>>, Option<&Bound<'py, PyAny>>),
) -> PyResult<Bound<'py, TimerTask>> {
    let name = name.map(args::task_name).transpose()?;
    let partial = kwargs.map(|kwargs| coroutine_functions::partial(callback, kwargs)).transpose()?;
    let task = one_shot(py, delay, partial.as_ref().unwrap_or(callback), args, name)?;
    let core = timer_ref.get().core();
    callback_rules::check_callback(core, callback)?;
    let mut context = callback_rules::context_of_add(core, context, py)?;
    core.check_process(py)?;
    let reference = task.clone().into_any().unbind();
    let (mut state, due) = admit(py, core, core.lock_unchecked(py), when, 1)?;
    let added = state.add(due, reference, NO_INDEX);
    core.callees.entries_added(py, 1);
    if delay.is_none() {
        task.get().fields.with(py, |fields| fields.set_delay(Ms::from_us(due.due_us - due.now_us)));
    }
    put_on(&task, state, timer_ref, added, &mut context, &mut Vec::new());
    Ok(task)
}

/// As [`tickwheel::internal::State::admit`]. After a refusal the lock is free before the error is made.
#[inline]
fn admit<'a>(
    py: Python<'_>,
    core: &TimerCore,
    state: Guard<'a>,
    when: When,
    count: usize,
) -> PyResult<(Guard<'a>, Due)> {
    match state.admit(core.timer.clock(), when, count) {
        Ok(due) => Ok((state, due)),
        Err(error) => {
            drop(state);
            Err(core.to_python_error(py, &error))
        }
    }
}

/// A one-shot task that is on no timer.
fn one_shot<'py>(
    py: Python<'py>,
    delay: Option<Ms>,
    callback: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    name: Option<Py<PyString>>,
) -> PyResult<Bound<'py, TimerTask>> {
    args::callable(callback, "callback")?;
    let args = (!args.is_empty()).then(|| args.clone().unbind());
    let mut fields = TaskFields::new(delay, Some(callback.clone().unbind()), args, name);
    fields.kind = TaskKind::Once;
    fields.set_plain(true);
    Bound::new(py, TimerTask::new(fields))
}

/// An internal one-shot task of the library.
pub(crate) fn make_internal<'py>(py: Python<'py>, callback: &Bound<'py, PyAny>) -> PyResult<Bound<'py, TimerTask>> {
    let task = one_shot(py, Some(Ms(0.0)), callback, &PyTuple::empty(py), None)?;
    task.get().fields.with(py, |fields| fields.kind = TaskKind::Internal);
    Ok(task)
}

/// Puts an internal task on a timer, or moves it there (T7). It is added even if the timer is full. Returns the time of
/// the clock. Runs no Python code, so a native lock may be held.
pub(crate) fn schedule_internal(
    task: &Bound<'_, TimerTask>,
    timer_ref: &Py<TimerRef>,
    when: When,
    room: Room,
) -> PyResult<u64> {
    schedule(task, timer_ref, when, room, &mut None, &mut Vec::new())
}

/// As [`schedule_internal`], for a callback with a context. Afterwards `context` holds the earlier context of the task,
/// or the one that was refused, and `removed` what an earlier timer kept. The caller drops both without a native lock:
/// this may run destructors.
pub(crate) fn schedule(
    task: &Bound<'_, TimerTask>,
    timer_ref: &Py<TimerRef>,
    when: When,
    room: Room,
    context: &mut Option<Py<PyAny>>,
    removed: &mut Vec<Py<PyAny>>,
) -> PyResult<u64> {
    let py = task.py();
    let (this, core) = (task.get(), timer_ref.get().core());
    let (is_free, can_run) = this.fields.with(py, |fields| (fields.timer_and_handle().is_none(), fields.can_run()));
    // Most tasks are on no timer. While the GIL is held that does not change. This is the way if the lock is free.
    if is_free
        && can_run
        && !core.is_forked()
        && let Some(state) = core.timer.try_lock()
    {
        let (mut state, due) = admit(py, core, state, when, usize::from(room == Room::IfAny))?;
        let added = state.add(due, task.clone().into_any().unbind(), NO_INDEX);
        core.callees.entries_added(py, 1);
        put_on(task, state, timer_ref, added, context, removed);
        return Ok(due.now_us);
    }
    loop {
        leave_other_timer(task, core, removed)?;
        let state = core.lock(py)?;
        // From here to the end of the block both the GIL and the lock are held.
        let handle = match this.timer_and_handle(py) {
            Some((other, _)) if !Arc::ptr_eq(&other, core) => {
                drop(state);
                continue;
            }
            on => on.map(|(_, handle)| handle).filter(|handle| state.schedule.due_us(*handle).is_some()),
        };
        let can_run = this.fields.with(py, |fields| fields.can_run());
        if !can_run {
            drop(state);
            return Err(PyValueError::new_err(
                "this task was made by after() or at() and has ended: make a TimerTask to add it again",
            ));
        }
        let count = usize::from(handle.is_none() && room == Room::IfAny);
        let (mut state, due) = admit(py, core, state, when, count)?;
        let moved = handle.and_then(|handle| Some((handle, state.reschedule(handle, due)?)));
        let (handle, must_wake) = moved.unwrap_or_else(|| {
            core.callees.entries_added(py, 1);
            state.add(due, task.clone().into_any().unbind(), NO_INDEX)
        });
        core.timer.notify_if_idle(&state); // a move may have taken the last released task back
        put_on(task, state, timer_ref, (handle, must_wake), context, removed);
        return Ok(due.now_us);
    }
}

/// Moves a task whose call has not begun. Returns whether it was one.
pub(crate) fn reschedule(task: &Bound<'_, TimerTask>, when: When) -> PyResult<bool> {
    let (py, this) = (task.py(), task.get());
    loop {
        let Some((core, handle)) = this.timer_and_handle(py) else { return Ok(false) };
        let state = core.lock(py)?;
        // During a wait for the lock another thread may have added it again.
        let is_same = this.timer_and_handle(py).is_some_and(|(now, at)| Arc::ptr_eq(&now, &core) && at == handle);
        if !is_same {
            continue;
        }
        let (mut state, due) = admit(py, &core, state, when, 0)?;
        let Some(must_wake) = state.reschedule(handle, due) else { return Ok(false) };
        core.timer.notify_if_idle(&state); // it may have taken the last released task back
        drop(state);
        core.timer.wake_driver_if(must_wake);
        return Ok(true);
    }
}

/// Notes in the task that it was added. Both the GIL and the lock are still held.
fn put_on(
    task: &Bound<'_, TimerTask>,
    state: Guard<'_>,
    timer_ref: &Py<TimerRef>,
    (handle, must_wake): (Handle, bool),
    context: &mut Option<Py<PyAny>>,
    removed: &mut Vec<Py<PyAny>>,
) {
    let core = timer_ref.get().core();
    let timer_ref = timer_ref.clone_ref(task.py());
    let (old, is_plain) = task.get().fields.with(task.py(), |fields| {
        *context = context.take().and_then(|context| fields.set_context(context));
        (fields.put_on(timer_ref, handle), fields.is_plain())
    });
    // Before the unlock: after it the task may have run already, and would stay hidden.
    if is_plain && core.hides_pending() {
        gil_cell::untrack(task);
    }
    drop(state);
    core.timer.wake_driver_if(must_wake);
    removed.extend(old.map(Py::into_any));
}

/// `ValueError` if the task is pending on another timer. If it is on another one without being pending, it leaves that.
fn leave_other_timer(task: &Bound<'_, TimerTask>, core: &Arc<TimerCore>, removed: &mut Vec<Py<PyAny>>) -> PyResult<()> {
    let py = task.py();
    let Some((other, handle)) = task.get().timer_and_handle(py) else { return Ok(()) };
    if Arc::ptr_eq(&other, core) {
        return Ok(());
    }
    if other.is_forked() {
        task_leaving::note_removed(task, &other, handle, removed); // the parent's: this process must not touch its locks
        return Ok(());
    }
    let is_live = other.lock(py)?.schedule.is_live(handle);
    // Another thread may have moved it during the wait for the lock; the caller checks again.
    let is_same = task.get().timer_and_handle(py).is_some_and(|(now, at)| Arc::ptr_eq(&now, &other) && at == handle);
    if is_live && is_same {
        return Err(PyValueError::new_err(format!(
            "this task is pending on {}: cancel it there before adding it to timer '{}'",
            other.name_beside(core),
            core.name
        )));
    }
    if is_same {
        task_leaving::note_removed(task, &other, handle, removed);
    }
    Ok(())
}
