//! Coroutine functions as callbacks, and the contexts that callbacks run in (T8).
//!
//! A loop runs a coroutine as a task of its own, in the context of the add. No other executor can run one: `after`, `at`,
//! `add` and `add_many` refuse a coroutine function there. A callback that is not seen to be one, and returns a coroutine
//! all the same, has it closed, and that is an error.
//!
//! Cost: an add asks one static cache whether a function's code is known to be that of a plain function. The entries keep
//! code objects alive, which refer to constants only. Unsafe code: to ask a function for its code by attribute takes
//! twenty nanoseconds, and raises an audit event; the C API takes one.
#![expect(unsafe_code, reason = "the C API gives a function's code without an attribute look-up")]

use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyCFunction, PyContext, PyFunction, PySet, PyTuple, PyType};

use super::args;
use super::border::fork_epoch;
use super::gil::GilCell;
use super::report::{self, Failure};
use super::shared::Shared;

/// The flag of a code object that is an `async def` (the `inspect` module's `CO_COROUTINE`).
const CO_COROUTINE: u32 = 0x80;

/// Code objects that are no coroutine functions, by a hash of their address.
static PLAIN: [GilCell<Option<Py<PyAny>>>; 64] = [const { GilCell::new(None) }; 64];

static METHOD: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static PARTIAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static COROUTINE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static COROUTINE_LIKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static IS_COROUTINE_FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static COPY_CONTEXT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

unsafe extern "C" {
    /// `PyMethod_Function` of the C API, which pyo3 does not declare: borrowed.
    fn PyMethod_Function(method: *mut ffi::PyObject) -> *mut ffi::PyObject;
}

/// Refuses a coroutine function where it cannot be run; `what` names it.
#[inline]
pub(super) fn check(shared: &Shared, callback: &Bound<'_, PyAny>) -> PyResult<()> {
    if shared.target.is_loop() || is_known(callback) { Ok(()) } else { check_kind(shared, callback) }
}

#[cold]
fn check_kind(shared: &Shared, callback: &Bound<'_, PyAny>) -> PyResult<()> {
    if is_coroutine_function(callback)? {
        return Err(refuse(shared, &format!("callback {}", report::callback_name(callback)?)));
    }
    Ok(())
}

/// Whether it is a plain function that was seen before, or one of C: most are.
#[inline]
fn is_known(callback: &Bound<'_, PyAny>) -> bool {
    if callback.is_exact_instance_of::<PyFunction>() {
        // SAFETY: it is a function, and alive.
        let code = unsafe { ffi::PyFunction_GetCode(callback.as_ptr()) };
        return holds(entry_of(code), code, callback.py());
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

pub(super) fn refuse(shared: &Shared, what: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "{what} is a coroutine function, which only an asyncio loop can run: make timer '{}' with executor=loop, or pass a \
         function that calls asyncio.run_coroutine_threadsafe",
        shared.name
    ))
}

/// As `inspect.iscoroutinefunction`, which is asked where the type is not one of those that are known.
pub(super) fn is_coroutine_function(callback: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = callback.py();
    if callback.is_exact_instance_of::<PyFunction>() {
        // SAFETY: it is a function, and alive.
        return Ok(unsafe { is_async(py, callback.as_ptr()) });
    }
    if callback.is_exact_instance_of::<PyCFunction>() {
        return Ok(false);
    }
    let class = callback.get_type();
    if class.is(METHOD.import(py, "types", "MethodType")?) {
        // SAFETY: it is a method, alive, and keeps its function alive.
        let function = unsafe { PyMethod_Function(callback.as_ptr()) };
        // SAFETY: as above.
        if unsafe { ffi::PyFunction_Check(function) } != 0 {
            // SAFETY: it is a function, and alive.
            return Ok(unsafe { is_async(py, function) });
        }
    } else if class.is(PARTIAL.import(py, "functools", "partial")?) {
        return is_coroutine_function(&callback.getattr(intern!(py, "func"))?);
    } else if callback.is_instance_of::<PyType>() {
        return Ok(false);
    }
    match IS_COROUTINE_FUNCTION.import(py, "inspect", "iscoroutinefunction")?.call1((callback,)) {
        Ok(is_coroutine) => is_coroutine.is_truthy(),
        // An object whose attributes cannot be read may be called all the same.
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(false),
        Err(exit) => Err(exit),
    }
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
    // SAFETY: as above; a reference of our own is taken.
    let code = unsafe { Bound::from_borrowed_ptr(py, code) };
    is_async_code(entry, &code)
}

