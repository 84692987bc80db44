//! Removes tasks that have not run: refused by the executor, drained by a shutdown, or dropped with the timer.

use pyo3::prelude::*;

use crate::core::timer_core::{Driver, NO_INDEX, TaskRef, TimerCore, index_of};
use crate::engine::failure_details;
use crate::engine::inspect::Pace;
use crate::operations::later_check;
use crate::operations::operation;
use crate::scheduled::batch::TaskBatch;
use crate::scheduled::periodic::PeriodicTask;
use crate::scheduled::task_leaving;
use crate::scheduled::task_object::TimerTask;
use crate::tools::errors;
use crate::values::report_failure;
use tickwheel::{Handle, Pending, Ticket, Timer as Native};

/// A task that the executor refused, or timers of one batch.
struct Refused {
    task: TaskRef,
    callback: Option<Py<PyAny>>,
    /// The indices of the timers, for a batch.
    indices: Vec<u32>,
}

/// Removes tasks that the executor refused, and reports each task once; refused timers of one batch that follow each
/// other are one report. `cause`: what the executor raised.
pub(crate) fn reject(py: Python<'_>, core: &TimerCore, tickets: &[Ticket], why: &str, cause: Option<&PyErr>) {
    let mut refused: Vec<Refused> = Vec::new();
    for ticket in tickets {
        let Ok(mut state) = core.lock(py) else { return };
        let taken = state.refuse(*ticket);
        core.timer.unlock_after_removal(state);
        let Some(Pending { task, tag, handle, .. }) = taken else { continue };
        if TimerTask::is_internal(task.bind(py)) {
            forget(py, core, &task, handle);
            later_check::report_refused(py, task.bind(py), rejected(py, core, why, Vec::new(), cause));
            core.callees.entries_ended(py, 1);
            continue;
        }
        let callback = failure_details::callback_of(task.bind(py));
        forget(py, core, &task, handle);
        operation::sync_deadline(py, task.bind(py));
        if let Some(last) = refused.last_mut().filter(|last| tag != NO_INDEX && last.task.is(&task)) {
            last.indices.push(index_of(tag));
        } else {
            let indices = if tag == NO_INDEX { Vec::new() } else { vec![index_of(tag)] };
            refused.push(Refused { task, callback, indices });
        }
    }
    for Refused { task, callback, indices } in refused {
        let count = indices.len().max(1);
        let error = rejected(py, core, why, indices, cause);
        let failure = failure_details::failure_of(core, task.bind(py), callback.as_ref(), error);
        // Nothing is propagated: there is no caller.
        let _ = report_failure::report(py, &failure, false);
        core.callees.entries_ended(py, count); // after the report, which may need `on_error`
    }
}

fn rejected(py: Python<'_>, core: &TimerCore, why: &str, indices: Vec<u32>, cause: Option<&PyErr>) -> PyErr {
    let error = errors::task_rejected(py, &core.name, why, indices);
    error.set_cause(py, cause.map(|cause| cause.clone_ref(py)));
    error
}

/// Removes all tasks that have not been claimed, without the GIL, and notes it in the tasks.
pub(crate) fn drain(py: Python<'_>, core: &TimerCore) -> Vec<Pending<TaskRef>> {
    forget_all(py, core, core.detach(py, Native::drain))
}

/// As [`drain`], but tasks that were released to the executor stay.
fn drain_unreleased(py: Python<'_>, core: &TimerCore) -> Vec<Pending<TaskRef>> {
    forget_all(py, core, core.detach(py, Native::drain_unreleased))
}

fn forget_all(py: Python<'_>, core: &TimerCore, drained: Vec<Pending<TaskRef>>) -> Vec<Pending<TaskRef>> {
    let mut pace = Pace::default();
    for pending in &drained {
        forget(py, core, &pending.task, pending.handle);
        operation::sync_deadline(py, pending.task.bind(py));
        pace.count(py);
    }
    core.callees.entries_ended(py, drained.len());
    drained
}

/// A `with` block was left, and these tasks will not run: a pool of the standard library would have waited for them.
pub(crate) fn say_left(core: &TimerCore, unfinished: &Bound<'_, PyAny>) -> PyResult<()> {
    let (py, count) = (unfinished.py(), unfinished.len()?);
    let series = unfinished.try_iter()?.flatten().filter(Bound::is_instance_of::<PeriodicTask>).count();
    let (tasks, them) = if count == 1 { ("task is", "it") } else { ("tasks are", "them") };
    let way = match core.driver {
        _ if series == count => format!("a series has no end: cancel {them} before"),
        Driver::Caller => format!("call advance_clock until len(timer) is 0 to run {them}"),
        _ if core.callees.target(py).is_loop_of_this_thread(py)? => {
            format!("`await timer.aclose(wait_pending=True)` waits for {them}")
        }
        _ => format!("shutdown(wait_pending=True) waits for {them}"),
    };
    let cancel = if series > 0 && series < count {
        format!(" (series among them: {series}; cancel those first)")
    } else {
        String::new()
    };
    let text = format!(
        "timer '{}' was left with {count} pending: the {tasks} in `unfinished` and will not run; {way}{cancel}",
        core.name
    );
    py.import("logging")?.call_method1("getLogger", ("tickwheel",))?.call_method1("warning", ("%s", text)).map(drop)
}

/// The `Timer` object was freed. A timer with a reaper lives until it is empty. Without a reaper nothing more can
/// become due: tasks that were released to the worker still run, and the others are dropped.
pub(crate) fn abandon(py: Python<'_>, core: &TimerCore) {
    match core.driver {
        Driver::Reaper => core.detach(py, |timer| {
            timer.close_when_empty();
            core.threads.queue.lock().take();
        }),
        Driver::Caller => {
            core.end_threads(py);
            drop(drain_unreleased(py, core));
        }
        Driver::Manual => {
            core.detach(py, Native::close);
            drop(drain(py, core));
        }
    }
    core.callees.timer_object_was_freed(py);
}

/// The task was taken out of its slot and will not run.
fn forget(py: Python<'_>, core: &TimerCore, task: &TaskRef, handle: Handle) {
    let task = task.bind(py);
    if let Ok(task) = task.cast::<TimerTask>() {
        task_leaving::note_drained(task, core, handle);
    } else if let Ok(batch) = task.cast::<TaskBatch>() {
        batch.get().note_left_timer(py, 1);
    }
}
