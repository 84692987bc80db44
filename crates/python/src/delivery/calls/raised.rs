//! `Raised`: keeps the exception of a Python function, because the engine keeps only its text.

use std::sync::Arc;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::delivery::calls::failures;
use crate::tools::native_lock::lock_plain;
use tickwheel::internal::sync::PlainMutex;
use tickwheel_delivery::DeliveryError;

/// A place for one exception. The call that opens the engine raises it.
#[derive(Clone, Default)]
pub(crate) struct Raised(Arc<PlainMutex<Option<PyErr>>>);

impl Raised {
    /// Keeps the exception. An exception that was kept before is dropped after the unlock.
    pub(crate) fn keep(&self, py: Python<'_>, error: PyErr) {
        let before = lock_plain(py, &self.0).replace(error);
        drop(before);
    }

    /// Returns the error for the engine, and keeps the exception.
    pub(crate) fn kept(&self, py: Python<'_>, error: PyErr) -> DeliveryError {
        let failed = failures::from_python(py, &error);
        self.keep(py, error);
        failed
    }

    /// Returns the error for the engine. An exception that ends a program, such as a Ctrl-C, is kept, because it says
    /// nothing about the destination.
    pub(crate) fn failed(&self, py: Python<'_>, error: PyErr) -> DeliveryError {
        let failed = failures::from_python(py, &error);
        if !error.is_instance_of::<PyException>(py) {
            self.keep(py, error);
        }
        failed
    }

    pub(crate) fn take(&self, py: Python<'_>) -> Option<PyErr> {
        lock_plain(py, &self.0).take()
    }

    /// Needs no GIL.
    pub(crate) fn is_some(&self) -> bool {
        self.0.lock().is_some()
    }
}
