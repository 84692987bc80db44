//! Reads the keys of one operation from a Python collection.

use std::collections::HashSet;
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyString, PyTuple};

use crate::tools::describe;
use crate::values::keys::{Key, KeyTable};
use tickwheel::internal::purgatory::ShortList;

/// Up to this many keys are each compared with all others; more are looked up in a set.
const MANY: usize = 16;

/// The keys of an operation, each once.
pub(crate) fn read_keys(table: &Arc<KeyTable>, keys: &Bound<'_, PyAny>) -> PyResult<ShortList<Key>> {
    let refuse = || {
        let given = describe::type_name(keys);
        PyTypeError::new_err(format!("keys must be a collection of keys, got {given}: for one key pass [key]"))
    };
    let is_one = keys.is_instance_of::<PyString>()
        || keys.is_instance_of::<PyBytes>()
        || keys.is_instance_of::<PyByteArray>()
        || (keys.is_instance_of::<PyTuple>() && keys.hasattr("_fields")?); // a named tuple is one key
    if is_one {
        return Err(refuse());
    }
    let (mut held, mut seen) = (ShortList::new(), HashSet::new());
    let mut hold = |key: &Bound<'_, PyAny>| -> PyResult<()> {
        let key = table.hold(key)?;
        let is_new = if held.len() < MANY { !held.contains(&key) } else { seen.insert(key.id()) };
        if is_new {
            held.push(key);
        }
        if held.len() == MANY {
            seen.extend(held.iter().map(Key::id));
        }
        Ok(())
    };
    if let Ok(list) = keys.cast_exact::<PyList>() {
        // Without an iterator object.
        list.iter().try_for_each(|key| hold(&key))?;
    } else {
        keys.try_iter().map_err(|_| refuse())?.try_for_each(|key| hold(&key?))?;
    }
    if held.is_empty() {
        return Err(PyValueError::new_err(
            "an operation needs at least one key to wait for, got none: name what completes it",
        ));
    }
    Ok(held)
}
