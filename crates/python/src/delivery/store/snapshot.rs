//! `StoreSnapshot`: one moment of a store, read by the engine's own SQLite. A second SQLite library in the process would drop
//! the locks of the first one.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use rusqlite::types::Value;

use crate::delivery::calls::failures;
use crate::delivery::engine::core;
use crate::delivery::engine::sqlite_at_fork::SqliteInUse;
use crate::tools::fork::{BelongsToProcess, ProcessOwned, fork_epoch};
use tickwheel::internal::sync::PlainMutex;
use tickwheel_delivery::DeliveryError;
use tickwheel_delivery::internal::{Snapshot, lane_of};

/// A store as it is now, for as long as the block runs. It may be in use, and is left as it was; texts that are none come
/// with U+FFFD.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct StoreSnapshot(ProcessOwned<Opened>);

struct Opened {
    epoch: u32,
    /// Until it is closed.
    place: PlainMutex<Option<(Snapshot, SqliteInUse)>>,
}

impl BelongsToProcess for Opened {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

#[pymethods]
impl StoreSnapshot {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts it")]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let in_use = SqliteInUse::begin(py)?;
        let opened = py.detach(|| Snapshot::open(&path));
        let snapshot = opened.map_err(|error| failures::to_python(py, &error))?;
        let place = PlainMutex::new(Some((snapshot, in_use)));
        Ok(Self(ProcessOwned::new(Arc::new(Opened { epoch: fork_epoch(), place }))))
    }

    /// All rows of a query, as tuples. Its values are given by name: `:name` in the query is `name=` here.
    #[pyo3(signature = (query, **values))]
    fn rows<'py>(
        &self,
        py: Python<'py>,
        query: &str,
        values: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let place = self.place(py)?;
        let values = values.map_or_else(|| Ok(Vec::new()), |values| values.iter().map(value_of).collect())?;
        let found = py.detach(|| match &*place.lock() {
            Some((snapshot, _)) => snapshot.rows(query, &values),
            None => Err(closed()),
        });
        let found = found.map_err(|error| failures::to_python(py, &error))?;
        let rows = found.into_iter().map(|row| {
            let cells = row.into_iter().map(|cell| to_python(py, cell)).collect::<PyResult<Vec<_>>>()?;
            PyTuple::new(py, cells)
        });
        PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)
    }

    /// The number of a key's lane, by which `waiting` knows it. Two keys may share one.
    #[staticmethod]
    fn lane_of(key: &str) -> i64 {
        lane_of(key)
    }

    /// The number of the newest message with this name, or `None`.
    fn find(&self, py: Python<'_>, id: &str, key: Option<&str>) -> PyResult<Option<i64>> {
        let place = self.place(py)?;
        let found = py.detach(|| match &*place.lock() {
            Some((snapshot, _)) => snapshot.find(key, id),
            None => Err(closed()),
        });
        found.map_err(|error| failures::to_python(py, &error))
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        raised: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let snapshot = core::take(py, self.place(py)?);
        let closed = py.detach(|| snapshot.map_or(Ok(()), |(snapshot, _in_use)| snapshot.close()));
        match closed {
            Err(error) if raised.is_none() => Err(failures::to_python(py, &error)),
            _ => Ok(()),
        }
    }
}

impl StoreSnapshot {
    /// Errors: `WrongUsage` in a forked child.
    fn place(&self, py: Python<'_>) -> PyResult<&PlainMutex<Option<(Snapshot, SqliteInUse)>>> {
        if self.0.epoch != fork_epoch() {
            let text = "this snapshot belongs to the parent process, and SQLite can't be used in a fork of it: start \
                        processes with spawn or forkserver, and open the store there";
            return Err(failures::wrong_usage(py, text));
        }
        Ok(&self.0.place)
    }
}

fn closed() -> DeliveryError {
    DeliveryError::Usage("this snapshot is closed: ask it inside its with block".to_owned())
}

fn value_of((name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)) -> PyResult<(String, Value)> {
    let made = if value.is_none() {
        Value::Null
    } else if let Ok(number) = value.extract::<i64>() {
        Value::Integer(number)
    } else if let Ok(text) = value.extract::<String>() {
        Value::Text(text)
    } else {
        return Err(PyTypeError::new_err(format!("{name} must be an int, a str or None")));
    };
    Ok((name.extract()?, made))
}

fn to_python(py: Python<'_>, value: Value) -> PyResult<Bound<'_, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Integer(it) => it.into_pyobject(py)?.into_any(),
        Value::Real(it) => it.into_pyobject(py)?.into_any(),
        Value::Text(it) => it.into_pyobject(py)?.into_any(),
        Value::Blob(it) => PyBytes::new(py, &it).into_any(),
    })
}
