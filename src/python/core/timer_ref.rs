//! A reference to a timer that the GIL counts.
//!
//! Every pending task keeps its timer alive. An `Arc` is counted by an atomic step, which waits until the processor has
//! completed its earlier writes; two of them were a sixteenth of the cost of an add and its cancel. Python's count is a
//! plain addition.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::python::core::timer_core::TimerCore;
use crate::python::tools::fork::ProcessOwned;

/// Python code never sees this object. The garbage collector finds nothing in it: the timer shows its own references.
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
