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

mod classes;
mod core;
mod driving;
mod engine;
mod operations;
mod scheduled;
mod tools;
mod values;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// The timer, in Rust. Import its names from `tickwheel`.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    tools::errors::add_to(module)?;
    module.add_class::<scheduled::task::TimerTask>()?;
    module.add_class::<scheduled::batch::TaskBatch>()?;
    module.add_class::<driving::timer::Timer>()?;
    module.add_class::<classes::system::SystemTimer>()?;
    module.add_class::<classes::manual::ManualTimer>()?;
    module.add_class::<operations::operation::DelayedOperation>()?;
    module.add_class::<classes::purgatory::DelayedOperationPurgatory>()?;
    module.add_class::<engine::recording::Replay>()?;
    make_other_classes(py);
    module.add_function(wrap_pyfunction!(tools::native_lock::_attached_by_reaper, module)?)?;
    module.add("_live", PyDict::new(py))?;
    module.add("_ending", PyList::empty(py))?;
    module.delattr("__all__")?; // pyo3 lists the private names in it as well; the public ones are in `tickwheel`
    let at_exit = wrap_pyfunction!(engine::at_exit::_shutdown_at_exit, module)?;
    py.import("atexit")?.call_method1("register", (at_exit,))?;
    tools::fork::register_hook(in_child)?;
    Ok(())
}

/// The system calls it in the child of each fork: there is one thread, and what it is inside of counts no more.
extern "C" fn in_child() {
    tools::fork::count_fork();
    tools::finalizing::after_fork();
}

/// pyo3 makes a class at its first use, under a lock that a forked child may inherit taken (see `kept`). So all are made
/// now, before there are threads.
fn make_other_classes(py: Python<'_>) {
    let _ = (
        py.get_type::<engine::at_exit::Live>(),
        py.get_type::<driving::worker::Worker>(),
        py.get_type::<driving::worker::Due>(),
    );
    let _ = (py.get_type::<core::timer_ref::Share>(), py.get_type::<engine::coroutine_tasks::CoroutineEnded>());
    let _ = (py.get_type::<operations::operation_protocol::CheckLater>(), py.get_type::<values::on_error::Witness>());
}
