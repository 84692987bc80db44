//! How a callback is called: in which context, and whether an exit that it raises reaches the caller.

use std::cell::Cell;

use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::tools::made_once::intern;

thread_local! {
    static PROPAGATES: Cell<bool> = const { Cell::new(false) };
    static IS_STRICT: Cell<bool> = const { Cell::new(false) };
}

/// Whether what a callback on this thread raises is for the caller that drives the timer, as in a test.
pub(crate) fn is_strict() -> bool {
    IS_STRICT.get()
}

/// Sets what [`is_strict`] returns; returns the earlier value.
pub(crate) fn set_strict(is_strict: bool) -> bool {
    IS_STRICT.replace(is_strict)
}

/// Whether a `KeyboardInterrupt` of the callback that runs on this thread reaches the caller that drives the timer.
pub(crate) fn propagates() -> bool {
    PROPAGATES.get()
}

/// Sets what [`propagates`] returns; returns the earlier value.
pub(crate) fn set_propagates(propagates: bool) -> bool {
    PROPAGATES.replace(propagates)
}

/// Whether it is an exception that ends the program: `KeyboardInterrupt` or `SystemExit`.
pub(crate) fn is_exit(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyKeyboardInterrupt>(py) || error.is_instance_of::<PySystemExit>(py)
}

/// Calls it, in the context if there is one.
pub(crate) fn call_in_context<'py>(
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
