//! Whether a callback is a coroutine function. `after`, `at`, `add` and `add_many` refuse one if the executor is not a
//! loop (T8).
//!
//! Only functions and methods are looked at, by the flags of their code. A coroutine that any other callback returns is
//! closed and reported when it has been called.
//!
//! Cost: most callbacks are plain functions, and an add checks one static cache of code objects of plain functions. The
//! cache keeps the code objects alive; they refer to constants only.

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyFunction, PyString, PyType, PyWeakrefReference};

use crate::tools::args;
use crate::tools::gil_cell::GilCell;
use crate::tools::made_once::{MadeOnce, intern};
use crate::values::function_parts::{code_of, function_of_method};

/// The flag of a code object that is an `async def` (the `inspect` module's `CO_COROUTINE`).
const CO_COROUTINE: u32 = 0x80;

/// How many nested partials are unwrapped.
const MOST_PARTIALS: usize = 100;
/// `Py_TPFLAGS_HEAPTYPE`, as of a class that was made by a `class` statement.
const HEAP_TYPE: u64 = 1 << 9;

/// Code objects that are not coroutine functions, by a hash of their address.
static PLAIN: [GilCell<Option<Py<PyAny>>>; 64] = [const { GilCell::new(None) }; 64];

static METHOD: MadeOnce<Py<PyType>> = MadeOnce::new();
static WEAK_METHOD: MadeOnce<Py<PyType>> = MadeOnce::new();
static PARTIAL: MadeOnce<Py<PyType>> = MadeOnce::new();

/// Whether it is a plain function that was seen before, or a C function. Most callbacks are.
#[inline]
pub(crate) fn is_known_plain(callback: &Bound<'_, PyAny>) -> bool {
    if let Ok(function) = callback.cast_exact::<PyFunction>() {
        return code_of(function).is_some_and(|code| holds(entry_of(&code), &code));
    }
    callback.is_exact_instance_of::<PyCFunction>()
}

fn entry_of(code: &Bound<'_, PyAny>) -> &'static GilCell<Option<Py<PyAny>>> {
    let address = code.as_ptr() as usize;
    &PLAIN[(address >> 5 ^ address >> 11) % PLAIN.len()]
}

fn holds(entry: &GilCell<Option<Py<PyAny>>>, code: &Bound<'_, PyAny>) -> bool {
    entry.with(code.py(), |plain| plain.as_ref().is_some_and(|plain| plain.is(code)))
}

/// Whether it is a function or a method that was made by `async def`.
pub(crate) fn is_coroutine_function(callback: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(function) = callback.cast_exact::<PyFunction>() {
        return is_async(function);
    }
    if callback.get_type().is(METHOD.import(callback.py(), "types", "MethodType")?)
        && let Some(function) = function_of_method(callback)
    {
        return is_async(&function);
    }
    Ok(false)
}

/// Whether it is a `weak_method` whose object is gone: a call of it does nothing any more.
pub(crate) fn is_of_gone_object(callback: &Bound<'_, PyAny>) -> bool {
    let py = callback.py();
    let is_gone = || -> PyResult<bool> {
        let function = unwrap_partials(callback)?;
        let is_weak = function.get_type().is(WEAK_METHOD.import(py, "tickwheel.weak", "weak_method")?);
        Ok(is_weak && function.getattr(intern!(py, "_method"))?.call0()?.is_none())
    };
    is_gone().unwrap_or(false) // a partial of the user may raise: then the calls go on
}

/// The function inside a `functools.partial` or a method, which may be nested; any other object is returned as it is. A
/// partial may even contain itself: then the result is one of them.
pub(crate) fn unwrap_partials<'py>(callback: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = callback.py();
    let mut function = callback.clone();
    for _ in 0..MOST_PARTIALS {
        if function.is_instance(PARTIAL.import(py, "functools", "partial")?)? {
            function = function.getattr(intern!(py, "func"))?;
        } else if function.get_type().is(METHOD.import(py, "types", "MethodType")?) {
            function = function.getattr(intern!(py, "__func__"))?;
        } else {
            break;
        }
    }
    Ok(function)
}

#[inline]
fn is_async(function: &Bound<'_, PyFunction>) -> PyResult<bool> {
    let Some(code) = code_of(function) else { return Ok(false) };
    let entry = entry_of(&code);
    if holds(entry, &code) { Ok(false) } else { is_async_code(entry, &code) }
}

#[cold]
fn is_async_code(entry: &GilCell<Option<Py<PyAny>>>, code: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = code.py();
    let flags: u32 = code.getattr(intern!(py, "co_flags"))?.extract()?;
    let is_async = flags & CO_COROUTINE != 0;
    if !is_async {
        let old = entry.with(py, |plain| plain.replace(code.clone().unbind()));
        drop(old);
    }
    Ok(is_async)
}

/// `TypeError` if `on_error` is a coroutine function: no failure would ever reach it.
pub(crate) fn check_on_error(on_error: &Bound<'_, PyAny>) -> PyResult<()> {
    args::callable(on_error, "on_error")?;
    // A function that the collector has cleared crashes when it is called, and only a weak reference shows that it was
    // cleared.
    let flags: u64 = on_error.get_type().getattr("__flags__")?.extract()?;
    if flags & HEAP_TYPE == 0 && PyWeakrefReference::new(on_error).is_err() {
        let class = on_error.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "on_error must be a function, a method or an object of a class, got {class}: pass the function itself"
        )));
    }
    if is_coroutine_function(on_error)? {
        let name = callback_name(on_error)?;
        return Err(PyTypeError::new_err(format!(
            "on_error must be a plain function, got the coroutine function {name}: use a plain function that passes the exception \
             to a loop"
        )));
    }
    Ok(())
}

/// `TypeError` if a method of an operation's class is a coroutine function: nothing would run it.
pub(crate) fn check_method(
    class: &Bound<'_, PyType>,
    base: &Bound<'_, PyType>,
    name: &Bound<'_, PyString>,
) -> PyResult<()> {
    let method = class.getattr(name)?;
    let is_plain = is_known_plain(&method) || method.is(&base.getattr(name)?);
    if !is_plain && is_coroutine_function(&method)? {
        return Err(PyTypeError::new_err(format!(
            "{}.{name} is a coroutine function, which an operation does not run: make it a plain one, which may call \
             asyncio.run_coroutine_threadsafe",
            class.qualname()?
        )));
    }
    Ok(())
}

/// The name of a callback in the source code. Its attributes may be any object: a mock has all of them.
pub(crate) fn callback_name(callback: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = callback.py();
    let mut function = unwrap_partials(callback)?;
    if function.get_type().is(WEAK_METHOD.import(py, "tickwheel.weak", "weak_method")?) {
        let method = function.getattr(intern!(py, "_method"))?.call0()?;
        function = if method.is_none() { function } else { method };
    }
    match function.getattr(intern!(py, "__qualname__")) {
        Ok(name) if name.is_instance_of::<PyString>() => Ok(name.to_string()),
        Err(exit) if !exit.is_instance_of::<PyException>(py) => Err(exit),
        _ => Ok(function.get_type().qualname()?.to_string()),
    }
}
