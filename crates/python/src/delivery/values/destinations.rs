//! The named destinations, and the busiest tenants, in figures, as dicts.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::delivery::values::measures::fields;
use tickwheel_delivery::internal::{DestinationCounts, DestinationMeasures, DestinationSeen, TenantSeen};

/// How many there are, and some of them.
pub(crate) type Destinations<'py> = (Bound<'py, PyDict>, Vec<Bound<'py, PyDict>>);

/// Some tenants, and the sums of all others.
pub(crate) type Tenants<'py> = (Vec<Bound<'py, PyDict>>, Bound<'py, PyDict>);

pub(crate) fn seen_to_python<'py>(
    py: Python<'py>,
    (counts, found): (DestinationCounts, Vec<DestinationSeen>),
) -> PyResult<Destinations<'py>> {
    let seen = |it: DestinationSeen| {
        let seen = fields!(
            py, it,
            name paused_since_ms paused_reason failing_since_ms rate concurrency waiting overdue first_due_ms next_try_ms
        );
        if let Some(it) = it.answers {
            let answers = fields!(
                py,
                it,
                delivered late failed: "failed_attempts" last_error last_error_ms: "last_error_at_ms" down_since_ms down_reason
            );
            seen.update(answers.as_mapping())?;
        }
        Ok(seen)
    };
    Ok((counts_to_python(py, &counts)?, found.into_iter().map(seen).collect::<PyResult<_>>()?))
}

pub(crate) fn measures_to_python<'py>(
    py: Python<'py>,
    (counts, found): (DestinationCounts, Vec<DestinationMeasures>),
) -> PyResult<Destinations<'py>> {
    let measured =
        |it: DestinationMeasures| Ok(fields!(py, it, name delivered late lateness_us failed down paused overdue_ms));
    Ok((counts_to_python(py, &counts)?, found.into_iter().map(measured).collect::<PyResult<_>>()?))
}

pub(crate) fn tenants_to_python(
    py: Python<'_>,
    (found, others): (Vec<TenantSeen>, TenantSeen),
) -> PyResult<Tenants<'_>> {
    let seen = |it: TenantSeen| {
        Ok(fields!(
            py, it,
            name is_paused: "paused" waiting overdue failing first_due_ms out delivered late lateness_us
            failed: "failed_attempts"
        ))
    };
    Ok((found.into_iter().map(seen).collect::<PyResult<_>>()?, seen(others)?))
}

fn counts_to_python<'py>(py: Python<'py>, it: &DestinationCounts) -> PyResult<Bound<'py, PyDict>> {
    Ok(fields!(py, it, all paused down))
}
