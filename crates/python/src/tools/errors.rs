//! The exceptions, and the one place that converts a Rust error into an exception.

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::tools::made_once::{MadeOnce, intern};
use tickwheel::Error;

pub(crate) use root::TickwheelError;

#[expect(clippy::disallowed_types, reason = "the macro's; this class is made with the module")]
mod root {
    use pyo3::create_exception;
    use pyo3::exceptions::PyException;

    create_exception!(
        tickwheel,
        TickwheelError,
        PyException,
        "The base class of the errors that only tickwheel raises."
    );
}

/// The exceptions that are also a `RuntimeError`. These exceptions are made here, because the macro allows only a
/// single base.
static TIMER_ERRORS: MadeOnce<[Py<PyType>; 5]> = MadeOnce::new();

const NAMES: [(&str, &str); 5] = [
    ("TimerClosed", "The timer was shut down: it takes no more tasks."),
    (
        "TimerForked",
        "The timer belongs to the parent process, its threads did not survive the fork: make a new one in the child.",
    ),
    ("TimerFull", "The add would exceed `max_pending`; nothing was added."),
    ("TimerRejected", "The executor refused a task, or the timers of a batch with these `indices`: they did not run."),
    (
        "OperationCancelled",
        "The operation was taken out of its purgatory before it was complete. Waiters of the operation get this.",
    ),
];

/// How many indices the text of an error shows.
const SHOWN: usize = 8;

fn timer_errors(py: Python<'_>) -> PyResult<&[Py<PyType>; 5]> {
    TIMER_ERRORS.get_or_try_init(py, || {
        let bases = PyTuple::new(py, [py.get_type::<TickwheelError>(), py.get_type::<PyRuntimeError>()])?;
        let make = |(name, doc): (&str, &str)| -> PyResult<Py<PyType>> {
            let namespace = PyDict::new(py);
            namespace.set_item("__doc__", doc)?;
            namespace.set_item("__module__", "tickwheel")?;
            if name == "TimerRejected" {
                namespace.set_item("indices", PyTuple::empty(py))?;
            }
            Ok(py.get_type::<PyType>().call1((name, &bases, namespace))?.cast_into::<PyType>()?.unbind())
        };
        let [closed, forked, full, rejected, cancelled] = NAMES;
        Ok([make(closed)?, make(forked)?, make(full)?, make(rejected)?, make(cancelled)?])
    })
}

fn make(py: Python<'_>, which: usize, text: String) -> PyErr {
    match timer_errors(py) {
        Ok(errors) => PyErr::from_type(errors[which].bind(py).clone(), text),
        Err(error) => error,
    }
}

pub(crate) fn timer_closed(py: Python<'_>, timer: &str) -> PyErr {
    make(py, 0, format!("timer '{timer}' was shut down and takes no more tasks: make a new one"))
}

pub(crate) fn timer_forked(py: Python<'_>, timer: &str) -> PyErr {
    let text = format!(
        "timer '{timer}' belongs to the parent process, its threads did not survive the fork: make a new one in the child"
    );
    make(py, 1, text)
}

pub(crate) fn operation_forked(py: Python<'_>) -> PyErr {
    let text = "this operation belongs to the parent process, where it may be waited for: make a new one in the child";
    make(py, 1, text.to_owned())
}

pub(crate) fn purgatory_closed(py: Python<'_>, name: &str) -> PyErr {
    make(py, 0, format!("purgatory '{name}' was shut down and takes no more operations: make a new one"))
}

pub(crate) fn interpreter_exiting(py: Python<'_>) -> PyErr {
    make(py, 0, "the interpreter is exiting: timers and purgatories take no more calls".to_owned())
}

/// `indices`: of the timers of a batch; empty for a task.
pub(crate) fn task_rejected(py: Python<'_>, timer: &str, why: &str, indices: Vec<u32>) -> PyErr {
    let (what, it, again) = if indices.is_empty() {
        ("a task that was due".to_owned(), "it", "add it again")
    } else {
        (described(&indices), "they", "add these deadlines again")
    };
    let text = format!(
        "the executor of timer '{timer}' refused {what} ({why}): {it} did not run; {again} on a timer whose executor is open"
    );
    let error = make(py, 3, text);
    // The class has an empty tuple.
    let is_set = indices.is_empty() || error.value(py).setattr(intern!(py, "indices"), indices).is_ok();
    debug_assert!(is_set, "an exception takes attributes");
    error
}

/// Timers of a batch, described by the first of their indices.
fn described(indices: &[u32]) -> String {
    let first: Vec<_> = indices.iter().take(SHOWN).map(u32::to_string).collect();
    let more = if indices.len() > SHOWN { ", ... (all of them in `indices`)" } else { "" };
    let timers = if indices.len() == 1 { "timer" } else { "timers" };
    format!("{} {timers} of a batch, with the index {}{more}", indices.len(), first.join(", "))
}

/// Whether the error was made by [`task_rejected`].
pub(crate) fn is_rejected(py: Python<'_>, error: &PyErr) -> bool {
    timer_errors(py).is_ok_and(|errors| error.is_instance(py, errors[3].bind(py)))
}

/// The error for pickling a timer, a task or a batch (T12).
pub(crate) fn not_picklable(what: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "cannot pickle a {what}: its threads and what is pending belong to this process; make one where it is used"
    ))
}

/// An `OSError` with its `errno`, which Python also turns into the subclass for that number.
pub(crate) fn os_error(py: Python<'_>, error: &std::io::Error) -> PyErr {
    let Some(errno) = error.raw_os_error() else { return PyOSError::new_err(error.to_string()) };
    let text = py.import("os").and_then(|os| os.getattr("strerror")?.call1((errno,))?.extract::<String>());
    PyOSError::new_err((errno, text.unwrap_or_else(|_| error.to_string())))
}

/// Converts an error of the core.
pub(crate) fn from_core(py: Python<'_>, timer: &str, error: &Error) -> PyErr {
    match error {
        Error::Closed => timer_closed(py, timer),
        Error::Full { .. } => make(py, 2, format!("timer '{timer}' is full: {error}")),
        _ => PyValueError::new_err(error.to_string()), // it is invalid
    }
}

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("TickwheelError", py.get_type::<TickwheelError>())?;
    for (error, (name, _)) in timer_errors(py)?.iter().zip(NAMES) {
        module.add(name, error)?;
    }
    Ok(())
}
