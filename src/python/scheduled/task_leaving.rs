//! How a task leaves its timer: cancelled, claimed, or drained.

use pyo3::prelude::*;

use crate::python::core::timer_ref::TimerRef;
use crate::python::scheduled::task_fields::CallbackAndArgs;
use crate::python::scheduled::task_object::TimerTask;
use crate::python::tools::gil_cell;
use crate::python::tools::native_lock;
use crate::wheel::Handle;

/// What is left of a task that was taken off its timer.
pub(crate) struct RemovedTask {
    task: Py<PyAny>,
    /// `None` once the timer has heard that it owes the task nothing more.
    timer: Option<Py<TimerRef>>,
    _call: Option<CallbackAndArgs>,
    _context: Option<Py<PyAny>>,
}

impl RemovedTask {
    /// Drops them. No native lock may be held.
    fn end_and_drop(mut self, py: Python<'_>) {
        if let Some(timer) = self.timer.take() {
            timer.get().core().callees.entries_ended(py, 1);
        }
    }
}

impl Drop for RemovedTask {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            native_lock::attach(|py| timer.get().core().callees.entries_ended(py, 1));
        }
    }
}

/// Takes the task off its timer: `cancel` without a word to the purgatory.
pub(crate) fn remove(task: &TimerTask, py: Python<'_>) -> PyResult<bool> {
    Ok(take_off(task, py)?.map(|removed| removed.end_and_drop(py)).is_some())
}

/// As [`remove`]; `None` if it was on no timer. What is left is for the caller to drop: destructors are foreign code. When
/// this returns, the GIL has not been let go since the task left.
#[inline]
pub(crate) fn take_off(task: &TimerTask, py: Python<'_>) -> PyResult<Option<RemovedTask>> {
    loop {
        // With the GIL held throughout, the task cannot move meanwhile: only where the lock is free.
        let taken = task.fields.with(py, |fields| {
            let (core, handle) = fields.on().filter(|(core, _)| !core.is_forked())?;
            let mut state = core.timer.state().try_lock()?;
            let task = state.cancel(core.timer.clock(), handle);
            core.timer.settle(state);
            // It may be added again: the garbage collector must know of it.
            let is_tracked = task.is_some() && fields.is_plain && fields.callback.is_some();
            Some(task.map(|task| {
                let (timer, call, context) =
                    (fields.take_off(handle).1, fields.take_one_shot_call(), fields.take_context());
                (RemovedTask { task, timer, _call: call, _context: context }, is_tracked)
            }))
        });
        if let Some(taken) = taken {
            let Some((remains, is_tracked)) = taken else { return Ok(None) };
            if is_tracked {
                gil_cell::track(remains.task.bind(py));
            }
            return Ok(Some(remains));
        }
        let Some((core, _)) = task.on(py) else { return Ok(None) };
        drop(core.lock(py)?); // waits for it, without the GIL
    }
}

/// It was claimed from this slot, and is run next. If it has been added again since, that stands.
pub(crate) fn note_claimed(task: &Bound<'_, TimerTask>, handle: Handle) {
    let (left, may_be_added) = task.get().fields.with(task.py(), |fields| {
        let (is_this, left) = fields.take_off(handle);
        (left, is_this && fields.is_plain && !fields.is_one_shot())
    });
    // Before anything is dropped: a destructor may add it again.
    if may_be_added {
        gil_cell::track(task);
    }
    drop(left);
}

/// It was taken out of this slot. If it has been added again since, that stands. What it let go of is for the caller to drop.
pub(crate) fn note_removed(task: &Bound<'_, TimerTask>, handle: Handle, removed: &mut Vec<Py<PyAny>>) {
    let ((timer_ref, context), may_be_added) = task.get().fields.with(task.py(), |fields| {
        let (is_this, left) = fields.take_off(handle);
        let context = if is_this { fields.take_context() } else { None };
        ((left, context), is_this && fields.is_plain && !fields.is_one_shot())
    });
    // As in `note_claimed`.
    if may_be_added {
        gil_cell::track(task);
    }
    removed.extend(timer_ref.map(Py::into_any).into_iter().chain(context));
}

/// It was taken out of its slot and will not be run, so that a one-shot task keeps its callback too.
pub(crate) fn note_drained(task: &Bound<'_, TimerTask>, handle: Handle) {
    note_removed(task, handle, &mut Vec::new());
    gil_cell::track(task);
}

/// It was cancelled in this slot; a one-shot task can never run again. If it has been added again since, that stands,
/// and the task keeps its callback.
pub(crate) fn note_cancelled(task: &Bound<'_, TimerTask>, handle: Handle) {
    let (left, may_be_added) = task.get().fields.with(task.py(), |fields| {
        let (is_this, left) = fields.take_off(handle);
        let taken = is_this.then(|| (fields.take_one_shot_call(), fields.take_context()));
        ((left, taken), is_this && fields.is_plain && !fields.is_one_shot())
    });
    if may_be_added {
        gil_cell::track(task);
    }
    drop(left);
}
