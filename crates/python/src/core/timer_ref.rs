//! A reference to a timer that the GIL counts.
//!
//! Every pending task keeps its timer alive. An `Arc` is counted by an atomic step, which waits until the processor has
//! completed its earlier writes; two of them were a sixteenth of the cost of an add and its cancel. Python's count is a
//! plain addition.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use crate::core::timer_core::TimerCore;
use crate::tools::fork::ProcessOwned;
use crate::tools::gil_cell::GilCell;

/// Python code never sees this object. The garbage collector finds nothing in it: the timer shows its own references.
#[pyclass(frozen)]
pub(crate) struct TimerRef {
    core: ProcessOwned<TimerCore>,
    /// The `Timer` object, which a pending task does not keep alive.
    object: GilCell<Option<Py<PyWeakrefReference>>>,
}

impl TimerRef {
    pub(crate) fn new(py: Python<'_>, core: &Arc<TimerCore>) -> PyResult<Py<Self>> {
        Py::new(py, Self { core: ProcessOwned::new(Arc::clone(core)), object: GilCell::new(None) })
    }

    pub(crate) fn core(&self) -> &Arc<TimerCore> {
        self.core.arc()
    }

    /// Its `Timer` object, if that is not gone.
    pub(crate) fn timer<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.object.with(py, |object| object.as_ref().map(|object| object.clone_ref(py)))?.bind(py).upgrade()
    }

    /// Notes its `Timer` object.
    pub(crate) fn set_timer(&self, timer: &Bound<'_, PyAny>) -> PyResult<()> {
        let object = PyWeakrefReference::new(timer)?.unbind();
        let old = self.object.with(timer.py(), |slot| slot.replace(object));
        drop(old);
        Ok(())
    }
}
