//! `Destination`: one that the engine itself writes to or calls. Other sinks are Python objects.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::delivery::DeliveryError;
use crate::delivery::{HttpAddress, HttpSink};
use crate::delivery::{LineSink, OpenSink, Target};
use crate::python::delivery::callees::Callees;
use crate::python::delivery::failures;
use crate::python::delivery::function::{FunctionSink, Pace};
use crate::python::tools::native_lock::attach;

/// A destination of the engine's own. Nothing is opened yet.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct Destination(Kind);

enum Kind {
    Lines(Target),
    Http(HttpAddress),
    Function(Py<PyAny>),
}

#[pymethods]
impl Destination {
    /// Lines of NDJSON on standard output, which stays open at the end.
    #[staticmethod]
    fn standard_output() -> Self {
        Self(Kind::Lines(Target::StandardOutput))
    }

    /// Lines of NDJSON, appended to a file.
    #[staticmethod]
    fn file(path: PathBuf) -> Self {
        Self(Kind::Lines(Target::File(path)))
    }

    /// A POST for each message. Raises `WrongUsage` if this is no address.
    #[staticmethod]
    fn http(py: Python<'_>, url: &str) -> PyResult<Self> {
        let address = HttpAddress::parse(url).map_err(|error| failures::to_python(py, &error))?;
        Ok(Self(Kind::Http(address)))
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
            Kind::Lines(_) | Kind::Http(_) => Ok(()),
        }
    }

    fn __repr__(&self) -> String {
        match &self.0 {
            Kind::Lines(Target::StandardOutput) => "Destination.standard_output()".to_owned(),
            Kind::Lines(Target::File(path)) => format!("Destination.file({:?})", path.to_string_lossy()),
            Kind::Http(address) => format!("Destination.http({address:?})"),
            Kind::Function(_) => "Destination.function(...)".to_owned(),
        }
    }
}

impl Destination {
    /// What opens it for the engine of these callees.
    pub(crate) fn opener(&self, py: Python<'_>, callees: &Callees) -> OpenSink {
        match &self.0 {
            Kind::Lines(target) => {
                let target = target.clone();
                Arc::new(move |_| Ok(Box::new(LineSink::open(&target)?)))
            }
            Kind::Http(address) => {
                let address = address.clone();
                Arc::new(move |_| Ok(Box::new(HttpSink::open(&address)?)))
            }
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
