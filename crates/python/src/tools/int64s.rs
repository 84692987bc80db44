//! Reads int64 values out of a buffer, an Arrow array or an Arrow stream (T13).

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::tools::arrow;
use crate::tools::describe::type_and_value;
use crate::tools::made_once::intern;

/// Copies the values of a buffer, Arrow array or Arrow stream of int64.
pub(crate) fn read(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<i64>> {
    match read_if_array(value, what)? {
        Ok(values) => Ok(values),
        Err(no_buffer) => Err(not_int64s(value, what, "", Some(no_buffer))?),
    }
}

/// As [`read`]; the inner error means that the value is no array at all.
pub(crate) fn read_if_array(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Result<Vec<i64>, PyErr>> {
    let py = value.py();
    if value.hasattr(intern!(py, "__arrow_c_array__"))? {
        return arrow::int64s(value, what).map(Ok);
    }
    if value.hasattr(intern!(py, "__arrow_c_stream__"))? {
        return arrow::int64s_of_stream(value, what).map(Ok);
    }
    let view = match PyMemoryView::from(value) {
        Ok(view) => view,
        Err(error) if error.is_instance_of::<PyTypeError>(py) => return Ok(Err(error)),
        // It has a buffer, but does not give it.
        Err(error) if error.is_instance_of::<PyValueError>(py) || error.is_instance_of::<PyBufferError>(py) => {
            return Err(not_int64s(value, what, &format!(" ({})", error.value(py)), Some(error))?);
        }
        Err(error) => return Err(error),
    };
    let format: String = view.getattr("format")?.extract()?;
    let order = if cfg!(target_endian = "little") { '<' } else { '>' };
    let is_int64 = matches!(format.trim_start_matches(['@', '=', order]), "q" | "l")
        && view.getattr("itemsize")?.extract::<usize>()? == 8;
    if !is_int64 {
        return Err(not_int64s(value, what, &format!(" (format '{format}')"), None)?);
    }
    let dimensions: usize = view.getattr("ndim")?.extract()?;
    if dimensions != 1 {
        return Err(PyValueError::new_err(format!(
            "{what} must have one dimension, got {dimensions}: flatten it first"
        )));
    }
    if let Ok(buffer) = PyBuffer::<i64>::get(&view) {
        return buffer.to_vec(py).map(Ok);
    }
    // The buffer starts at an address that is not a multiple of eight. Read it through bytes, which may start anywhere.
    let bytes = view.call_method0("tobytes")?.cast_into::<PyBytes>()?;
    let (values, _) = bytes.as_bytes().as_chunks();
    Ok(Ok(values.iter().map(|value| i64::from_ne_bytes(*value)).collect()))
}

fn not_int64s(value: &Bound<'_, PyAny>, what: &str, why: &str, cause: Option<PyErr>) -> PyResult<PyErr> {
    let given = type_and_value(value)?;
    let error = PyTypeError::new_err(format!(
        "{what} must be a buffer or an Arrow array of int64, got {given}{why}: use array.array('q', ...), \
         numpy.asarray(..., 'int64') or pyarrow.array(..., 'int64')"
    ));
    error.set_cause(value.py(), cause);
    Ok(error)
}
