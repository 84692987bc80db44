//! Reads int64 values through the Arrow C interfaces, which every Arrow library supports: from one array, or chunk by chunk
//! from a stream, such as a column of a data frame.
//!
//! An array is moved out of its capsule, and so is a stream: then no other reader can use it. The functions of a stream's
//! producer may take long, or take the GIL, so they are called without the GIL (border rule 4). Between two chunks the reader
//! checks for Ctrl-C.
//!
//! Unsafe code. It is needed because a capsule holds a pointer to a C struct. It is sound because the name of the capsule says
//! which struct that is, and type and length are checked before `arrow_array` reads a value. A producer that claims more memory
//! than it has breaks the contract of the interface, for this consumer as for any other.
//!
//! Source: the Arrow C data and stream interfaces and their `PyCapsule` protocol (arrow.apache.org/docs/format).
#![expect(unsafe_code, reason = "the Arrow C interfaces are C structs behind pointers")]

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, Int64Array};
use arrow_schema::DataType;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::tools::describe::type_and_value;

const ENOMEM: c_int = 12; // on Linux and macOS

/// A stream's function that fills a struct.
type Fill<T> = Option<unsafe extern "C" fn(*mut FFI_ArrowArrayStream, *mut T) -> c_int>;

/// The values of an object with `__arrow_c_array__`.
pub(crate) fn int64s(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<i64>> {
    let capsules = value.call_method0("__arrow_c_array__")?;
    let pair = capsules.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    let Some(pair) = pair else { return Err(not_from_capsule(&capsules, "a tuple of two capsules", what)?) };
    let schema = pointer_in::<FFI_ArrowSchema>(&pair.get_item(0)?, c"arrow_schema", what)?;
    let array = pointer_in::<FFI_ArrowArray>(&pair.get_item(1)?, c"arrow_array", what)?;
    // SAFETY: a capsule of this name holds a valid struct of this type (the protocol), and `capsules` is alive.
    let (schema, array) = unsafe { (schema.as_ref(), FFI_ArrowArray::from_raw(array.as_ptr())) };
    if schema.release().is_none() || array.is_released() {
        return Err(released(what));
    }
    check_type(schema, what)?;
    let mut values = Vec::new();
    append(values_of(array, what)?.values(), what, &mut values)?;
    Ok(values)
}

/// The values of an object with `__arrow_c_stream__`.
pub(crate) fn int64s_of_stream(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<i64>> {
    let py = value.py();
    let capsule = value.call_method0("__arrow_c_stream__")?;
    let pointer = pointer_in::<FFI_ArrowArrayStream>(&capsule, c"arrow_array_stream", what)?;
    // SAFETY: a capsule of this name holds a valid struct of this type (the protocol), and `capsule` is alive.
    let mut stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr()) };
    if stream.release().is_none() {
        return Err(released(what));
    }
    let values = read(py, &mut stream, what);
    py.detach(|| drop(stream));
    values
}

fn read(py: Python<'_>, stream: &mut FFI_ArrowArrayStream, what: &str) -> PyResult<Vec<i64>> {
    let schema = ask(py, stream, stream.get_schema(), FFI_ArrowSchema::empty(), what, "before its type")?;
    let is_int64 = if schema.release().is_some() {
        check_type(&schema, what)
    } else {
        Err(invalid(what, "its stream gives no type"))
    };
    py.detach(|| drop(schema));
    is_int64?;
    let mut values = Vec::new();
    loop {
        let when = format!("after {} values", values.len());
        let chunk = ask(py, stream, stream.get_next(), FFI_ArrowArray::empty(), what, &when)?;
        if chunk.is_released() {
            return Ok(values);
        }
        py.detach(|| append(values_of(chunk, what)?.values(), what, &mut values))?;
        py.check_signals()?;
    }
}

