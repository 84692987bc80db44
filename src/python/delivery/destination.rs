//! `Destination`: one that the engine itself writes to or calls. Other sinks are Python objects.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::delivery::{DeliveryError, Destination as To, OpenSink};
use crate::python::delivery::callees::Callees;
use crate::python::delivery::failures;
use crate::python::delivery::function::{FunctionSink, Pace};
use crate::python::tools::native_lock::attach;

/// A destination of the engine's own. Nothing is opened yet.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct Destination(Kind);

enum Kind {
    Own(To),
    Function(Py<PyAny>),
}

#[pymethods]
impl Destination {
    /// Lines of NDJSON on standard output, which stays open at the end.
    #[staticmethod]
    fn standard_output() -> Self {
        Self(Kind::Own(To::standard_output()))
    }

    /// Lines of NDJSON, appended to a file.
    #[staticmethod]
    fn file(path: PathBuf) -> Self {
        Self(Kind::Own(To::file(path)))
    }

    /// A POST for each message. Raises `WrongUsage` if this is no address.
    #[staticmethod]
    fn http(py: Python<'_>, url: &str) -> PyResult<Self> {
        To::http(url).map(|to| Self(Kind::Own(to))).map_err(|error| failures::to_python(py, &error))
    }

    /// A call for each message, from up to eight threads.
    #[staticmethod]
    fn function(function: Py<PyAny>) -> Self {
        Self(Kind::Function(function))
    }

    /// An engine that was made with it has a reference of its own to the function.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.0 {
            Kind::Function(function) => visit.call(function),
            Kind::Own(_) => Ok(()),
        }
    }

    fn __repr__(&self) -> String {
        match &self.0 {
            Kind::Own(destination) => format!("{destination:?}").replacen("::", ".", 1),
            Kind::Function(_) => "Destination.function(...)".to_owned(),
        }
    }
}

impl Destination {
    /// What opens it for the engine of these callees.
    pub(crate) fn opener(&self, py: Python<'_>, callees: &Callees) -> OpenSink {
        match &self.0 {
            Kind::Own(destination) => destination.clone().into_opener(),
            Kind::Function(function) => {
                let (engine, pace) = (callees.engine(), Arc::<Pace>::default());
                let function = callees.add(py, function.clone_ref(py));
                Arc::new(move |_| {
                    attach(|py| {
                        let function = function.get(py).ok_or(DeliveryError::Closed)?;
                        Ok(Box::new(FunctionSink::new(engine, function.unbind(), pace.clone())) as _)
                    })
                })
            }
        }
    }
}
