//! The end of the interpreter (T11, border rule 7): every timer is stopped and its threads are joined before Python
//! finalizes, since a native thread that comes back into a finalizing interpreter aborts the process.
//!
//! The list of timers with threads is a Python dict, guarded by the GIL: a native lock might be held by nobody in a
//! forked child. A timer leaves it when its thread has ended for Python too, not when our part of the thread has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::python::core::timer_core::TimerCore;
use crate::python::engine::leaving;
use crate::python::tools::errors;
use crate::python::tools::finalizing;
use crate::python::tools::fork::ProcessOwned;
use crate::python::tools::made_once::MadeOnce;
use crate::python::values::callback_target::CallbackTarget;

/// A timer whose threads run, and its Python thread.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct RunningTimer {
    core: ProcessOwned<TimerCore>,
    thread: Py<PyAny>,
}

static EXITED: AtomicBool = AtomicBool::new(false);
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

pub(crate) fn new_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// Timers with threads, by id.
fn running_timers(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    Ok(py.import("tickwheel._native")?.getattr("_live")?.cast_into()?)
}

/// Threads that have done their work, and have not quite ended.
fn ending_threads(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    Ok(py.import("tickwheel._native")?.getattr("_ending")?.cast_into()?)
}

/// Lists a timer before its thread starts.
pub(crate) fn register(py: Python<'_>, id: u64, core: &Arc<TimerCore>, thread: &Bound<'_, PyAny>) -> PyResult<()> {
    if EXITED.load(Ordering::Relaxed) {
        return Err(errors::timer_closed(py, &core.name));
    }
    if matches!(core.callees.target(py), CallbackTarget::Pool(_)) {
        before_pools_close(py)?;
    }
    let entry = RunningTimer { core: ProcessOwned::new(Arc::clone(core)), thread: thread.clone().unbind() };
    running_timers(py)?.set_item(id, Py::new(py, entry)?)
}

/// The thread did not start.
pub(crate) fn unregister(py: Python<'_>, id: u64) {
    let _ = running_timers(py).and_then(|live| live.del_item(id));
}

/// The thread has done its work, and is about to end; those that have ended are forgotten.
pub(crate) fn thread_ends(py: Python<'_>, id: u64) -> PyResult<()> {
    let live = running_timers(py)?;
    let Some(entry) = live.get_item(id)? else { return Ok(()) };
    let ending = ending_threads(py)?;
    for thread in ending.get_slice(0, ending.len()) {
        if !thread.call_method0("is_alive")?.extract::<bool>()? {
            ending.call_method1("remove", (thread,))?;
        }
    }
    ending.append(&entry.cast_into::<RunningTimer>()?.get().thread)?;
    live.del_item(id)
}

/// The exit hook: stops every timer, waits for the callback that runs, and drops the rest.
#[pyfunction]
pub(crate) fn _shutdown_at_exit(py: Python<'_>) -> PyResult<()> {
    EXITED.store(true, Ordering::Relaxed);
    let stopped = stop(py, |_| true);
    finalizing::end_calls(py);
    // A constructor that was under way may have started a timer since, and a callback whose wait was interrupted may have
    // ended. Their threads end now, and are not to meet the end of Python.
    let rest = close(py, |_| true).and_then(|_| join_idle(py));
    stopped.and(rest)
}

/// Executors of the standard library close before the exit hooks run, and refuse what comes then. Timers that feed one
/// close before that. `threading` has no public hook so early; without this one, refusals at exit would be told of.
fn before_pools_close(py: Python<'_>) -> PyResult<()> {
    static REGISTERED: MadeOnce<()> = MadeOnce::new();
    let register = || {
        let Ok(register) = py.import("threading")?.getattr("_register_atexit") else { return Ok(()) };
        register.call1((wrap_pyfunction!(_shutdown_pool_timers_at_exit, py)?,)).map(drop)
    };
    REGISTERED.get_or_try_init(py, register).map(drop)
}

#[pyfunction]
fn _shutdown_pool_timers_at_exit(py: Python<'_>) -> PyResult<()> {
    stop(py, |core| matches!(core.callees.target(py), CallbackTarget::Pool(_)))
}

/// Stops the timers that this concerns: all are closed and drained before the first is waited for, so that a wait that is
/// interrupted leaves no timer running. Each interrupt ends one wait; the last one is raised when all have been tried.
fn stop(py: Python<'_>, concerns: impl Fn(&TimerCore) -> bool) -> PyResult<()> {
    let mut result = Ok(());
    let mut keep = |tried: PyResult<()>| {
        if let Err(error) = tried {
            if let Err(earlier) = std::mem::replace(&mut result, Ok(())) {
                error.set_context(py, Some(earlier));
            }
            result = Err(error);
        }
    };
    for entry in &close(py, concerns)? {
        let RunningTimer { core, thread } = entry.get();
        // A thread that did not get idle would not end either.
        keep(core.wait_idle(py, u64::MAX).and_then(|_| join(thread.bind(py))));
    }
    let ending = ending_threads(py)?;
    ending.get_slice(0, ending.len()).iter().for_each(|thread| keep(join(&thread)));
    result
}

/// Closes and drains the timers that this concerns, and returns them.
fn close<'py>(py: Python<'py>, concerns: impl Fn(&TimerCore) -> bool) -> PyResult<Vec<Bound<'py, RunningTimer>>> {
    let mut closed = Vec::new();
    for entry in running_timers(py)?.copy()?.values() {
        let entry = entry.cast_into::<RunningTimer>()?;
        let core = &entry.get().core;
        if !core.is_forked() && concerns(core) {
            core.end_threads(py);
            drop(leaving::drain(py, core));
            closed.push(entry);
        }
    }
    Ok(closed)
}

/// Joins the threads that have nothing left to run.
fn join_idle(py: Python<'_>) -> PyResult<()> {
    for entry in running_timers(py)?.copy()?.values() {
        let entry = entry.cast_into::<RunningTimer>()?;
        let RunningTimer { core, thread } = entry.get();
        if !core.is_forked() && core.wait_idle(py, 0)? {
            join(thread.bind(py))?;
        }
    }
    Ok(())
}

/// Waits for a thread, detached; in the child of a fork it is over already.
fn join(thread: &Bound<'_, PyAny>) -> PyResult<()> {
    if thread.call_method0("is_alive")?.extract()? {
        thread.call_method0("join")?;
    }
    Ok(())
}
