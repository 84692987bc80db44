//! Reports an exception that no caller sees (T10).
//!
//! It goes to `on_error`. Without an `on_error`, it goes to the exception handler of the loop that is the executor, but
//! only in the loop's thread. In other cases it goes to the logger `tickwheel`. What `on_error` or the handler raises
//! is logged too, with both tracebacks. What the logger raises goes to `sys.unraisablehook`, together with all earlier
//! exceptions. So a report never loses an exception and never raises into an executor. The first report that needs
//! `logging` imports it.
//!
//! All of this runs Python code: no native lock may be held.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::tools::errors;
use crate::tools::made_once::intern;
use crate::values::callback_scope;
use crate::values::callback_target;
use crate::values::coroutine_functions;
use crate::values::coroutines;
use crate::values::logged_failures::LoggedFailures;

/// An exception, and where it came from.
pub(crate) struct Failure<'a, 'py> {
    /// The timer's name; `None` for an operation that is on no timer.
    pub(crate) timer: Option<&'a str>,
    /// The loop that is the timer's executor.
    pub(crate) event_loop: Option<Bound<'py, PyAny>>,
    pub(crate) on_error: Option<Bound<'py, PyAny>>,
    /// What the log has of the same timer.
    pub(crate) logged: Option<&'a LoggedFailures>,
    /// The first argument of `on_error`.
    pub(crate) task: &'a Bound<'py, PyAny>,
    /// The name that the user gave the task.
    pub(crate) name: Option<Py<PyString>>,
    pub(crate) source: Source<'a>,
    pub(crate) error: PyErr,
}

/// What raised the exception.
pub(crate) enum Source<'a> {
    /// The callback of a task; `None` for its `run`.
    Task { callback: Option<&'a Py<PyAny>> },
    /// The callback of a batch.
    Batch { callback: Option<&'a Py<PyAny>> },
    /// A method of an operation, and the name of its purgatory.
    Operation { purgatory: Option<&'a str>, method: Option<&'a str> },
}

/// Reports a failure. If `on_error` or the logger raises `KeyboardInterrupt` or `SystemExit`, it returns that with
/// `propagate`, and logs it without. On a strict timer it returns the failure itself.
pub(crate) fn report(py: Python<'_>, failure: &Failure<'_, '_>, propagate: bool) -> PyResult<()> {
    if propagate && callback_scope::is_strict() {
        return Err(failure.error.clone_ref(py));
    }
    let error = failure.error.clone_ref(py).into_value(py).into_bound(py);
    let reported = match &failure.on_error {
        Some(on_error) => {
            on_error.call1((failure.task, &error)).and_then(|reported| coroutines::check_on_error_result(&reported))
        }
        None => pass_to_loop_or_log(failure, &error),
    };
    let Err(second) = reported else { return Ok(()) };
    let second = second.into_value(py).into_bound(py);
    let linked = link(&second, &error);
    if propagate && callback_scope::is_exit(py, &PyErr::from_value(second.clone().into_any())) {
        return Err(PyErr::from_value(second.into_any()));
    }
    let what = failure.on_error.as_ref().map_or("the report of a failure", |_| "on_error");
    let logged = linked.and_then(|()| {
        let what = format!("{}{what} failed", prefix(failure));
        let told = limited(failure, &what, what.clone(), &second)?;
        told.map_or(Ok(()), |(text, is_full)| log(py, &text, is_full.then_some(&second)))
    });
    let Err(third) = logged else { return Ok(()) };
    if propagate && callback_scope::is_exit(py, &third) {
        let _ = link(third.value(py), &second);
        return Err(third);
    }
    // The hook prints no context. The last exception comes first; the others are its cause.
    let third = third.into_value(py).into_bound(py);
    let is_new = !second.is(&third);
    for error in [Some(third), is_new.then_some(second), Some(error)].into_iter().flatten() {
        PyErr::from_value(error.into_any()).write_unraisable(py, Some(failure.task));
    }
    Ok(())
}

fn pass_to_loop_or_log(failure: &Failure<'_, '_>, error: &Bound<'_, PyBaseException>) -> PyResult<()> {
    let py = error.py();
    let (what, message) = describe(failure)?;
    let event_loop = match &failure.event_loop {
        Some(event_loop) if callback_target::is_loop_of_this_thread(event_loop)? => Some(event_loop),
        _ => None,
    };
    // A handler of the program gets each, as `on_error` does. The loop's own one logs it.
    let has_handler = match event_loop.map(|it| it.getattr_opt(intern!(py, "get_exception_handler"))).transpose()? {
        Some(Some(get)) => !get.call0()?.is_none(),
        other => other.is_some(),
    };
    let told = if has_handler { Some((message, true)) } else { limited(failure, &what, message, error)? };
    let Some((text, is_full)) = told else { return Ok(()) };
    let Some(event_loop) = event_loop else { return log(py, &text, is_full.then_some(error)) };
    let context = PyDict::new(py);
    context.set_item(intern!(py, "message"), text)?;
    if is_full {
        context.set_item(intern!(py, "exception"), error)?;
    }
    context.set_item(intern!(py, "timer_task"), failure.task)?;
    event_loop.call_method1(intern!(py, "call_exception_handler"), (context,)).map(drop)
}

/// As [`LoggedFailures::limit`]. What is on no timer is told each time.
fn limited(
    failure: &Failure<'_, '_>,
    what: &str,
    message: String,
    error: &Bound<'_, PyBaseException>,
) -> PyResult<Option<(String, bool)>> {
    let Some(logged) = failure.logged else { return Ok(Some((message, true))) };
    logged.limit(what, message, error)
}

fn log(py: Python<'_>, message: &str, traceback: Option<&Bound<'_, PyBaseException>>) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", ("tickwheel",))?;
    let options = PyDict::new(py);
    options.set_item("exc_info", traceback)?;
    logger.call_method("error", ("%s", message), Some(&options)).map(drop)
}

