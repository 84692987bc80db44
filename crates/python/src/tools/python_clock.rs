//! Whether a test has replaced `time.monotonic`. An event loop follows the replacement, as asyncio's loops do (T21).

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict};

use crate::tools::made_once::{MadeOnce, intern};

static TIME: MadeOnce<Py<PyDict>> = MadeOnce::new();

/// Python's own is a C function. A test puts a function in Python or a mock there, and may do so before this module is
/// imported.
#[pyfunction(name = "_is_clock_replaced")]
pub(crate) fn is_replaced(py: Python<'_>) -> PyResult<bool> {
    let time = TIME.get_or_try_init(py, || Ok(py.import("time")?.dict().unbind()))?;
    let monotonic = time.bind(py).get_item(intern!(py, "monotonic"))?;
    Ok(!monotonic.is_some_and(|monotonic| monotonic.is_exact_instance_of::<PyCFunction>()))
}
