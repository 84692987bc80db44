//! Reads a stream of Arrow arrays of int64, one chunk after the other, through the Arrow C stream interface: a chunked
//! array, a column of a data frame.
//!
//! What the stream gives away belongs to the reader, and each struct is released exactly once, by its drop. The stream
//! itself is moved out of its capsule first, as the interface allows, so that no other reader has it meanwhile: the
//! producer's functions may take long, or take the GIL, and are called without it (border rule 4). Between two chunks
//! Ctrl-C is looked for.
//!
//! Why the unsafe code is needed and what checks a chunk: `arrow.rs`. Source: the Arrow C stream interface
//! (arrow.apache.org/docs/format/CStreamInterface).
#![expect(unsafe_code, reason = "the Arrow C stream interface is C structs behind pointers")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use pyo3::exceptions::{PyMemoryError, PyOSError};
use pyo3::prelude::*;

use crate::python::tools::arrow::{self, ArrowArray, ArrowSchema};

/// What Arrow's C stream interface calls `ArrowArrayStream`.
#[repr(C)]
struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

const ENOMEM: c_int = 12; // on Linux and macOS

/// A struct of the interface: it says itself how it is released. A release that is null: there is nothing in it.
trait Released {
    fn release(&mut self) -> &mut Option<unsafe extern "C" fn(*mut Self)>;
}

impl Released for ArrowSchema {
    fn release(&mut self) -> &mut Option<unsafe extern "C" fn(*mut Self)> {
        &mut self.release
    }
}

impl Released for ArrowArray {
    fn release(&mut self) -> &mut Option<unsafe extern "C" fn(*mut Self)> {
        &mut self.release
    }
}

impl Released for ArrowArrayStream {
    fn release(&mut self) -> &mut Option<unsafe extern "C" fn(*mut Self)> {
        &mut self.release
    }
}

/// A struct that is ours to release. Boxed: a producer may keep its address from one call to the next.
struct Owned<T: Released>(Box<T>);

// SAFETY: the interface asks that one thread at a time calls a struct's functions, not that it is always the same one. An
// `Owned` has one owner.
unsafe impl<T: Released> Send for Owned<T> {}

impl<T: Released> Owned<T> {
    /// For a producer to fill in.
    fn empty() -> Self {
        // SAFETY: all three structs are numbers, pointers and nullable functions, for which zero is a value.
        Self(unsafe { Box::new(std::mem::zeroed()) })
    }

    fn raw(&mut self) -> *mut T {
        &raw mut *self.0
    }

    fn is_filled(&mut self) -> bool {
        self.0.release().is_some()
    }
}

impl<T: Released> Drop for Owned<T> {
    fn drop(&mut self) {
        if let Some(release) = *self.0.release() {
            // SAFETY: its producer filled it in, and this is the one place that releases it.
            unsafe { release(self.raw()) };
        }
    }
}

/// Copies the values of an object with `__arrow_c_stream__` out. Errors: as `arrow::int64s`, and where the stream fails
/// `OSError` with the producer's code and text.
pub(crate) fn int64s(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<i64>> {
    let py = value.py();
    let capsule = value.call_method0("__arrow_c_stream__")?;
    let pointer = arrow::pointer_in::<ArrowArrayStream>(&capsule, c"arrow_array_stream", what)?;
    let mut stream = Owned::<ArrowArrayStream>::empty();
    // SAFETY: a capsule of this name holds a valid struct of this type (the protocol), `capsule` is alive, and the GIL is
    // held. The empty struct that takes its place says to the capsule, and to another reader, that there is nothing left.
    unsafe { ptr::swap(stream.raw(), pointer.as_ptr()) };
    if !stream.is_filled() {
        return Err(arrow::released(what));
    }
    let values = stream.read(py, what);
    py.detach(|| drop(stream));
    values
}

impl Owned<ArrowArrayStream> {
    fn read(&mut self, py: Python<'_>, what: &str) -> PyResult<Vec<i64>> {
        let mut schema = self.ask(py, self.0.get_schema, what, "before its type")?;
        let is_int64 = if schema.is_filled() {
            arrow::check_type(&schema.0, what)
        } else {
            Err(arrow::invalid(what, "its stream gives no type"))
        };
        py.detach(|| drop(schema));
        is_int64?;
        let mut values = Vec::new();
        loop {
            let when = format!("after {} values", values.len());
            let mut chunk = self.ask(py, self.0.get_next, what, &when)?;
            if !chunk.is_filled() {
                return Ok(values);
            }
            let appended = arrow::append(&chunk.0, what, &mut values);
            py.detach(|| drop(chunk));
            appended?;
            py.check_signals()?;
        }
    }

    /// Has the producer fill a struct in.
    fn ask<T: Released>(
        &mut self,
        py: Python<'_>,
        fill: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut T) -> c_int>,
        what: &str,
        when: &str,
    ) -> PyResult<Owned<T>> {
        let Some(fill) = fill else { return Err(arrow::invalid(what, "its stream lacks a function")) };
        let mut filled = Owned::empty();
        let (stream, into) = (&mut *self, &mut filled);
        // SAFETY: the stream is not released, both structs are ours, and neither moves.
        let code = py.detach(|| unsafe { fill(stream.raw(), into.raw()) });
        if code == 0 {
            return Ok(filled);
        }
        *filled.0.release() = None; // after an error there is nothing in it, whatever it says
        let said = self.last_error();
        let text = format!("the Arrow stream of {what} failed {when}{said}; pass values that can all be read");
        Err(if code == ENOMEM { PyMemoryError::new_err(text) } else { PyOSError::new_err((code, text)) })
    }

    fn last_error(&mut self) -> String {
        let Some(get_last_error) = self.0.get_last_error else { return String::new() };
        // SAFETY: the stream is not released, and its last call failed.
        let text = unsafe { get_last_error(self.raw()) };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: a C string, valid until the stream is called again.
        format!(": {}", unsafe { CStr::from_ptr(text) }.to_string_lossy())
    }
}
