//! Due times as text, for Python.

use pyo3::prelude::*;

use crate::delivery::times;
use crate::python::delivery::failures::bad_record;

/// The epoch milliseconds of a due time given as text, where digits are epoch milliseconds; `name` is for the error.
///
/// Errors: `BadRecord`.
#[pyfunction]
pub(crate) fn due_of(py: Python<'_>, text: &str, name: &str) -> PyResult<i64> {
    times::due_from_digits_or_text(text, name).map_err(|bad| bad_record(py, &bad))
}

/// The time in UTC with milliseconds, as in every output. Before 1970 it is 1970, after 9999 the last of 9999.
#[pyfunction]
pub(crate) fn rfc_3339(epoch_ms: i64) -> String {
    String::from_utf8_lossy(&times::rfc_3339(epoch_ms)).into_owned()
}
