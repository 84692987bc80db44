//! The garbage collector sees pending handles before a full collection, and not otherwise: see `loop_timers.rs` (T21).
//!
//! `gc.callbacks` has one function for all loops. It is native, so that no signal handler runs in it: what that raises, as
//! Ctrl-C does, the collector would only show.

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyWeakrefReference};

use crate::classes::loop_objects::LoopTimers;
use crate::tools::finalizing::ForeignCall;
use crate::tools::gil_cell::{self, GilCell};
use crate::tools::made_once::{MadeOnce, intern};

/// The oldest generation. Since Python 3.14 a collection that begins by itself takes the old objects in parts. One build
/// may serve several versions, so the running one decides.
fn full_generation(py: Python<'_>) -> u64 {
    if py.version_info() >= (3, 14) { 1 } else { 2 }
}

static KNOWN: GilCell<Vec<Py<PyWeakrefReference>>> = GilCell::new(Vec::new());
static CALLBACK: MadeOnce<Py<PyCFunction>> = MadeOnce::new();

/// From now on what others hold of these is shown to the collector in time.
pub(super) fn know(timers: &Bound<'_, LoopTimers>) -> PyResult<()> {
    let py = timers.py();
    let callback = CALLBACK.get_or_try_init(py, || Ok(wrap_pyfunction!(_before_collection, py)?.unbind()))?;
    let callbacks = py.import("gc")?.getattr("callbacks")?;
    if !callbacks.contains(callback)? {
        callbacks.call_method1("append", (callback,))?;
    }
    let new = PyWeakrefReference::new(timers)?.unbind();
    if KNOWN.with(py, |known| known.len() == known.capacity()) {
        forget_dead(py);
    }
    KNOWN.with(py, |known| known.push(new));
    Ok(())
}

/// Nothing here releases the GIL or begins a collection, so no other thread sees the list while it is out.
fn forget_dead(py: Python<'_>) {
    let known = KNOWN.with(py, std::mem::take);
    let (alive, dead): (Vec<_>, Vec<_>) = known.into_iter().partition(|it| it.bind(py).upgrade().is_some());
    KNOWN.with(py, |known| *known = alive);
    drop(dead);
}

#[pyfunction]
fn _before_collection(phase: &Bound<'_, PyAny>, info: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = phase.py();
    let Some(_call) = ForeignCall::try_enter(py) else { return Ok(()) };
    let generation: u64 = info.get_item(intern!(py, "generation"))?.extract()?;
    if generation < full_generation(py) || !phase.eq(intern!(py, "start"))? {
        return Ok(());
    }
    let known: Vec<_> = KNOWN.with(py, |known| known.iter().map(|it| it.clone_ref(py)).collect());
    for timers in known.iter().filter_map(|it| it.bind(py).upgrade()?.cast_into::<LoopTimers>().ok()) {
        show_held(&timers);
    }
    Ok(())
}

/// Puts the pending handles that others hold, too, on the collector's lists.
fn show_held(timers: &Bound<'_, LoopTimers>) {
    let py = timers.py();
    timers.get().with(py, |inner| {
        for page in 0.. {
            let Some(entries) = inner.schedule.page(page) else { break };
            for (_, _, handle) in entries {
                gil_cell::track_if_shared(handle.bind(py));
            }
        }
    });
}
