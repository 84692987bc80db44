//! Due times as text, for Python.

use pyo3::prelude::*;

use crate::delivery::calls::failures::bad_record;
use tickwheel_delivery::internal::{Recurrence, times};

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

/// When the first occurrence after `after_ms` of a recurring message is due, whose rule is as a hand-off tells it; `after_ms` if there
/// is none.
///
/// Errors: `BadRecord`.
#[pyfunction]
pub(crate) fn occurrence_after(py: Python<'_>, rule: &str, after_ms: i64) -> PyResult<i64> {
    let rule = Recurrence::from_handed(rule).map_err(|bad| bad_record(py, &bad))?;
    Ok(rule.from(after_ms.saturating_add(1)).unwrap_or(after_ms))
}
