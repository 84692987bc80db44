//! The figures of a replicated store as a dict: its owner, and how far PostgreSQL is behind (rule D21).

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::delivery::values::measures::fields;
use tickwheel_delivery::{Replication, Role};

/// The last take-over that a file has.
pub(crate) fn taken<'py>(py: Python<'py>, epoch: i64, owner: Option<&(String, u32)>) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    found.set_item("epoch", epoch)?;
    found.set_item("owner", owner.map(name_of))?;
    Ok(found)
}

/// The figures of a process.
pub(crate) fn to_python(py: Python<'_>, it: Replication) -> PyResult<Bound<'_, PyDict>> {
    let found = taken(py, it.epoch, it.owner.as_ref())?;
    let role = match it.role {
        Role::Standby => "standby",
        Role::Owner => "owner",
        Role::QuietOwner => "quiet owner",
    };
    found.set_item("role", role)?;
    found.set_item("lag_s", it.lag_ms as f64 / 1000.0)?;
    found.update(fields!(py, it, lag_rows lag_bytes base_ms: "last_base_ms" trouble).as_mapping())?;
    Ok(found)
}

/// A process, for people.
pub(crate) fn name_of((host, process): &(String, u32)) -> String {
    format!("process {process} on {host}")
}
