//! A share in a timer that the GIL counts.
//!
//! Every pending task keeps its timer alive. An `Arc` is counted by an atomic step, which waits until the processor has
//! written all that came before; two of them were a sixteenth of an add and its cancel. Python's count is a plain addition.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::python::core::timer_core::Shared;
use crate::python::tools::fork::Own;

/// No Python code ever sees one. It has nothing for the garbage collector: what a timer refers to, the timer shows.
#[pyclass(frozen)]
pub(crate) struct Share(Own<Shared>);

impl Share {
    pub(crate) fn new(py: Python<'_>, shared: &Arc<Shared>) -> PyResult<Py<Self>> {
        Py::new(py, Self(Own::new(Arc::clone(shared))))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.0.arc()
    }
}
