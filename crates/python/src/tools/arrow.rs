//! Reads one Arrow array of int64 through the Arrow C data interface, which every Arrow library supports.
//!
//! Unsafe code. It is needed because the interface is C structs behind pointers in capsules, and the crates that wrap
//! it depend on all of Arrow. It is sound because the structs are read only while their owner is alive; type, lengths,
//! nulls and pointers are checked before a value is read; and values are copied as bytes, so a buffer may start at any
//! address. A producer that claims more memory than it has breaks the contract of the interface, for this consumer as
//! for any other.
//!
//! Source: the Arrow C data interface and its `PyCapsule` protocol (arrow.apache.org/docs/format/CDataInterface).
#![expect(unsafe_code, reason = "the Arrow C data interface is C structs behind pointers")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::tools::describe::type_and_value;

/// The struct `ArrowSchema` of the interface: a type.
#[repr(C)]
pub(crate) struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    pub(crate) release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// The struct `ArrowArray` of the interface: the values of one array or chunk.
#[repr(C)]
pub(crate) struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *const *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    pub(crate) release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// Copies the values of an object with `__arrow_c_array__`. Errors: `TypeError` for another type, `ValueError` for
/// nulls and for an invalid array, `MemoryError`, and what the method raises.
pub(crate) fn int64s(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<i64>> {
    let capsules = value.call_method0("__arrow_c_array__")?;
    let pair = capsules.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    let Some(pair) = pair else { return Err(not_from_capsule(&capsules, "a tuple of two capsules", what)?) };
    let schema = pointer_in::<ArrowSchema>(&pair.get_item(0)?, c"arrow_schema", what)?;
    let array = pointer_in::<ArrowArray>(&pair.get_item(1)?, c"arrow_array", what)?;
    // SAFETY: a capsule of this name holds a valid struct of this type (the protocol). Both structs are borrowed from
    // `capsules`, which lives to the end of this function.
    let (schema, array) = unsafe { (schema.as_ref(), array.as_ref()) };
    if schema.release.is_none() || array.release.is_none() {
        return Err(released(what));
    }
    check_type(schema, what)?;
    let mut values = Vec::new();
    append(array, what, &mut values)?;
    Ok(values)
}

pub(crate) fn released(what: &str) -> PyErr {
    PyValueError::new_err(format!("{what} was released by its owner: pass a fresh Arrow array"))
}

pub(crate) fn invalid(what: &str, why: &str) -> PyErr {
    PyValueError::new_err(format!("{what} is not a valid Arrow array, {why}: pass one of another library"))
}

fn not_from_capsule(given: &Bound<'_, PyAny>, expected: &str, what: &str) -> PyResult<PyErr> {
    let given = type_and_value(given)?;
    Ok(PyTypeError::new_err(format!(
        "the Arrow method of {what} must return {expected}, got {given}: pass an array of another library"
    )))
}

/// The struct in a capsule of this name.
pub(crate) fn pointer_in<T>(capsule: &Bound<'_, PyAny>, name: &CStr, what: &str) -> PyResult<NonNull<T>> {
    let holder = capsule.cast::<PyCapsule>().ok().filter(|capsule| capsule.is_valid_checked(Some(name)));
    let Some(holder) = holder else {
        return Err(not_from_capsule(capsule, &format!("a capsule '{}'", name.to_string_lossy()), what)?);
    };
    let pointer = holder.pointer_checked(Some(name))?.cast::<T>();
    if pointer.is_aligned() { Ok(pointer) } else { Err(invalid(what, "its struct is not aligned")) }
}

/// `TypeError` unless the type is int64. The schema must not have been released.
pub(crate) fn check_type(schema: &ArrowSchema, what: &str) -> PyResult<()> {
    // SAFETY: the `format` of a schema that was not released is a C string.
    let format = if schema.format.is_null() { c"" } else { unsafe { CStr::from_ptr(schema.format) } };
    if format == c"l" && schema.dictionary.is_null() {
        return Ok(());
    }
    let hint = if format.to_bytes().starts_with(b"+") { "pass one column of it" } else { "cast it first" };
    let format = format.to_string_lossy();
    Err(PyTypeError::new_err(format!("{what} must be an Arrow array of int64, got format '{format}': {hint}")))
}

/// Appends the values of an int64 array. The array must not have been released.
pub(crate) fn append(array: &ArrowArray, what: &str, values: &mut Vec<i64>) -> PyResult<()> {
    let natural = |number: i64, name: &str| {
        usize::try_from(number).map_err(|_| invalid(what, &format!("its {name} is {number}, which must be 0 or more")))
    };
    let (length, offset) = (natural(array.length, "length")?, natural(array.offset, "offset")?);
    if array.n_buffers != 2 {
        return Err(invalid(what, &format!("it has {} buffers where int64 has 2", array.n_buffers)));
    }
    if length == 0 {
        return Ok(());
    }
    // No object is larger than half of the address space.
    let end = offset.checked_add(length).filter(|end| *end <= isize::MAX as usize / size_of::<i64>());
    let Some(end) = end else { return Err(invalid(what, &format!("it ends at {offset} + {length} values"))) };
    if array.buffers.is_null() {
        return Err(invalid(what, "its list of buffers is null"));
    }
    // SAFETY: the list is not null and has two buffers, validity and values. It is read unaligned.
    let (validity, data) =
        unsafe { (array.buffers.read_unaligned().cast::<u8>(), array.buffers.add(1).read_unaligned().cast::<u8>()) };
    if data.is_null() {
        return Err(invalid(what, &format!("its values are null, and it has {length}")));
    }
    // SAFETY: the validity buffer, if there is one, has a bit for each of the `end` values.
    let is_valid = |index: usize| unsafe { *validity.add(index / 8) >> (index % 8) & 1 == 1 };
    let has_nulls = match array.null_count {
        0 => false,
        _ if validity.is_null() => array.null_count > 0,
        _ => !(offset..end).all(is_valid),
    };
    if has_nulls {
        return Err(PyValueError::new_err(format!("{what} must have no nulls: drop or fill them first")));
    }
    values.try_reserve(length).map_err(|_| {
        PyMemoryError::new_err(format!(
            "{what} has {length} values, for which there is no memory: pass fewer at a time"
        ))
    })?;
    // SAFETY: the values' buffer holds `end` values, at any address, and `values` has room for `length` more. The copy
    // is by bytes, which need no alignment, and any eight bytes are an i64.
    unsafe {
        let room = values.as_mut_ptr().add(values.len()).cast::<u8>();
        data.add(offset * size_of::<i64>()).copy_to_nonoverlapping(room, length * size_of::<i64>());
        values.set_len(values.len() + length);
    }
    Ok(())
}
