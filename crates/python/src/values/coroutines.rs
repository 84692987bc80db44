//! Whether an object is a coroutine, and what closes a coroutine that is not run (T8).

use std::fmt::Display;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};

use crate::tools::made_once::{MadeOnce, intern};

static COROUTINE: MadeOnce<Py<PyType>> = MadeOnce::new();
static COROUTINE_LIKE: MadeOnce<Py<PyAny>> = MadeOnce::new();

/// Whether it is a coroutine, or an object that asyncio accepts as one.
pub(crate) fn is_coroutine(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    if object.is_none() || is_plain_value(object) {
        return Ok(false); // most are, and the question to the abstract class costs more than a callback
    }
    if object.get_type().is(COROUTINE.import(py, "types", "CoroutineType")?) {
        return Ok(true);
    }
    object.is_instance(COROUTINE_LIKE.import(py, "collections.abc", "Coroutine")?)
}

fn is_plain_value(object: &Bound<'_, PyAny>) -> bool {
    object.is_exact_instance_of::<PyBool>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyString>()
        || object.is_exact_instance_of::<PyBytes>()
        || object.is_exact_instance_of::<PyTuple>()
        || object.is_exact_instance_of::<PyList>()
        || object.is_exact_instance_of::<PyDict>()
}

/// If `on_error` returned a coroutine, closes it and returns an error.
pub(crate) fn check_on_error_result(returned: &Bound<'_, PyAny>) -> PyResult<()> {
    check_plain(returned, "on_error", "have it pass the exception to a loop")
}

/// As [`check_on_error_result`], for a method of an operation.
pub(crate) fn check_method_result(returned: &Bound<'_, PyAny>, method: &Bound<'_, PyString>) -> PyResult<()> {
    check_plain(returned, method, "have it call loop.call_soon_threadsafe or asyncio.run_coroutine_threadsafe")
}

fn check_plain(returned: &Bound<'_, PyAny>, what: impl Display, instead: &str) -> PyResult<()> {
    if is_coroutine(returned)? {
        returned.call_method0(intern!(returned.py(), "close"))?;
        return Err(PyTypeError::new_err(format!("{what} returned a coroutine, which is not run: {instead}")));
    }
    Ok(())
}
