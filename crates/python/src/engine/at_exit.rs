//! The end of the interpreter (T11, border rule 7): every timer is stopped and its threads are joined before Python
//! finalizes. A native thread that returned into a finalizing interpreter would abort the process.
//!
//! The list of timers with threads is a Python dict, which the GIL guards: in a forked child, a thread that does not
//! exist there might hold a native lock. A timer leaves the list when Python's part of its thread has ended too, not
//! only the part of this crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::core::timer_core::TimerCore;
use crate::engine::leaving;
use crate::tools::errors;
use crate::tools::finalizing;
use crate::tools::fork::ProcessOwned;
use crate::tools::made_once::MadeOnce;
use crate::values::callback_target::CallbackTarget;

/// A timer whose threads run, and its Python thread.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct RunningTimer {
    core: ProcessOwned<TimerCore>,
    thread: Py<PyAny>,
}

/// How long the exit waits for a callback before it names that.
const NAMED_AFTER_US: u64 = 5_000_000;

static EXITED: AtomicBool = AtomicBool::new(false);
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

pub(crate) fn new_timer_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// Timers with threads, by id.
fn running_timers(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    Ok(py.import("tickwheel._native")?.getattr("_running_timers")?.cast_into()?)
}

/// Threads that have done their work but may not have ended yet.
fn ending_threads(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    Ok(py.import("tickwheel._native")?.getattr("_ending_threads")?.cast_into()?)
}

/// Lists a timer before its thread starts.
pub(crate) fn register(py: Python<'_>, id: u64, core: &Arc<TimerCore>, thread: &Bound<'_, PyAny>) -> PyResult<()> {
    if EXITED.load(Ordering::Relaxed) {
        return Err(errors::timer_closed(py, &core.name));
    }
    if matches!(core.callees.target(py), CallbackTarget::Pool(_)) {
        before_pools_close(py)?;
    }
    py.import("tickwheel._forks")?; // its hook is for processes with timers
    let entry = RunningTimer { core: ProcessOwned::new(Arc::clone(core)), thread: thread.clone().unbind() };
    running_timers(py)?.set_item(id, Py::new(py, entry)?)
}

/// The thread did not start: the timer leaves the list.
pub(crate) fn unregister(py: Python<'_>, id: u64) {
    let _ = running_timers(py).and_then(|timers| timers.del_item(id));
}

/// The thread has done its work and will end now. Threads that have ended leave the list.
pub(crate) fn thread_ends(py: Python<'_>, id: u64) -> PyResult<()> {
    let timers = running_timers(py)?;
    let Some(entry) = timers.get_item(id)? else { return Ok(()) };
    let ending = ending_threads(py)?;
    for thread in ending.get_slice(0, ending.len()) {
        if !thread.call_method0("is_alive")?.extract::<bool>()? {
            ending.call_method1("remove", (thread,))?;
        }
    }
    ending.append(&entry.cast_into::<RunningTimer>()?.get().thread)?;
    timers.del_item(id)
}

/// In a forked child: the list is of this process from now on. Returns the names of the parent's timers that had something
/// to run: it does not run here, and the program may never touch that timer again.
#[pyfunction]
pub(crate) fn _leave_timers_to_parent(py: Python<'_>) -> PyResult<Vec<String>> {
    let timers = running_timers(py)?;
    let mut names = Vec::new();
    for entry in timers.values() {
        let core = &entry.cast::<RunningTimer>()?.get().core;
        if core.callees.use_counts(py).open_entries > 0 {
            names.push(core.name.clone());
        }
    }
    timers.clear();
    ending_threads(py)?.call_method0("clear")?;
    Ok(names)
}

/// The exit hook: stops every timer, waits for the callback that is running, and drops the remaining tasks.
#[pyfunction]
pub(crate) fn _shutdown_at_exit(py: Python<'_>) -> PyResult<()> {
    EXITED.store(true, Ordering::Relaxed);
    let stopped = stop(py, |_| true);
    finalizing::end_calls(py);
    // Meanwhile a constructor may have started a timer, and a callback whose wait was interrupted may have ended. Their
    // threads must end before Python does.
    let rest = close(py, |_| true).and_then(|_| join_idle(py));
    stopped.and(rest)
}

/// Executors of the standard library close before the exit hooks run, and refuse tasks after that. Timers with such an
/// executor close before it does. `threading` has no public hook that runs so early; without this one, the refusals at
/// exit would be reported.
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

/// Stops the timers for which `concerns` is true. All of them are closed and drained before the first wait, so an
/// interrupted wait leaves no timer running. An interrupt ends one wait; the last one is raised after all waits.
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
        // A thread that did not become idle would not end either.
        keep(wait_for_callback(py, core, thread.bind(py)).and_then(|()| join(thread.bind(py))));
    }
    let ending = ending_threads(py)?;
    ending.get_slice(0, ending.len()).iter().for_each(|thread| keep(join(&thread)));
    result
}

/// Waits until no callback runs. A log line names one that takes more than 5 s.
fn wait_for_callback(py: Python<'_>, core: &TimerCore, thread: &Bound<'_, PyAny>) -> PyResult<()> {
    let limit_us = core.timer.clock().now_us().saturating_add(NAMED_AFTER_US);
    if !core.wait_idle(py, limit_us)? {
        py.import("tickwheel._waiting_exit")?.call_method1("tell", (&core.name, thread))?;
        core.wait_idle(py, u64::MAX)?;
    }
    Ok(())
}

/// Closes and drains the timers for which `concerns` is true, and returns them.
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

/// Joins the threads that have nothing more to run.
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

/// Waits for a thread, without the GIL. In a forked child the thread counts as ended.
fn join(thread: &Bound<'_, PyAny>) -> PyResult<()> {
    if thread.call_method0("is_alive")?.extract()? {
        thread.call_method0("join")?;
    }
    Ok(())
}
