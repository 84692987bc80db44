//! Runs the coroutines that callbacks return, as tasks of the loop (T8).
//!
//! A loop runs a coroutine as a task of its own, in a copy of the callback's context. Other executors cannot run one:
//! it is closed and reported as an error. For the timer the callback has ended when it returns. The next call of a series
//! comes after the coroutine has ended, so calls do not overlap.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PySet, PyTuple};

use crate::core::timer_core::TimerCore;
use crate::engine::failure_details;
use crate::scheduled::awaiting;
use crate::scheduled::periodic::PeriodicTask;
use crate::scheduled::task_object::TimerTask;
use crate::tools::finalizing::{self, ForeignCall};
use crate::tools::fork::fork_epoch;
use crate::tools::made_once::intern;
use crate::values::callback_scope;
use crate::values::coroutines::is_coroutine;
use crate::values::logged_failures::LoggedFailures;
use crate::values::report_failure::{self, Failure};

/// Runs a coroutine that a callback returned, or closes it and returns an error if the executor is not a loop. Returns
/// whether there is one, which goes on.
#[inline]
pub(crate) fn run_or_close(
    core: &TimerCore,
    task: &Bound<'_, PyAny>,
    callback: Option<&Py<PyAny>>,
    context: Option<&Py<PyAny>>,
    returned: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    if !is_coroutine(returned)? {
        return Ok(false);
    }
    let Some(event_loop) = core.callees.event_loop(returned.py()) else {
        returned.call_method0(intern!(returned.py(), "close"))?;
        return Err(PyTypeError::new_err(format!(
            "the callback returned a coroutine, which only an asyncio loop can run: make timer '{}' with executor=loop, or \
             call asyncio.run_coroutine_threadsafe in the callback",
            core.name
        )));
    };
    let started = start(core, &event_loop, task, callback, context, returned);
    if started.is_err() {
        returned.call_method0(intern!(returned.py(), "close"))?;
    }
    started.map(|()| true)
}

fn start(
    core: &TimerCore,
    event_loop: &Bound<'_, PyAny>,
    task: &Bound<'_, PyAny>,
    callback: Option<&Py<PyAny>>,
    context: Option<&Py<PyAny>>,
    coroutine: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = coroutine.py();
    let running = running(event_loop)?;
    let refers = Refers {
        event_loop: event_loop.clone().unbind(),
        on_error: core.on_error(py).map(Bound::unbind),
        logged: Arc::clone(&core.logged_failures),
        task: task.clone().unbind(),
        callback: callback.map(|callback| callback.clone_ref(py)),
        running: running.clone().unbind(),
    };
    let ended = CoroutineEnded { epoch: fork_epoch(), timer: core.name.clone(), refers: Some(refers) };
    let ended = Bound::new(py, ended)?;
    let create_task = event_loop.getattr(intern!(py, "create_task"))?;
    let asyncio_task = callback_scope::call_in_context(context, &create_task, Some(&PyTuple::new(py, [coroutine])?))?;
    running.add(&asyncio_task)?;
    asyncio_task.call_method1(intern!(py, "add_done_callback"), (ended,)).map(drop)
}

/// The set of the loop's tasks that run coroutines of callbacks, as the loop itself keeps weak references only. It is
/// an attribute of the loop, so the collector can find a dropped loop with unfinished tasks.
fn running<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PySet>> {
    let name = intern!(event_loop.py(), "_tickwheel_running");
    if let Some(running) = event_loop.getattr_opt(name)? {
        return Ok(running.cast_into()?);
    }
    let running = PySet::empty(event_loop.py())?;
    event_loop.setattr(name, &running)?;
    Ok(running)
}

/// Called by asyncio when the task of a coroutine has ended. It refers to the objects that a report needs and not to
/// the timer, whose references the collector does not see. So `on_error` lives as long as the coroutine, and the
/// collector can find a dropped loop.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct CoroutineEnded {
    /// The process in which it was made.
    epoch: u32,
    timer: String,
    /// `None` only while it is being dropped.
    refers: Option<Refers>,
}

struct Refers {
    event_loop: Py<PyAny>,
    on_error: Option<Py<PyAny>>,
    logged: Arc<LoggedFailures>,
    task: Py<PyAny>,
    callback: Option<Py<PyAny>>,
    running: Py<PySet>,
}

impl Drop for CoroutineEnded {
    fn drop(&mut self) {
        finalizing::drop_or_leak(self.refers.take());
    }
}

#[pymethods]
impl CoroutineEnded {
    fn __call__(&self, py: Python<'_>, asyncio_task: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(()) };
        let Some(refers) = &self.refers else { return Ok(()) };
        refers.running.bind(py).discard(asyncio_task)?;
        if let Ok(task) = refers.task.bind(py).cast::<PeriodicTask>() {
            PeriodicTask::go_on(task);
        }
        if let Ok(task) = refers.task.bind(py).cast::<TimerTask>() {
            awaiting::call_ended(task);
        }
        if self.epoch != fork_epoch() || asyncio_task.call_method0(intern!(py, "cancelled"))?.is_truthy()? {
            return Ok(());
        }
        let error = asyncio_task.call_method0(intern!(py, "exception"))?;
        if error.is_none() {
            return Ok(());
        }
        let error = PyErr::from_value(error);
        if callback_scope::is_exit(py, &error) {
            return Ok(()); // the loop has raised it already
        }
        let failure = Failure {
            timer: Some(&self.timer),
            event_loop: Some(refers.event_loop.bind(py).clone()),
            on_error: refers.on_error.as_ref().map(|on_error| on_error.bind(py).clone()),
            logged: Some(&refers.logged),
            task: refers.task.bind(py),
            name: failure_details::name_of(refers.task.bind(py)),
            source: failure_details::source_of(refers.task.bind(py), refers.callback.as_ref()),
            error,
        };
        report_failure::report(py, &failure, true)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some(refers) = &self.refers else { return Ok(()) };
        visit.call(&refers.event_loop)?;
        visit.call(&refers.on_error)?;
        visit.call(&refers.task)?;
        visit.call(&refers.callback)?;
        visit.call(&refers.running)
    }
}