/// Appends the first exception to the context of the second one, so that a traceback shows both.
fn link<'py>(second: &Bound<'py, PyBaseException>, first: &Bound<'py, PyBaseException>) -> PyResult<()> {
    let context = intern!(second.py(), "__context__");
    // The chain may already be circular.
    let ends_in = |from: &Bound<'py, PyBaseException>, to: &Bound<'py, PyBaseException>| {
        let mut last = from.clone().into_any();
        for _ in 0..100 {
            let next = last.getattr(context)?;
            if last.is(to) || next.is_none() {
                break;
            }
            last = next;
        }
        Ok::<_, PyErr>(last)
    };
    if ends_in(first, second)?.is(second) {
        return Ok(());
    }
    let last = ends_in(second, first)?;
    if !last.is(first) && last.getattr(context)?.is_none() {
        last.setattr(context, first)?;
    }
    Ok(())
}

fn prefix(failure: &Failure<'_, '_>) -> String {
    failure.timer.map_or_else(String::new, |timer| format!("timer '{timer}': "))
}

/// Names the timer and the callback; of an operation, its purgatory and the method. Then the same with the task's name.
fn describe(failure: &Failure<'_, '_>) -> PyResult<(String, String)> {
    let (task, py) = (failure.task, failure.task.py());
    let name_of = |callback: &Py<PyAny>| coroutine_functions::callback_name(callback.bind(py));
    let what = match failure.source {
        Source::Batch { callback: Some(callback) } => format!("callback {} of a batch", name_of(callback)?),
        Source::Batch { callback: None } => "a batch".to_owned(),
        Source::Operation { purgatory, method } => {
            let purgatory = purgatory.map_or_else(String::new, |name| format!("purgatory '{name}': "));
            let method = method.map_or_else(String::new, |method| format!(".{method}"));
            format!("{purgatory}operation {}{method}", class_name(task)?)
        }
        Source::Task { callback: Some(callback) } => format!("callback {}", name_of(callback)?),
        Source::Task { callback: None } => format!("callback {}.run", class_name(task)?),
    };
    let name = failure.name.as_ref().map_or_else(String::new, |name| format!(" of task '{}'", name.bind(py)));
    let verb = if errors::is_rejected(py, &failure.error) { "was refused by the executor" } else { "failed" };
    let of = format!("{}{what}", prefix(failure));
    Ok((format!("{of} {verb}"), format!("{of}{name} {verb}")))
}

fn class_name(object: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(object.get_type().qualname()?.to_string())
}
