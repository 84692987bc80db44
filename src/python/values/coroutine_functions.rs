//! Whether a callback is a coroutine function. `after`, `at`, `add` and `add_many` refuse one if the executor is not a
//! loop (T8).
//!
//! Cost: most callbacks are plain functions, and an add checks one static cache of code objects of plain functions. The
//! cache keeps the code objects alive; they refer to constants only. Unsafe code: reading a function's code by
//! attribute takes twenty nanoseconds and raises an audit event; the C API takes one.
#![expect(unsafe_code, reason = "the C API gives a function's code without an attribute look-up")]

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
#[cfg(Py_3_12)]
use pyo3::types::PyDict;
use pyo3::types::{PyCFunction, PyFunction, PyString, PyType, PyWeakrefReference};

use crate::python::tools::args;
use crate::python::tools::gil_cell::GilCell;
use crate::python::tools::made_once::{MadeOnce, intern};

/// The flag of a code object that is an `async def` (the `inspect` module's `CO_COROUTINE`).
const CO_COROUTINE: u32 = 0x80;

/// How many nested partials are unwrapped.
const MOST_PARTIALS: usize = 100;
/// `Py_TPFLAGS_HEAPTYPE`, as of a class that was made by a `class` statement.
const HEAP_TYPE: u64 = 1 << 9;

/// Code objects that are not coroutine functions, by a hash of their address.
static PLAIN: [GilCell<Option<Py<PyAny>>>; 64] = [const { GilCell::new(None) }; 64];

static METHOD: MadeOnce<Py<PyType>> = MadeOnce::new();
static PARTIAL: MadeOnce<Py<PyType>> = MadeOnce::new();
static IS_COROUTINE_FUNCTION: MadeOnce<Py<PyAny>> = MadeOnce::new();

unsafe extern "C" {
    /// `PyMethod_Function` of the C API, which pyo3 does not declare. Returns a borrowed reference.
    fn PyMethod_Function(method: *mut ffi::PyObject) -> *mut ffi::PyObject;

    /// Also of the C API: where an object keeps its dictionary, which it may not have yet.
    #[cfg(Py_3_12)]
    fn _PyObject_GetDictPtr(object: *mut ffi::PyObject) -> *mut *mut ffi::PyObject;
}

/// Whether it is a plain function that was seen before, or a C function. Most callbacks are.
#[inline]
pub(crate) fn is_known_plain(callback: &Bound<'_, PyAny>) -> bool {
    if callback.is_exact_instance_of::<PyFunction>() {
        // SAFETY: it is a function, and alive.
        let code = unsafe { ffi::PyFunction_GetCode(callback.as_ptr()) };
        // SAFETY: as above.
        return holds(entry_of(code), code, callback.py())
            && !unsafe { may_be_marked(callback.py(), callback.as_ptr()) };
    }
    callback.is_exact_instance_of::<PyCFunction>()
}

fn entry_of(code: *mut ffi::PyObject) -> &'static GilCell<Option<Py<PyAny>>> {
    let address = code as usize;
    &PLAIN[(address >> 5 ^ address >> 11) % PLAIN.len()]
}

fn holds(entry: &GilCell<Option<Py<PyAny>>>, code: *mut ffi::PyObject, py: Python<'_>) -> bool {
    entry.with(py, |plain| plain.as_ref().is_some_and(|plain| plain.as_ptr() == code))
}

/// As `inspect.iscoroutinefunction`, which is called if the type is not one of those checked here.
pub(crate) fn is_coroutine_function(callback: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = callback.py();
    if callback.is_exact_instance_of::<PyFunction>() {
        // SAFETY: it is a function, and alive.
        if !unsafe { may_be_marked(py, callback.as_ptr()) } {
            // SAFETY: as above.
            return Ok(unsafe { is_async(py, callback.as_ptr()) });
        }
        return inspects(callback);
    }
    if callback.is_exact_instance_of::<PyCFunction>() {
        return Ok(false);
    }
    let class = callback.get_type();
    if class.is(METHOD.import(py, "types", "MethodType")?) {
        // SAFETY: it is a method, alive, and keeps its function alive.
        let function = unsafe { PyMethod_Function(callback.as_ptr()) };
        // SAFETY: as above.
        if unsafe { ffi::PyFunction_Check(function) != 0 && !may_be_marked(py, function) } {
            // SAFETY: it is a function, and alive.
            return Ok(unsafe { is_async(py, function) });
        }
        let function = unwrap_partials(callback)?;
        if is_wrapped(&function)? {
            return Ok(false);
        }
        // Not a partial that contains itself: the `inspect` module would unwrap it for ever.
    } else if callback.is_instance(PARTIAL.import(py, "functools", "partial")?)? {
        let function = unwrap_partials(callback)?;
        return if is_wrapped(&function)? { Ok(false) } else { is_coroutine_function(&function) };
    } else if callback.is_instance_of::<PyType>() {
        return Ok(false);
    }
    inspects(callback)
}

