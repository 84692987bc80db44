//! Describes a task or a batch that failed, for a report.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::core::timer_core::TimerCore;
use crate::operations::operation_object::DelayedOperation;
use crate::scheduled::batch::TaskBatch;
use crate::scheduled::task_object::TimerTask;
use crate::values::report_failure::{Failure, Source};

/// `callback`: what was called. The task may have dropped it.
pub(crate) fn failure_of<'a, 'py>(
    core: &'a TimerCore,
    task: &'a Bound<'py, PyAny>,
    callback: Option<&'a Py<PyAny>>,
    error: PyErr,
) -> Failure<'a, 'py> {
    let py = task.py();
    Failure {
        timer: Some(&core.name),
        event_loop: core.callees.event_loop(py),
        on_error: core.on_error(py),
        logged: Some(&core.logged_failures),
        task,
        name: name_of(task),
        source: source_of(task, callback),
        error,
    }
}

/// The name that the user gave the task.
pub(crate) fn name_of(task: &Bound<'_, PyAny>) -> Option<Py<PyString>> {
    task.cast::<TimerTask>().ok()?.get().name(task.py())
}

pub(crate) fn source_of<'a>(task: &Bound<'_, PyAny>, callback: Option<&'a Py<PyAny>>) -> Source<'a> {
    if task.is_instance_of::<TaskBatch>() {
        Source::Batch { callback }
    } else if task.is_instance_of::<DelayedOperation>() {
        Source::Operation { purgatory: None, method: None }
    } else {
        Source::Task { callback }
    }
}

/// The callback of a task or a batch, if it still has one.
pub(crate) fn callback_of(task: &Bound<'_, PyAny>) -> Option<Py<PyAny>> {
    match task.cast::<TaskBatch>() {
        Ok(batch) => batch.get().callback(task.py()).0,
        Err(_) => task.cast::<TimerTask>().ok()?.get().callback(task.py()),
    }
}