#[cold]
fn is_async_code(entry: &GilCell<Option<Py<PyAny>>>, code: &Bound<'_, PyAny>) -> bool {
    let py = code.py();
    let flags = code.getattr(intern!(py, "co_flags")).and_then(|flags| flags.extract::<u32>());
    // A code object has flags.
    let is_async = flags.is_ok_and(|flags| flags & CO_COROUTINE != 0);
    if !is_async {
        let old = entry.with(py, |plain| plain.replace(code.clone().unbind()));
        drop(old);
    }
    is_async
}

/// The context that a callback is to run in: where the executor is a loop, that of the add, or the one that is given.
#[inline]
pub(super) fn context(
    shared: &Shared,
    given: Option<&Bound<'_, PyAny>>,
    py: Python<'_>,
) -> PyResult<Option<Py<PyAny>>> {
    if given.is_none() && !shared.target.is_loop() { Ok(None) } else { loop_context(shared, given, py).map(Some) }
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
    if !shared.target.is_loop() {
        return Err(PyValueError::new_err(format!(
            "context is for timers whose executor is an asyncio loop, and that of timer '{}' is none: pass context.run as \
             callback, with the function as its first argument",
            shared.name
        )));
    }
    Ok(given.clone().unbind())
}

/// Calls it in the context, if there is one.
pub(super) fn call<'py>(
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

/// Runs a coroutine that a callback returned, or closes it and says that nothing can run it.
#[inline]
pub(super) fn settle(
    shared: &Shared,
    task: &Bound<'_, PyAny>,
    callback: Option<&Py<PyAny>>,
    context: Option<&Py<PyAny>>,
    returned: &Bound<'_, PyAny>,
) -> PyResult<()> {
    if !is_coroutine(returned)? {
        return Ok(());
    }
    let Some(event_loop) = shared.target.event_loop() else {
        returned.call_method0(intern!(returned.py(), "close"))?;
        return Err(PyTypeError::new_err(format!(
            "the callback returned a coroutine, which only an asyncio loop can run: make timer '{}' with executor=loop, or \
             call asyncio.run_coroutine_threadsafe in the callback",
            shared.name
        )));
    };
    let started = start(shared, event_loop.bind(returned.py()), task, callback, context, returned);
    if started.is_err() {
        returned.call_method0(intern!(returned.py(), "close"))?;
    }
    started
}

/// Whether this thread runs the loop at this moment.
pub(super) fn is_loop_of_this_thread(event_loop: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(event_loop.py().import("asyncio")?.call_method0("_get_running_loop")?.is(event_loop))
}

fn is_coroutine(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    if object.is_none() || object.is_exact_instance_of::<PyBool>() {
        return Ok(false); // most are
    }
    if object.get_type().is(COROUTINE.import(py, "types", "CoroutineType")?) {
        return Ok(true);
    }
    object.is_instance(COROUTINE_LIKE.import(py, "collections.abc", "Coroutine")?)
}

/// `TypeError` if `on_error` is a coroutine function: no failure would ever reach it.
pub(super) fn check_on_error(on_error: &Bound<'_, PyAny>) -> PyResult<()> {
    args::callable(on_error, "on_error")?;
    if is_coroutine_function(on_error)? {
        let name = report::callback_name(on_error)?;
        return Err(PyTypeError::new_err(format!(
            "on_error must be a plain function, got the coroutine function {name}: pass a function that hands the exception \
             to a loop"
        )));
    }
    Ok(())
}