/// Calls a function of the stream.
fn ask<T: Send>(
    py: Python<'_>,
    stream: &mut FFI_ArrowArrayStream,
    fill: Fill<T>,
    mut filled: T,
    what: &str,
    when: &str,
) -> PyResult<T> {
    let Some(fill) = fill else { return Err(invalid(what, "its stream lacks a function")) };
    // SAFETY: the function is the stream's, which was not released; both structs belong to this reader.
    let code = py.detach(|| unsafe { fill(stream, &raw mut filled) });
    if code == 0 {
        return Ok(filled);
    }
    std::mem::forget(filled); // after an error the struct is empty, whatever it says
    // SAFETY: the stream was not released, and its last call failed.
    let said = stream.get_last_error().map_or(std::ptr::null(), |last_error| unsafe { last_error(stream) });
    // SAFETY: a C string, valid until the next call of the stream.
    let said = NonNull::new(said.cast_mut()).map(|said| unsafe { CStr::from_ptr(said.as_ptr()) }.to_string_lossy());
    let said = said.map_or_else(String::new, |said| format!(": {said}"));
    let text = format!("the Arrow stream of {what} failed {when}{said}; pass values that can all be read");
    Err(if code == ENOMEM { PyMemoryError::new_err(text) } else { PyOSError::new_err((code, text)) })
}

fn released(what: &str) -> PyErr {
    PyValueError::new_err(format!("{what} was released by its owner: pass a fresh Arrow array"))
}

fn invalid(what: &str, why: &str) -> PyErr {
    PyValueError::new_err(format!("{what} is not a valid Arrow array, {why}: pass one of another library"))
}

fn not_from_capsule(given: &Bound<'_, PyAny>, expected: &str, what: &str) -> PyResult<PyErr> {
    let given = type_and_value(given)?;
    Ok(PyTypeError::new_err(format!(
        "the Arrow method of {what} must return {expected}, got {given}: pass an array of another library"
    )))
}

/// The pointer in a capsule of this name.
fn pointer_in<T>(capsule: &Bound<'_, PyAny>, name: &CStr, what: &str) -> PyResult<NonNull<T>> {
    let holder = capsule.cast::<PyCapsule>().ok().filter(|capsule| capsule.is_valid_checked(Some(name)));
    let Some(holder) = holder else {
        return Err(not_from_capsule(capsule, &format!("a capsule '{}'", name.to_string_lossy()), what)?);
    };
    let pointer = holder.pointer_checked(Some(name))?.cast::<T>();
    if pointer.is_aligned() { Ok(pointer) } else { Err(invalid(what, "its struct is not aligned")) }
}

fn check_type(schema: &FFI_ArrowSchema, what: &str) -> PyResult<()> {
    let format = schema.format();
    if format == "l" && schema.dictionary().is_none() {
        return Ok(());
    }
    let hint = if format.starts_with('+') { "pass one column of it" } else { "cast it first" };
    Err(PyTypeError::new_err(format!("{what} must be an Arrow array of int64, got format '{format}': {hint}")))
}

fn values_of(array: FFI_ArrowArray, what: &str) -> PyResult<Int64Array> {
    let (buffers, length, offset) = (array.num_buffers() as i64, array.len() as i64, array.offset() as i64);
    if buffers != 2 {
        return Err(invalid(what, &format!("it has {buffers} buffers where int64 has 2")));
    }
    // No object is larger than half of the address space.
    let end = offset.checked_add(length).filter(|_| length.min(offset) >= 0);
    if end.is_none_or(|end| end > isize::MAX as i64 / size_of::<i64>() as i64) {
        return Err(invalid(what, &format!("it ends at {offset} + {length} values")));
    }
    // SAFETY: its type was checked, and its number of buffers; the producer vouches for their lengths.
    let data = unsafe { from_ffi_and_data_type(array, DataType::Int64) };
    let values: Int64Array =
        data.map_err(|_| invalid(what, &format!("its values are null, and it has {length}")))?.into();
    if values.null_count() == 0 {
        return Ok(values);
    }
    Err(PyValueError::new_err(format!("{what} must have no nulls: drop or fill them first")))
}

fn append(more: &[i64], what: &str, values: &mut Vec<i64>) -> PyResult<()> {
    let count = more.len();
    values.try_reserve(count).map_err(|_| {
        PyMemoryError::new_err(format!("{what} has {count} values, for which there is no memory: pass fewer at a time"))
    })?;
    values.extend_from_slice(more);
    Ok(())
}
