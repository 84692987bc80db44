//! The bindings: `tickwheel._native`.
//!
//! Each folder is a floor. A file uses its own floor and those below it, never one above, and no files use each other in a
//! circle: `tests/python/test_layout.py` reads the imports. From the lowest floor to the highest:
//!
//! 0. `tools`: they know nothing of timers. Locks and the GIL, forks, the end of the interpreter, errors, arguments.
//! 1. `values`: what is due, where callbacks run and how they are called, keys.
//! 2. `core`: what a timer, its tasks and its threads have in common.
//! 3. `scheduled`: tasks and batches.
//! 4. `operations`: what waits in a purgatory.
//! 5. `engine`: what happens to tasks. They are claimed and called, or leave the timer.
//! 6. `driving`: the executor's thread, and the class `Timer`.
//! 7. `classes`: `SystemTimer`, `ManualTimer`, `DelayedOperationPurgatory`, and the timers of an event loop.
//! 8. to 12. `delivery`: the engine of delivery, and sinks that are Python objects; and this file, which makes the module.
//!
//! `docs/internals/design.md` says what is in which file, and which eight rules the bindings keep at the two borders.

#![expect(clippy::unused_self, reason = "Python calls a method with self, used or not")]

const _: () =
    assert!(tickwheel::internal::sync::SURVIVES_FORK, "build without the feature `parking_lot` of tickwheel: T12");

mod classes;
mod core;
mod delivery;
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
    tools::interpreters::check_main(py)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    tools::errors::add_to(module)?;
    module.add_class::<scheduled::task_object::TimerTask>()?;
    module.add_class::<scheduled::batch::TaskBatch>()?;
    module.add_class::<scheduled::periodic::PeriodicTask>()?;
    module.add_class::<scheduled::loop_series::LoopSeries>()?;
    module.add_class::<scheduled::loop_series::LoopInstant>()?;
    module.add_class::<driving::timer_object::Timer>()?;
    module.add_class::<classes::system::SystemTimer>()?;
    module.add_class::<classes::manual::ManualTimer>()?;
    module.add_class::<operations::operation_object::DelayedOperation>()?;
    module.add_class::<classes::purgatory_object::DelayedOperationPurgatory>()?;
    module.add_class::<classes::loop_objects::LoopTimers>()?;
    module.add_class::<classes::loop_objects::LoopHandle>()?;
    module.add_class::<engine::recording::Replay>()?;
    scheduled::task::set_deadline_cancelled(operations::operation::deadline_cancelled);
    make_other_classes(py);
    module.add_function(wrap_pyfunction!(tools::native_lock::_attached_by_reaper, module)?)?;
    module.add_function(wrap_pyfunction!(tools::times::_delay_s, module)?)?;
    module.add_function(wrap_pyfunction!(tools::times::_time_s, module)?)?;
    module.add_function(wrap_pyfunction!(tools::python_clock::is_replaced, module)?)?;
    module.add("_running_timers", PyDict::new(py))?;
    module.add("_ending_threads", PyList::empty(py))?;
    module.add_function(wrap_pyfunction!(engine::at_exit::_leave_timers_to_parent, module)?)?;
    let at_exit = wrap_pyfunction!(engine::at_exit::_shutdown_at_exit, module)?;
    py.import("atexit")?.call_method1("register", (at_exit,))?;
    add_delivery(module)?; // its hook comes after this one, so it is called before: sinks are still called then
    module.delattr("__all__")?; // pyo3 lists the private names in it as well; the public ones are in `tickwheel`
    tools::fork::register_hook(in_child).map_err(|error| tools::errors::os_error(py, &error))?;
    Ok(())
}

