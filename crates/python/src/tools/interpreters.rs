//! Only the main interpreter may import the module (T12): another interpreter of the process would share its locks, its
//! exit hook and its cached objects.
//!
//! Unsafe code: pyo3 does not wrap the two functions that tell the interpreters apart.

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// Errors: `ImportError` in any interpreter but the main one. Call it before anything process-wide exists.
#[expect(unsafe_code, reason = "pyo3 does not wrap these functions")]
pub(crate) fn check_main(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: the thread is attached, so it has an interpreter, which both functions only read.
    let number = unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) };
    if number == 0 {
        return Ok(());
    }
    Err(PyImportError::new_err(format!(
        "only the main interpreter of a process may import tickwheel, and this is interpreter {number}: import it in the main \
         one; under mod_wsgi set WSGIApplicationGroup %{{GLOBAL}}"
    )))
}
