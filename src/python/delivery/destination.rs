//! `Destination`: one that the engine itself writes to or calls. Other sinks are Python objects.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;

use crate::delivery::{Destination as To, OpenSink};
use crate::python::delivery::failures;
use crate::python::delivery::function::{FunctionSink, Pace};
use crate::python::tools::native_lock::attach;

/// A destination of the engine's own. Nothing is opened yet.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct Destination(To);

#[pymethods]
impl Destination {
    /// Lines of NDJSON on standard output, which stays open at the end.
    #[staticmethod]
    fn standard_output() -> Self {
        Self(To::standard_output())
    }

    /// Lines of NDJSON, appended to a file.
    #[staticmethod]
    fn file(path: PathBuf) -> Self {
        Self(To::file(path))
    }

    /// A POST for each message. Raises `WrongUsage` if this is no address.
    #[staticmethod]
    fn http(py: Python<'_>, url: &str) -> PyResult<Self> {
        To::http(url).map(Self).map_err(|error| failures::to_python(py, &error))
    }

    /// A call for each message, from up to eight threads.
    #[staticmethod]
    fn function(function: Py<PyAny>) -> Self {
        let (function, pace) = (Arc::new(function), Arc::<Pace>::default());
        Self(To::shown("function(...)".to_owned(), move |_| {
            Ok(FunctionSink::new(attach(|py| function.clone_ref(py)), pace.clone()))
        }))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0).replacen("::", ".", 1)
    }
}

impl Destination {
    pub(crate) fn opener(&self) -> OpenSink {
        self.0.clone().into_opener()
    }
}
