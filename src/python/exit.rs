//! The end of the interpreter (T11, border rule 7): every timer is stopped and its threads are joined before Python
//! finalizes, since a native thread that comes back into a finalizing interpreter aborts the process.
//!
//! The list of timers with threads is a Python dict, guarded by the GIL: a native lock might be held by nobody in a
//! forked child. A timer leaves it when its thread has ended for Python too, not when our part of the thread has.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};

use super::border::Own;
use super::errors;
use super::fork::fork_epoch;
use super::shared::Shared;
use super::worker::Target;

/// A timer whose threads run, and its Python thread.
#[pyclass(frozen, module = "tickwheel._native")]
pub(super) struct Live {
    shared: Own<Shared>,
    thread: Py<PyAny>,
}

static EXITED: AtomicBool = AtomicBool::new(false);
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

pub(super) fn new_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// Timers with threads, by id.
fn live(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    Ok(py.import("tickwheel._native")?.getattr("_live")?.cast_into()?)
}

/// Threads that have done their work, and have not quite ended.
fn ending(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    Ok(py.import("tickwheel._native")?.getattr("_ending")?.cast_into()?)
}

/// Lists a timer before its thread starts.
pub(super) fn register(py: Python<'_>, id: u64, shared: &Arc<Shared>, thread: &Bound<'_, PyAny>) -> PyResult<()> {
    if EXITED.load(Ordering::Relaxed) {
        return Err(errors::closed(py, &shared.name));
    }
    if matches!(shared.callees.target(py), Target::Pool(_)) {
        before_pools_close(py)?;
    }
    let entry = Live { shared: Own::new(Arc::clone(shared)), thread: thread.clone().unbind() };
    live(py)?.set_item(id, Py::new(py, entry)?)
}

/// The thread did not start.
pub(super) fn unregister(py: Python<'_>, id: u64) {
    let _ = live(py).and_then(|live| live.del_item(id));
}

/// The thread has done its work, and is about to end; those that have ended are forgotten.
pub(super) fn leave(py: Python<'_>, id: u64) -> PyResult<()> {
    let live = live(py)?;
    let Some(entry) = live.get_item(id)? else { return Ok(()) };
    let ending = ending(py)?;
    for thread in ending.get_slice(0, ending.len()) {
        if !thread.call_method0("is_alive")?.extract::<bool>()? {
            ending.call_method1("remove", (thread,))?;
        }
    }
    ending.append(&entry.cast_into::<Live>()?.get().thread)?;
    live.del_item(id)
}

/// The exit hook: stops every timer, waits for the callback that runs, and drops the rest.
#[pyfunction]
pub(super) fn _shutdown_at_exit(py: Python<'_>) -> PyResult<()> {
    EXITED.store(true, Ordering::Relaxed);
    let stopped = stop(py, |_| true);
    end_calls(py);
    // A callback whose wait was interrupted may have ended since. Its thread ends now, and is not to meet the end of Python.
    stopped.or_else(|error| join_idle(py).and(Err(error)))
}

/// Daemon threads go on while the interpreter finalizes, until they want the GIL: then it ends them, by unwinding their
/// stacks, which aborts the process if there are native frames between two Python ones. So none is let into a call that
/// runs the user's methods any more, and those inside are waited for.
static NO_MORE_CALLS: AtomicBool = AtomicBool::new(false);
/// Such calls under way.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// A method that hangs must not keep the process.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

thread_local! {
    static IS_EXITING: Cell<bool> = const { Cell::new(false) };
}

/// A call that runs the user's methods, from whatever thread.
pub(super) struct Call {
    epoch: u32,
}

impl Call {
    /// `None` at the end of the interpreter, but for the thread that ends it.
    pub(super) fn enter(_py: Python<'_>) -> Option<Self> {
        // Both sides hold the GIL, so nobody gets in after the hook has looked.
        if NO_MORE_CALLS.load(Ordering::Relaxed) && !IS_EXITING.get() {
            return None;
        }
        count(|inside| inside + 1);
        Some(Self { epoch: fork_epoch() })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.epoch == fork_epoch() {
            count(|inside| inside - 1);
        }
    }
}

/// Only with the GIL held, so it needs no read-modify-write.
fn count(next: impl FnOnce(usize) -> usize) {
    INSIDE.store(next(INSIDE.load(Ordering::Relaxed)), Ordering::Relaxed);
}

/// In the child of a fork there is this thread alone, and what it is inside of counts no more.
pub(super) fn after_fork() {
    INSIDE.store(0, Ordering::Relaxed);
}

fn end_calls(py: Python<'_>) {
    IS_EXITING.set(true);
    NO_MORE_CALLS.store(true, Ordering::Relaxed);
    py.detach(|| {
        let until = Instant::now() + LONGEST_WAIT;
        while INSIDE.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    });
}

/// Executors of the standard library close before the exit hooks run, and refuse what comes then. Timers that feed one
/// close before that. `threading` has no public hook so early; without this one, refusals at exit would be told of.
fn before_pools_close(py: Python<'_>) -> PyResult<()> {
    static REGISTERED: PyOnceLock<()> = PyOnceLock::new();
    if REGISTERED.get(py).is_none()
        && let Ok(register) = py.import("threading")?.getattr("_register_atexit")
    {
        register.call1((wrap_pyfunction!(_shutdown_pool_timers_at_exit, py)?,))?;
        let _ = REGISTERED.set(py, ());
    }
    Ok(())
}

#[pyfunction]
fn _shutdown_pool_timers_at_exit(py: Python<'_>) -> PyResult<()> {
    stop(py, |shared| matches!(shared.callees.target(py), Target::Pool(_)))
}

/// Stops the timers that this concerns: all are closed and drained before the first is waited for, so that a wait that is
/// interrupted leaves no timer running. Each interrupt ends one wait; the last one is raised when all have been tried.
fn stop(py: Python<'_>, concerns: impl Fn(&Shared) -> bool) -> PyResult<()> {
    let mut result = Ok(());
    let mut keep = |tried: PyResult<()>| {
        if let Err(error) = tried {
            if let Err(earlier) = std::mem::replace(&mut result, Ok(())) {
                error.set_context(py, Some(earlier));
            }
            result = Err(error);
        }
    };
    let mut stopped = Vec::new();
    for entry in live(py)?.copy()?.values() {
        let entry = entry.cast_into::<Live>()?;
        let shared = &entry.get().shared;
        if !shared.is_forked() && concerns(shared) {
            shared.end_threads(py);
            drop(shared.drain(py));
            stopped.push(entry);
        }
    }
    for entry in &stopped {
        let Live { shared, thread } = entry.get();
        // A thread that did not get idle would not end either.
        keep(shared.wait_idle(py, u64::MAX).and_then(|_| join(thread.bind(py))));
    }
    let ending = ending(py)?;
    ending.get_slice(0, ending.len()).iter().for_each(|thread| keep(join(&thread)));
    result
}

/// Joins the threads that have nothing left to run.
fn join_idle(py: Python<'_>) -> PyResult<()> {
    for entry in live(py)?.copy()?.values() {
        let entry = entry.cast_into::<Live>()?;
        let Live { shared, thread } = entry.get();
        if !shared.is_forked() && shared.wait_idle(py, 0)? {
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
