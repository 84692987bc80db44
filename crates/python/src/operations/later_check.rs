//! Checks that a purgatory leaves to its timer, as internal tasks.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::operations::operation_host::PythonHost;
use crate::operations::operation_object::LaterCheck;
use crate::scheduled::task_object::TimerTask;
use crate::values::callback_scope;

#[pymethods]
impl LaterCheck {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let host = PythonHost::of_timer(py, callback_scope::propagates());
        self.0.run(&host);
        host.finish(())
    }

    /// The collector clears the task that refers to this object.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(self.0.operation())
    }
}

/// The executor refused an internal task. The error is reported as one of the operation, so that users never see the
/// task.
pub(crate) fn report_refused(py: Python<'_>, task: &Bound<'_, PyAny>, error: PyErr) {
    let callback = task.cast::<TimerTask>().ok().and_then(|task| task.get().callback(py));
    if let Some(Ok(check)) = callback.as_ref().map(|callback| callback.bind(py).cast::<LaterCheck>()) {
        check.get().0.refuse(&PythonHost::of_timer(py, false), error);
    }
}
