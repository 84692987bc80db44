//! The contexts that callbacks run in where the executor is a loop: that of the add, or one that is given (T8).
//!
//! Nowhere else is a context kept: it would hold memory until the timer fires.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyContext, PyTuple};

use crate::python::core::timer_core::Shared;
use crate::python::tools::args;
use crate::python::tools::made_once::{Kept, intern};

static COPY_CONTEXT: Kept<Py<PyAny>> = Kept::new();

/// The context that a callback is to run in: where the executor is a loop, that of the add, or the one that is given.
#[inline]
pub(crate) fn of_add(shared: &Shared, given: Option<&Bound<'_, PyAny>>, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
    if given.is_none() && !shared.callees.has_loop() { Ok(None) } else { loop_context(shared, given, py).map(Some) }
}

#[cold]
fn loop_context(shared: &Shared, given: Option<&Bound<'_, PyAny>>, py: Python<'_>) -> PyResult<Py<PyAny>> {
    let Some(given) = given else {
        return Ok(COPY_CONTEXT.import(py, "contextvars", "copy_context")?.call0()?.unbind());
    };
    if !given.is_instance_of::<PyContext>() {
        let given = args::shown(given)?;
        return Err(PyTypeError::new_err(format!(
            "context must be a contextvars.Context, got {given}: pass contextvars.copy_context(), or leave it out"
        )));
    }
    if !shared.callees.has_loop() {
        return Err(PyValueError::new_err(format!(
            "context is for timers whose executor is an asyncio loop, and that of timer '{}' is none: pass context.run as \
             callback, with the function as its first argument",
            shared.name
        )));
    }
    Ok(given.clone().unbind())
}

/// Calls it in the context, if there is one.
pub(crate) fn call<'py>(
    context: Option<&Py<PyAny>>,
    callback: &Bound<'py, PyAny>,
    args: Option<&Bound<'py, PyTuple>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = callback.py();
    match (context, args) {
        (None, None) => callback.call0(),
        (None, Some(args)) => callback.call1(args.clone()),
        (Some(context), None) => context.bind(py).call_method1(intern!(py, "run"), (callback,)),
        (Some(context), Some(args)) => {
            let all = (callback,).into_pyobject(py)?.as_sequence().concat(args.as_sequence())?.to_tuple()?;
            context.bind(py).call_method1(intern!(py, "run"), all)
        }
    }
}
