//! The errors of delivery as the exceptions of `tickwheel.delivery.base.errors`, and back.

use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;

use crate::tools::describe::text_or;
use crate::tools::made_once::imported;
use tickwheel_delivery::internal::{LONGEST_REASON, cut};
use tickwheel_delivery::{BadRecord, DeliveryError, Verdict};

const MODULE: &str = "tickwheel.delivery.base.errors";

fn made(class: PyResult<&Bound<'_, PyAny>>, text: &str) -> PyErr {
    match class.and_then(|class| class.call1((text,))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// Makes an exception of an error.
pub(crate) fn to_python(py: Python<'_>, error: &DeliveryError) -> PyErr {
    let text = error.to_string();
    match error {
        DeliveryError::Usage(_) => made(imported!(py, MODULE, "WrongUsage"), &text),
        DeliveryError::Store(_) => made(imported!(py, MODULE, "StoreFailed"), &text),
        DeliveryError::StoreWaits(_) => made(imported!(py, MODULE, "StoreUnavailable"), &text),
        DeliveryError::Failed(_) => made(imported!(py, MODULE, "DeliveryFailed"), &text),
        _ => PyRuntimeError::new_err(text), // it is closed
    }
}

/// Makes the exception `BadRecord`.
pub(crate) fn bad_record(py: Python<'_>, bad: &BadRecord) -> PyErr {
    let made = imported!(py, MODULE, "BadRecord").and_then(|class| class.call1((&bad.reason, &bad.allowed)));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// Makes the exception `DeliveryFailed`: the system gives no descriptor.
pub(crate) fn no_descriptor(py: Python<'_>, error: &std::io::Error) -> PyErr {
    to_python(py, &DeliveryError::Failed(format!("the system gives no descriptor for an event loop: {error}")))
}

/// Makes the exception `WrongUsage`.
pub(crate) fn wrong_usage(py: Python<'_>, text: &str) -> PyErr {
    made(imported!(py, MODULE, "WrongUsage"), text)
}

/// Makes an error from a Python exception. The error ends a run, or keeps it from beginning.
pub(crate) fn from_python(py: Python<'_>, error: &PyErr) -> DeliveryError {
    let is = |class: PyResult<&Bound<'_, PyAny>>| class.is_ok_and(|class| error.is_instance(py, class));
    if is(imported!(py, MODULE, "DeliveryFailed")) {
        DeliveryError::Failed(text_of(py, error))
    } else if is(imported!(py, MODULE, "WrongUsage")) {
        DeliveryError::Usage(text_of(py, error))
    } else {
        DeliveryError::Failed(reason_of(py, error))
    }
}

/// Reads an exception of a sink, or an exception that it returned for one delivery.
///
/// Errors: it ends the run.
pub(crate) fn of_sink(py: Python<'_>, error: &PyErr) -> Result<Verdict, DeliveryError> {
    let is = |class: PyResult<&Bound<'_, PyAny>>| class.is_ok_and(|class| error.is_instance(py, class));
    if is(imported!(py, MODULE, "DeliveryFailed")) {
        return Err(from_python(py, error));
    }
    let again_ms = || -> Option<u64> {
        let asked = error.value(py).getattr("retry_after_s").ok()?;
        let beyond = || asked.gt(0).map(|is_longer| if is_longer { f64::INFINITY } else { 0.0 }); // of an integer
        let after_s: f64 = asked.extract().or_else(|_| beyond()).ok()?;
        (after_s > 0.0).then_some((after_s * 1000.0).ceil() as u64)
    };
    let reason = || cut(&text_of(py, error), LONGEST_REASON).to_owned();
    if is(imported!(py, MODULE, "Unavailable")) {
        return Ok(Verdict::Unreachable { reason: reason(), retry_after_ms: again_ms() });
    }
    if is(imported!(py, MODULE, "Unanswered")) {
        return Ok(Verdict::Unanswered { reason: reason(), retry_after_ms: again_ms() });
    }
    if is(imported!(py, MODULE, "Final")) {
        return Ok(Verdict::Final(reason()));
    }
    let reason = reason_of(py, error);
    let Ok((meaning, after_s)) = judged(py, error) else { return Ok(Verdict::Refused(reason)) };
    let retry_after_ms = after_s.map(|after_s| (after_s * 1000.0).ceil() as u64);
    Ok(match &*meaning {
        "final" => Verdict::Final(reason),
        "failed" => Verdict::Failed { reason, retry_after_ms },
        "unanswered" => Verdict::Unanswered { reason, retry_after_ms },
        "unreachable" => Verdict::Unreachable { reason, retry_after_ms },
        _ => Verdict::Refused(reason),
    })
}

/// `failures.py` has the table.
fn judged(py: Python<'_>, error: &PyErr) -> PyResult<(String, Option<f64>)> {
    imported!(py, "tickwheel.delivery.sinks.failures", "judged")?.call1((error.value(py),))?.extract()
}

/// Reads an exception of a function that serves as a sink. No exception of it ends the run.
pub(crate) fn of_function(py: Python<'_>, error: &PyErr) -> Verdict {
    of_sink(py, error).unwrap_or_else(|_| Verdict::Refused(reason_of(py, error)))
}

fn text_of(py: Python<'_>, error: &PyErr) -> String {
    error.value(py).str().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The name and the text of an exception, as in `ValueError: the text`.
pub(crate) fn reason_of(py: Python<'_>, error: &PyErr) -> String {
    let name = error.get_type(py).name().map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned());
    let text = match error.value(py).str() {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(failed) if failed.is_instance_of::<PyException>(py) => "its text can't be read".to_owned(),
        Err(_) => String::new(),
    };
    let whole = if text.is_empty() { name } else { format!("{name}: {text}") };
    cut(&whole, LONGEST_REASON).to_owned()
}

/// The text of a value for an error message.
pub(crate) fn quoted(value: &Bound<'_, PyAny>) -> String {
    text_or(value.repr(), "?", value.py()).unwrap_or_default().chars().take(200).collect()
}
