//! In which context a callback will run, and that only an asyncio loop runs coroutine functions (T8).
//!
//! Unless the executor is a loop, an add keeps no context by default: it would hold memory until the timer fires.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::core::timer_core::{Driver, TimerCore};
use crate::tools::describe;
use crate::tools::made_once::MadeOnce;
use crate::values::coroutine_functions;

static CONTEXT: MadeOnce<Py<PyType>> = MadeOnce::new();
static COPY_CONTEXT: MadeOnce<Py<PyAny>> = MadeOnce::new();

/// The context in which a callback will run: the given one; or, for "copy" and for a loop, a copy of the current one. `None` for
/// that of the thread that calls it.
#[inline]
pub(crate) fn context_of_add(
    core: &TimerCore,
    given: Option<&Bound<'_, PyAny>>,
    py: Python<'_>,
) -> PyResult<Option<Py<PyAny>>> {
    if given.is_none() && !core.callees.has_loop() { Ok(None) } else { kept_context(given, py).map(Some) }
}

#[cold]
fn kept_context(given: Option<&Bound<'_, PyAny>>, py: Python<'_>) -> PyResult<Py<PyAny>> {
    let Some(given) = given.filter(|given| given.extract().unwrap_or("") != "copy") else {
        return Ok(COPY_CONTEXT.import(py, "contextvars", "copy_context")?.call0()?.unbind());
    };
    // A class without subclasses; pyo3 does not name it in a build for the limited API.
    if given.get_type().is(CONTEXT.import(py, "contextvars", "Context")?) {
        return Ok(given.clone().unbind());
    }
    let given = describe::type_and_value(given)?;
    Err(PyTypeError::new_err(format!("context must be a contextvars.Context or 'copy', got {given}: or leave it out")))
}

/// Refuses a coroutine function if the executor is not a loop.
#[inline]
pub(crate) fn check_callback(core: &TimerCore, callback: &Bound<'_, PyAny>) -> PyResult<()> {
    if coroutine_functions::is_known_plain(callback) { Ok(()) } else { check_new_callback(core, callback) }
}

#[cold]
fn check_new_callback(core: &TimerCore, callback: &Bound<'_, PyAny>) -> PyResult<()> {
    if coroutine_functions::is_coroutine_function(callback)? && !core.callees.has_loop() {
        return Err(coroutine_function_refused(
            core,
            &format!("callback {}", coroutine_functions::callback_name(callback)?),
        ));
    }
    Ok(())
}

pub(crate) fn coroutine_function_refused(core: &TimerCore, what: &str) -> PyErr {
    let way = match core.driver {
        Driver::Manual => format!("timer '{}' runs callbacks itself: ", core.name), // it has no executor
        _ => format!("make timer '{}' with executor=loop, or ", core.name),
    };
    let stop = if core.driver == Driver::Manual { ", and" } else { ":" };
    PyTypeError::new_err(format!(
        "{what} is a coroutine function, which only an asyncio loop can run{stop} {way}pass a function that calls \
         asyncio.run_coroutine_threadsafe"
    ))
}
