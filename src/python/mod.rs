//! The bindings: `tickwheel._native`. The eight border rules they keep are in `docs/design.md`.
//!
//! - Tools: `border` has the locks and the GIL, `fork` which process a timer belongs to, `gil` what the GIL guards, `kept`
//!   what is made once, `finalizing` the calls that run foreign code.
//! - What comes in: `args`, `arrow`, `arrow_stream`, `coroutine_functions`, `settings`.
//! - `shared` is what a timer, its tasks and its threads have in common; `callees` and `on_error` what a timer may still call,
//!   and what the collector sees of that.
//! - What is scheduled: `task`, `content`, `batch`. What runs it: `run`, `contexts`, `coroutines`, `worker`. Where its failures
//!   go: `report`.
//! - The classes: `timer`, `system`, `manual`. `sight` is what they show, `recording` what they record and how that is replayed;
//!   `gate` and `exit` how they end.

#![expect(clippy::unused_self, reason = "Python calls a method with self, used or not")]

mod args;
mod arrow;
mod arrow_stream;
mod batch;
mod border;
mod callees;
mod content;
mod contexts;
mod coroutine_functions;
mod coroutines;
mod errors;
mod exit;
mod finalizing;
mod fork;
mod gate;
mod gil;
mod kept;
mod keys;
mod manual;
mod on_error;
mod operation;
mod purgatory;
mod recording;
mod report;
mod run;
mod settings;
mod share;
mod shared;
mod side;
mod sight;
mod system;
mod task;
mod timer;
mod worker;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// The timer, in Rust. Import its names from `tickwheel`.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::add_to(module)?;
    module.add_class::<task::TimerTask>()?;
    module.add_class::<batch::TaskBatch>()?;
    module.add_class::<timer::Timer>()?;
    module.add_class::<system::SystemTimer>()?;
    module.add_class::<manual::ManualTimer>()?;
    module.add_class::<operation::DelayedOperation>()?;
    module.add_class::<purgatory::DelayedOperationPurgatory>()?;
    module.add_class::<recording::Replay>()?;
    make_other_classes(py);
    module.add_function(wrap_pyfunction!(border::_attached_by_reaper, module)?)?;
    module.add("_live", PyDict::new(py))?;
    module.add("_ending", PyList::empty(py))?;
    module.delattr("__all__")?; // pyo3 lists the private names in it as well; the public ones are in `tickwheel`
    let at_exit = wrap_pyfunction!(exit::_shutdown_at_exit, module)?;
    py.import("atexit")?.call_method1("register", (at_exit,))?;
    fork::watch()?;
    Ok(())
}

/// pyo3 makes a class at its first use, under a lock that a forked child may inherit taken (see `kept`). So all are made
/// now, before there are threads.
fn make_other_classes(py: Python<'_>) {
    let _ = (py.get_type::<exit::Live>(), py.get_type::<worker::Worker>(), py.get_type::<worker::Due>());
    let _ = (py.get_type::<share::Share>(), py.get_type::<coroutines::CoroutineEnded>());
    let _ = (py.get_type::<side::CheckLater>(), py.get_type::<on_error::Witness>());
}
