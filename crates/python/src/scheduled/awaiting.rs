//! Waiters of a task (T22). Each is called once, when the call of the task has ended, or when there will be none.
//!
//! A waiter is a callable of `tickwheel.aio.waiting` that passes the answer to a future of a loop. The task refers to
//! it until then, and each place where a task leaves its timer calls the waiters.

use pyo3::prelude::*;

use crate::scheduled::task_fields::TaskFields;
use crate::scheduled::task_object::TimerTask;

/// Adds a waiter if the task is on its timer or its call runs. Otherwise returns the answer: whether its call has run.
pub(super) fn watch(task: &TimerTask, waiter: &Bound<'_, PyAny>) -> Option<bool> {
    let new = waiter.clone().unbind();
    let answer_or_left = task.fields.with(waiter.py(), |fields| match fields.has_run() {
        None => {
            fields.waiters_mut().push(new);
            Ok(())
        }
        Some(has_run) => Err((has_run, new)),
    });
    answer_or_left.err().map(|(has_run, _)| has_run)
}

/// Takes a waiter away that waits no more.
pub(super) fn unwatch(task: &TimerTask, waiter: &Bound<'_, PyAny>) {
    let taken = task.fields.with(waiter.py(), |fields| {
        let waiters = fields.waiters_mut();
        let place = waiters.iter().position(|other| other.is(waiter))?;
        Some(waiters.swap_remove(place))
    });
    drop(taken);
}

/// The call of a claimed task has ended.
#[inline]
pub(crate) fn call_ended(task: &Bound<'_, TimerTask>) {
    let waiters = task.get().fields.with(task.py(), TaskFields::note_ended);
    tell(task.py(), waiters, true);
}

/// Tells waiters whether the call has run. It runs foreign code, so no native lock may be held.
#[inline]
pub(super) fn tell(py: Python<'_>, waiters: Vec<Py<PyAny>>, has_run: bool) {
    for waiter in waiters {
        if let Err(error) = waiter.call1(py, (has_run,)) {
            error.write_unraisable(py, Some(waiter.bind(py)));
        }
    }
}
