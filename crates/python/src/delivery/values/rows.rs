//! `DeliveryRows`: deliveries as an Arrow record batch, by the Arrow C data interface, without a copy.

use arrow_array::ffi::to_ffi;
use arrow_array::{Array as _, RecordBatch, StructArray};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// What `pyarrow.record_batch` reads. The columns are those of `tickwheel.delivery.sinks.BatchSink`.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct DeliveryRows(RecordBatch);

impl DeliveryRows {
    pub(crate) fn new(rows: RecordBatch) -> Self {
        Self(rows)
    }
}

#[pymethods]
impl DeliveryRows {
    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    /// The capsules of the interface. The type is always this one.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema; // a producer may ignore it
        let data = StructArray::from(self.0.clone()).to_data();
        let (array, schema) = to_ffi(&data).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
        Ok((schema, PyCapsule::new_with_value(py, array, c"arrow_array")?))
    }
}
