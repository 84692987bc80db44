//! Takes tasks off their timer, or notes that they left it: cancelled, claimed or drained.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::core::timer_core::TimerCore;
use crate::core::timer_ref::TimerRef;
use crate::scheduled::awaiting;
use crate::scheduled::task_fields::{CallbackAndArgs, TaskFields, TaskKind};
use crate::scheduled::task_object::TimerTask;
use crate::tools::gil_cell;
use crate::tools::native_lock;
use tickwheel::Handle;

/// The references of a task that was taken off its timer, to be dropped without a lock.
pub(crate) struct RemovedTask {
    task: Py<PyAny>,
    /// `None` once the timer has counted the end of the entry.
    timer: Option<Py<TimerRef>>,
    _call: Option<CallbackAndArgs>,
    _context: Option<Py<PyAny>>,
    waiters: Vec<Py<PyAny>>,
}

impl RemovedTask {
    /// Counts the end of the entry and drops the references. No native lock may be held.
    pub(super) fn end_and_drop(mut self, py: Python<'_>) {
        awaiting::tell(py, std::mem::take(&mut self.waiters), false);
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

/// Takes the task off its timer. If it is an operation, its purgatory does not learn of this.
pub(crate) fn take_off_and_drop(task: &TimerTask, py: Python<'_>) -> PyResult<bool> {
    Ok(take_off(task, py)?.map(|removed| removed.end_and_drop(py)).is_some())
}

/// As [`take_off_and_drop`]; `None` if it was on no timer. The caller drops the result: destructors are foreign code. From the
/// moment the task leaves until this returns, the GIL is not released.
#[inline]
pub(crate) fn take_off(task: &TimerTask, py: Python<'_>) -> PyResult<Option<RemovedTask>> {
    loop {
        let Some(timer_ref) = task.fields.with(py, |fields| fields.timer_ref(py)) else { return Ok(None) };
        let core = timer_ref.get().core();
        let mut state = core.lock(py)?;
        // The order of `put_on`: the lock, in it the fields, and the collector learns of it before the unlock.
        let (is_here, removed) = task.fields.with(py, |fields| {
            // During a wait for the lock another thread may have moved it.
            let Some((_, handle)) = fields.timer_and_handle().filter(|(now, _)| Arc::ptr_eq(now, core)) else {
                return (false, None);
            };
            let Some(task) = state.cancel(core.timer.clock(), handle) else { return (true, None) };
            // It may be added again, so the garbage collector must see it.
            let is_tracked = fields.is_plain() && fields.callback.is_some();
            if fields.kind != TaskKind::Expiry {
                fields.note_cancelled(); // the deadline of an operation is taken off for other reasons too
            }
            let (timer, call, context) = (fields.take_timer(), fields.take_one_shot_call(), fields.take_context());
            let waiters = fields.take_waiters_if_off();
            (true, Some((RemovedTask { task, timer, _call: call, _context: context, waiters }, is_tracked)))
        });
        if let Some((removed, true)) = &removed {
            gil_cell::track(removed.task.bind(py));
        }
        core.timer.unlock_after_removal(state);
        if is_here {
            return Ok(removed.map(|(removed, _)| removed));
        }
    }
}

/// The entry in this slot was claimed, and runs next. If the task was added again meanwhile, that add stays.
pub(crate) fn note_claimed(task: &Bound<'_, TimerTask>, core: &TimerCore, handle: Handle) {
    let (timer_ref, may_be_added) = task.get().fields.with(task.py(), |fields| {
        let (is_this, timer_ref) = fields.take_off(core, handle);
        fields.note_claimed(is_this);
        (timer_ref, is_this && fields.is_plain() && !fields.is_one_shot())
    });
    // Before anything is dropped: a destructor may add it again.
    if may_be_added {
        gil_cell::track(task);
    }
    drop(timer_ref);
}

/// The entry in this slot was taken out. If the task was added again meanwhile, that add stays. The caller drops what
/// is put into `removed`.
pub(crate) fn note_removed(
    task: &Bound<'_, TimerTask>,
    core: &TimerCore,
    handle: Handle,
    removed: &mut Vec<Py<PyAny>>,
) {
    let ((timer_ref, context), may_be_added) = task.get().fields.with(task.py(), |fields| {
        let (is_this, timer_ref) = fields.take_off(core, handle);
        let context = if is_this { fields.take_context() } else { None };
        ((timer_ref, context), is_this && fields.is_plain() && !fields.is_one_shot())
    });
    // As in `note_claimed`.
    if may_be_added {
        gil_cell::track(task);
    }
    removed.extend(timer_ref.map(Py::into_any).into_iter().chain(context));
}

/// The entry in this slot was taken out by a shutdown and will not run. So a one-shot task keeps its callback.
pub(crate) fn note_drained(task: &Bound<'_, TimerTask>, core: &TimerCore, handle: Handle) {
    note_removed(task, core, handle, &mut Vec::new());
    gil_cell::track(task);
    let waiters = task.get().fields.with(task.py(), TaskFields::take_waiters_if_off);
    awaiting::tell(task.py(), waiters, false);
}

/// The entry in this slot was cancelled, and a one-shot task can never run again. If the task was added again
/// meanwhile, that add stays, and the task keeps its callback.
pub(crate) fn note_cancelled(task: &Bound<'_, TimerTask>, core: &TimerCore, handle: Handle) {
    let (removed, waiters, may_be_added) = task.get().fields.with(task.py(), |fields| {
        let (is_this, timer_ref) = fields.take_off(core, handle);
        let taken = is_this.then(|| (fields.take_one_shot_call(), fields.take_context()));
        if is_this && fields.kind != TaskKind::Expiry {
            fields.note_cancelled(); // an operation has lost its deadline alone
        }
        ((timer_ref, taken), fields.take_waiters_if_off(), is_this && fields.is_plain() && !fields.is_one_shot())
    });
    if may_be_added {
        gil_cell::track(task);
    }
    awaiting::tell(task.py(), waiters, false);
    drop(removed);
}