/// What `inspect.iscoroutinefunction` returns.
#[cold]
fn inspects(callback: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = callback.py();
    match IS_COROUTINE_FUNCTION.import(py, "inspect", "iscoroutinefunction")?.call1((callback,)) {
        Ok(is_coroutine) => is_coroutine.is_truthy(),
        // An object whose attributes cannot be read may still be called.
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(false),
        Err(exit) => Err(exit),
    }
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

/// Whether `inspect.markcoroutinefunction` may have marked it: it writes a private name to the function's dictionary.
/// Most functions have none, and most others one from `functools.wraps` with a single entry.
///
/// # Safety
/// `function` is an object of the type `function`.
#[cfg(Py_3_12)]
#[inline]
unsafe fn may_be_marked(py: Python<'_>, function: *mut ffi::PyObject) -> bool {
    // SAFETY: it is a function (the caller's promise), and alive. The result is a field of it, or null.
    let dict = unsafe { _PyObject_GetDictPtr(function).as_ref() }.copied().unwrap_or_default();
    // SAFETY: this takes a reference of its own to what the field holds.
    let dict = unsafe { Bound::from_borrowed_ptr_or_opt(py, dict) };
    let Some(dict) = dict.and_then(|dict| dict.cast_into::<PyDict>().ok()) else { return false };
    match dict.len() {
        0 => false,
        1 => !dict.contains(intern!(py, "__wrapped__")).unwrap_or(false),
        _ => true,
    }
}

/// Python before 3.12 has no such mark.
///
/// # Safety
/// None is needed.
#[cfg(not(Py_3_12))]
#[inline]
unsafe fn may_be_marked(_py: Python<'_>, _function: *mut ffi::PyObject) -> bool {
    false
}

/// Whether [`unwrap_partials`] stopped before the end.
fn is_wrapped(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = function.py();
    let is_method = function.get_type().is(METHOD.import(py, "types", "MethodType")?);
    Ok(is_method || function.is_instance(PARTIAL.import(py, "functools", "partial")?)?)
}

/// # Safety
/// `function` is an object of the type `function`.
#[inline]
unsafe fn is_async(py: Python<'_>, function: *mut ffi::PyObject) -> bool {
    // SAFETY: borrowed, of a function (the caller's promise) that is alive.
    let code = unsafe { ffi::PyFunction_GetCode(function) };
    let entry = entry_of(code);
    if holds(entry, code, py) {
        return false;
    }
    // SAFETY: as above; this takes a reference of its own.
    let code = unsafe { Bound::from_borrowed_ptr(py, code) };
    is_async_code(entry, &code)
}

#[cold]
fn is_async_code(entry: &GilCell<Option<Py<PyAny>>>, code: &Bound<'_, PyAny>) -> bool {
    let py = code.py();
    let flags = code.getattr(intern!(py, "co_flags")).and_then(|flags| flags.extract::<u32>());
    // Every code object has flags.
    let is_async = flags.is_ok_and(|flags| flags & CO_COROUTINE != 0);
    if !is_async {
        let old = entry.with(py, |plain| plain.replace(code.clone().unbind()));
        drop(old);
    }
    is_async
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
    let function = unwrap_partials(callback)?;
    match function.getattr(intern!(callback.py(), "__qualname__")) {
        Ok(name) if name.is_instance_of::<PyString>() => Ok(name.to_string()),
        Err(exit) if !exit.is_instance_of::<PyException>(callback.py()) => Err(exit),
        _ => Ok(function.get_type().qualname()?.to_string()),
    }
}
