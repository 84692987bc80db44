//! Reads a stream of Arrow arrays of int64, chunk by chunk, through the Arrow C stream interface: a chunked array, a
//! column of a data frame.
//!
//! The reader owns what the stream returns, and releases each struct exactly once, when it is dropped. The stream is
//! first moved out of its capsule, as the interface allows, so no other reader can use it at the same time. The
//! functions of the producer may take long, or take the GIL, so they are called without the GIL (border rule 4).
//! Between two chunks the reader checks for Ctrl-C.
//!
//! `arrow.rs` says why the unsafe code is needed and how a chunk is checked. Source: the Arrow C stream interface
//! (arrow.apache.org/docs/format/CStreamInterface).
#![expect(unsafe_code, reason = "the Arrow C stream interface is C structs behind pointers")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use pyo3::exceptions::{PyMemoryError, PyOSError};
use pyo3::prelude::*;

use crate::tools::arrow::{self, ArrowArray, ArrowSchema};

/// The struct `ArrowArrayStream` of the interface.
#[repr(C)]
struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

const ENOMEM: c_int = 12; // on Linux and macOS

/// A struct of the interface, with its release function. If that is null, the struct is empty.
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

/// A struct that the reader must release. It is boxed because a producer may keep its address between two calls.
struct Owned<T: Released>(Box<T>);

// SAFETY: the interface requires that one thread at a time calls the functions of a struct, not that it is always the
// same thread. An `Owned` has one owner.
unsafe impl<T: Released> Send for Owned<T> {}

impl<T: Released> Owned<T> {
    /// An empty struct, which a producer fills in.
    fn empty() -> Self {
        // SAFETY: all three structs consist of numbers, pointers and nullable functions, for which zero is a valid
        // value.
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
            // SAFETY: the producer filled the struct in, and it is released here only.
            unsafe { release(self.raw()) };
        }
    }
}

/// Copies the values of an object with `__arrow_c_stream__`. Errors: as `arrow::int64s`; `OSError` with the producer's
/// code and text if the stream fails.
pub(crate) fn int64s(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<i64>> {
    let py = value.py();
    let capsule = value.call_method0("__arrow_c_stream__")?;
    let pointer = arrow::pointer_in::<ArrowArrayStream>(&capsule, c"arrow_array_stream", what)?;
    let mut stream = Owned::<ArrowArrayStream>::empty();
    // SAFETY: a capsule of this name holds a valid struct of this type (the protocol), `capsule` is alive, and the GIL
    // is held. The empty struct in its place tells the capsule and any other reader that nothing is left.
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

    /// Calls a function of the producer, which fills a struct in.
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
        // SAFETY: the stream was not released; both structs belong to this reader and do not move.
        let code = py.detach(|| unsafe { fill(stream.raw(), into.raw()) });
        if code == 0 {
            return Ok(filled);
        }
        *filled.0.release() = None; // after an error the struct is empty, whatever it says
        let said = self.last_error();
        let text = format!("the Arrow stream of {what} failed {when}{said}; pass values that can all be read");
        Err(if code == ENOMEM { PyMemoryError::new_err(text) } else { PyOSError::new_err((code, text)) })
    }

    fn last_error(&mut self) -> String {
        let Some(get_last_error) = self.0.get_last_error else { return String::new() };
        // SAFETY: the stream was not released, and its last call failed.
        let text = unsafe { get_last_error(self.raw()) };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: a C string, valid until the next call of the stream.
        format!(": {}", unsafe { CStr::from_ptr(text) }.to_string_lossy())
    }
}