/// Closes what `on_error` returned if that is a coroutine, which is an error.
pub(super) fn check_told(returned: &Bound<'_, PyAny>) -> PyResult<()> {
    if is_coroutine(returned)? {
        returned.call_method0(intern!(returned.py(), "close"))?;
        return Err(PyTypeError::new_err(
            "on_error returned a coroutine, which is not run: have it hand the exception to a loop",
        ));
    }
    Ok(())
}

fn start(
    shared: &Shared,
    event_loop: &Bound<'_, PyAny>,
    task: &Bound<'_, PyAny>,
    callback: Option<&Py<PyAny>>,
    context: Option<&Py<PyAny>>,
    coroutine: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = coroutine.py();
    let running = running(event_loop)?;
    let ended = CoroutineEnded {
        epoch: fork_epoch(),
        timer: shared.name.clone(),
        event_loop: event_loop.clone().unbind(),
        on_error: shared.on_error.as_ref().map(|on_error| on_error.clone_ref(py)),
        task: task.clone().unbind(),
        callback: callback.map(|callback| callback.clone_ref(py)),
        running: running.clone().unbind(),
    };
    let ended = Bound::new(py, ended)?;
    let create_task = event_loop.getattr(intern!(py, "create_task"))?;
    let asyncio_task = call(context, &create_task, Some(&PyTuple::new(py, [coroutine])?))?;
    running.add(&asyncio_task)?;
    asyncio_task.call_method1(intern!(py, "add_done_callback"), (ended,)).map(drop)
}

/// A loop's tasks that run our coroutines: a loop itself keeps weak references only. It is an attribute of the loop, so
/// that the collector finds a loop that is dropped with tasks undone.
fn running<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PySet>> {
    let name = intern!(event_loop.py(), "_tickwheel_running");
    if let Some(running) = event_loop.getattr_opt(name)? {
        return Ok(running.cast_into()?);
    }
    let running = PySet::empty(event_loop.py())?;
    event_loop.setattr(name, &running)?;
    Ok(running)
}

/// Called by asyncio when a coroutine's task has ended. It keeps what a report needs, and not the timer, which the
/// collector does not see through: so `on_error` is alive as long as the coroutine, and a dropped loop is found.
#[pyclass(frozen, module = "tickwheel._native")]
struct CoroutineEnded {
    /// The process it was made in.
    epoch: u32,
    timer: String,
    event_loop: Py<PyAny>,
    on_error: Option<Py<PyAny>>,
    task: Py<PyAny>,
    callback: Option<Py<PyAny>>,
    running: Py<PySet>,
}

#[pymethods]
impl CoroutineEnded {
    fn __call__(&self, py: Python<'_>, asyncio_task: &Bound<'_, PyAny>) -> PyResult<()> {
        self.running.bind(py).discard(asyncio_task)?;
        if self.epoch != fork_epoch() || asyncio_task.call_method0(intern!(py, "cancelled"))?.is_truthy()? {
            return Ok(());
        }
        let error = asyncio_task.call_method0(intern!(py, "exception"))?;
        if error.is_none() {
            return Ok(());
        }
        let error = PyErr::from_value(error);
        if super::run::is_exit(py, &error) {
            return Ok(()); // the loop has raised it already
        }
        let failure = Failure {
            timer: Some(&self.timer),
            event_loop: Some(&self.event_loop),
            on_error: self.on_error.as_ref(),
            task: self.task.bind(py),
            callback: self.callback.as_ref(),
            error,
        };
        report::report(py, &failure, true)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)?;
        visit.call(&self.on_error)?;
        visit.call(&self.task)?;
        visit.call(&self.callback)?;
        visit.call(&self.running)
    }
}