fn add_delivery(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<delivery::values::attempt::Delivery>()?;
    module.add_class::<delivery::engine::engine_class::DeliveryEngine>()?;
    module.add_class::<delivery::values::measures::EngineMeasures>()?;
    module.add_class::<delivery::values::readers::NdjsonLines>()?;
    module.add_class::<delivery::values::readers::CsvRows>()?;
    module.add_class::<delivery::values::arrow_readers::ArrowRows>()?;
    module.add_class::<delivery::values::arrow_readers::ArrowBody>()?;
    module.add_class::<delivery::values::records::Records>()?;
    module.add_class::<delivery::values::records::Receipt>()?;
    module.add_function(wrap_pyfunction!(delivery::values::records::read_records, module)?)?;
    module.add_function(wrap_pyfunction!(delivery::values::puts::record_fields, module)?)?;
    module.add_function(wrap_pyfunction!(delivery::values::puts::due_ms_of, module)?)?;
    module.add_function(wrap_pyfunction!(delivery::values::settings::rate_per_s, module)?)?;
    module.add_function(wrap_pyfunction!(delivery::values::puts::due_of, module)?)?;
    module.add_function(wrap_pyfunction!(delivery::values::puts::rfc_3339, module)?)?;
    delivery::values::operations::add_operations(module)?;
    delivery::values::settings::add_settings(module)?;
    module.add("MAX_DUE_MS", tickwheel_delivery::internal::times::MAX_DUE_MS)?;
    module.add("MOST_PAUSED_KEYS", tickwheel_delivery::internal::MOST_PAUSED_KEYS)?;
    module.add("OTHER_CONTENT", tickwheel_delivery::internal::OTHER_CONTENT)?;
    module.add("PARTITIONS", tickwheel_delivery::internal::PARTITIONS)?;
    module.add_class::<delivery::sinks::destination::Destination>()?;
    module.add_class::<delivery::sinks::coroutine_sink::CoroutineCalls>()?;
    module.add_class::<delivery::sinks::coroutine_sink::CoroutineCall>()?;
    module.add_class::<delivery::store::snapshot::StoreSnapshot>()?;
    module.add_function(wrap_pyfunction!(delivery::store::maintenance::check_store, module)?)?;
    module.add_function(wrap_pyfunction!(delivery::store::maintenance::compact_store, module)?)?;
    module.add_function(wrap_pyfunction!(delivery::store::maintenance::backup_store, module)?)?;
    module.add_function(wrap_pyfunction!(delivery::store::maintenance::restore_store, module)?)?;
    module.add_function(wrap_pyfunction!(delivery::store::maintenance::restore_replicated, module)?)?;
    module.add_function(wrap_pyfunction!(delivery::store::maintenance::leave_replication, module)?)?;
    module.add_function(wrap_pyfunction!(delivery::store::maintenance::replication_script, module)?)?;
    module.add_function(wrap_pyfunction!(delivery::store::maintenance::store_owner, module)?)?;
    module.add("_running_deliveries", PyDict::new(py))?;
    let _ = py.get_type::<delivery::engine::core::RunningDelivery>();
    module.add_function(wrap_pyfunction!(delivery::engine::core::refuse_open_store, module)?)?;
    let at_exit = wrap_pyfunction!(delivery::engine::core::_close_deliveries_at_exit, module)?;
    py.import("atexit")?.call_method1("register", (at_exit,))?;
    let hooks = PyDict::new(py);
    hooks.set_item("after_in_child", wrap_pyfunction!(delivery::engine::core::_forget_deliveries_in_child, module)?)?;
    py.import("os")?.getattr("register_at_fork")?.call((), Some(&hooks))?;
    Ok(())
}

/// The system calls it in the child of each fork.
extern "C" fn in_child() {
    tools::fork::count_fork();
    tools::finalizing::forget_calls_after_fork();
}

/// pyo3 makes a class when it is first used, under a lock that a forked child may inherit locked (see
/// `tools::made_once`). So all classes are made now, before there are threads.
fn make_other_classes(py: Python<'_>) {
    let _ = (
        py.get_type::<engine::at_exit::RunningTimer>(),
        py.get_type::<driving::worker::Worker>(),
        py.get_type::<driving::foreign_executor::SubmittedTasks>(),
    );
    let _ = (py.get_type::<core::timer_ref::TimerRef>(), py.get_type::<engine::coroutine_tasks::CoroutineEnded>());
    let _ = py.get_type::<operations::operation_object::LaterCheck>();
}
