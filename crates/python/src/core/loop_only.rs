//! What an add may pass only if the executor is an asyncio loop: a context and a coroutine function (T8).
//!
//! Other timers keep no context: it would hold memory until the timer fires.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::core::timer_core::{Driver, TimerCore};
use crate::tools::describe;
use crate::tools::made_once::MadeOnce;
use crate::values::coroutine_functions;

static CONTEXT: MadeOnce<Py<PyType>> = MadeOnce::new();
static COPY_CONTEXT: MadeOnce<Py<PyAny>> = MadeOnce::new();

/// The context in which a callback will run: the given context, or a copy of the current context. `None` if the
/// executor is not a loop.
#[inline]
pub(crate) fn context_of_add(
    core: &TimerCore,
    given: Option<&Bound<'_, PyAny>>,
    py: Python<'_>,
) -> PyResult<Option<Py<PyAny>>> {
    if given.is_none() && !core.callees.has_loop() { Ok(None) } else { loop_context(core, given, py).map(Some) }
}

#[cold]
fn loop_context(core: &TimerCore, given: Option<&Bound<'_, PyAny>>, py: Python<'_>) -> PyResult<Py<PyAny>> {
    let Some(given) = given else {
        return Ok(COPY_CONTEXT.import(py, "contextvars", "copy_context")?.call0()?.unbind());
    };
    // A class without subclasses; pyo3 does not name it in a build for the limited API.
    if !given.get_type().is(CONTEXT.import(py, "contextvars", "Context")?) {
        let given = describe::type_and_value(given)?;
        return Err(PyTypeError::new_err(format!(
            "context must be a contextvars.Context, got {given}: pass contextvars.copy_context(), or leave it out"
        )));
    }
    if !core.callees.has_loop() {
        return Err(PyValueError::new_err(format!(
            "context is only for timers whose executor is an asyncio loop, which timer '{}' does not have: pass context.run as \
             callback, with the function as its first argument",
            core.name
        )));
    }
    Ok(given.clone().unbind())
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
