//! Reads an Arrow array of int64 through the Arrow C data interface, which every Arrow library speaks.
//!
//! Unsafe code; the crate's only other one is in `gil.rs`. Why it is needed: the interface is two C structs behind pointers in capsules, and
//! the crates that wrap it bring all of Arrow along. Why it is sound: the structs are only read, while the capsules,
//! which own them, are alive; type, nulls, and lengths are checked before the one slice is made; a producer that
//! fills the structs in wrongly breaks the interface's contract, as it would for every other consumer.
//!
//! Source: the Arrow C data interface and its `PyCapsule` protocol (arrow.apache.org/docs/format/CDataInterface).
#![expect(unsafe_code, reason = "the Arrow C data interface is C structs behind pointers")]

use std::ffi::{CStr, c_char, c_void};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *const *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// Copies the values out. Errors: `TypeError` for another type, `ValueError` for nulls.
pub(super) fn int64s(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<i64>> {
    let capsules = value.call_method0("__arrow_c_array__")?.cast_into::<PyTuple>()?;
    let schema = capsules.get_item(0)?.cast_into::<PyCapsule>()?;
    let array = capsules.get_item(1)?.cast_into::<PyCapsule>()?;
    let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<ArrowSchema>();
    let array = array.pointer_checked(Some(c"arrow_array"))?.cast::<ArrowArray>();
    // SAFETY: a capsule of this name holds a valid struct of this type (the protocol), and both are borrowed from
    // `capsules`, which lives to the end of this function.
    let (schema, array) = unsafe { (schema.as_ref(), array.as_ref()) };
    if schema.release.is_none() || array.release.is_none() {
        return Err(PyValueError::new_err(format!("{what} was released by its owner: pass a fresh Arrow array")));
    }
    // SAFETY: `format` of a schema that was not released is a C string.
    let format = unsafe { CStr::from_ptr(schema.format) };
    if format != c"l" || !schema.dictionary.is_null() {
        return Err(PyTypeError::new_err(format!(
            "{what} must be an Arrow array of int64, got format '{}': cast it first",
            format.to_string_lossy()
        )));
    }
    let (length, offset) = (array.length.max(0) as usize, array.offset.max(0) as usize);
    if length == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: an int64 array has two buffers, validity and values; values hold offset + length items, validity, where
    // it is not null, a bit for each.
    let (values, has_nulls) = unsafe {
        let validity = (*array.buffers).cast::<u8>();
        let values = (*array.buffers.add(1)).cast::<i64>();
        let is_valid = |index: usize| *validity.add(index / 8) >> (index % 8) & 1 == 1;
        let has_nulls = array.null_count != 0 && !validity.is_null() && !(offset..offset + length).all(is_valid);
        (std::slice::from_raw_parts(values.add(offset), length), has_nulls)
    };
    if has_nulls {
        return Err(PyValueError::new_err(format!("{what} must have no nulls: drop or fill them first")));
    }
    Ok(values.to_vec())
}
