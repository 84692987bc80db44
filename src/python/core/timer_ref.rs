//! A share in a timer that the GIL counts.
//!
//! Every pending task keeps its timer alive. An `Arc` is counted by an atomic step, which waits until the processor has
//! written all that came before; two of them were a sixteenth of an add and its cancel. Python's count is a plain addition.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::python::core::timer_core::TimerCore;
use crate::python::tools::fork::ProcessOwned;

/// No Python code ever sees one. It has nothing for the garbage collector: what a timer refers to, the timer shows.
#[pyclass(frozen)]
pub(crate) struct TimerRef(ProcessOwned<TimerCore>);

impl TimerRef {
    pub(crate) fn new(py: Python<'_>, core: &Arc<TimerCore>) -> PyResult<Py<Self>> {
        Py::new(py, Self(ProcessOwned::new(Arc::clone(core))))
    }

    pub(crate) fn core(&self) -> &Arc<TimerCore> {
        self.0.arc()
    }
}
