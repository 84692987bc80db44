//! The readers of text: `NdjsonLines` and `CsvRows`. They read without the GIL.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};

use crate::delivery::calls::failures::bad_record;
use crate::delivery::values::records::Records;
use tickwheel::internal::sync::PlainMutex;
use tickwheel_delivery::internal::{Block, Columns, Csv, Ndjson, Parsed, Schema};

/// Names of id, key, due, payload, destination and tenant, `None` for the usual one; and the zone of times without an offset.
pub(super) type Names =
    (Option<String>, Option<String>, Option<String>, Option<String>, Option<String>, Option<String>, Option<String>);

/// Errors: `BadRecord` if there is no such zone.
pub(super) fn schema_of(
    py: Python<'_>,
    (id, key, due, payload, destination, tenant, zone): Names,
    max_payload: usize,
) -> PyResult<Schema> {
    let columns = Columns { destination, tenant, ..Columns::named(id, key, due, payload) };
    let schema = Schema::new(columns, max_payload);
    match zone {
        Some(zone) => schema.in_zone(&zone).map_err(|bad| bad_record(py, &bad)),
        None => Ok(schema),
    }
}

/// How the lines of one input are read. `after`: lines up to this one are skipped. A line that can't be used becomes a dead
/// letter.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct NdjsonLines {
    source: Arc<str>,
    schema: Schema,
    after: u64,
}

#[pymethods]
impl NdjsonLines {
    #[new]
    #[pyo3(signature = (source, columns, max_payload, *, after=0))]
    fn new(py: Python<'_>, source: &str, columns: Names, max_payload: usize, after: u64) -> PyResult<Self> {
        Ok(Self { source: source.into(), schema: schema_of(py, columns, max_payload)?, after })
    }

    /// Reads whole lines. `left_out`: bytes of the last one that are not here.
    #[pyo3(signature = (data, *, first_line=1, left_out=0, now_ns=None))]
    fn read(&self, py: Python<'_>, data: &[u8], first_line: u64, left_out: usize, now_ns: Option<i64>) -> Records {
        let items = py.detach(|| {
            let block = Block { bytes: data.to_vec().into(), first_line, left_out };
            self.reader(now_ns).read(&block).collect()
        });
        Records::new(items, true)
    }

    /// Reads values that hold one record each, with the source and the line of each, and the time from which its delay counts, in
    /// milliseconds since 1970. Without one that nanoseconds can hold, a delay is refused.
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts it")]
    fn read_values(&self, py: Python<'_>, values: Vec<PlacedValue>) -> Records {
        let items = py.detach(|| {
            let mut reader = self.reader(None);
            let item = |(value, source, line, at_ms): &PlacedValue| {
                reader.now_ns = at_ms.checked_mul(1_000_000);
                let source = source.as_deref().unwrap_or("");
                if *reader.source != *source {
                    reader.source = source.into();
                }
                reader.read_value(&value.as_deref().unwrap_or_default().to_vec().into(), line.unwrap_or(0))
            };
            values.iter().map(item).collect()
        });
        Records::new(items, true)
    }
}

type PlacedValue = (Option<PyBackedBytes>, Option<PyBackedStr>, Option<u64>, i64);

impl NdjsonLines {
    fn reader(&self, now_ns: Option<i64>) -> Ndjson<'_> {
        let (source, schema) = (Arc::clone(&self.source), &self.schema);
        Ndjson { source, schema, now_ns, after: self.after, keeps_origin: true }
    }
}

/// How the rows of one CSV file are read. One thread uses it at a time.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct CsvRows(PlainMutex<Csv>);

#[pymethods]
impl CsvRows {
    /// `after`: rows that begin at this line or before it are skipped.
    #[new]
    #[pyo3(signature = (source, columns, max_payload, *, after=0))]
    fn new(py: Python<'_>, source: &str, columns: Names, max_payload: usize, after: u64) -> PyResult<Self> {
        Ok(Self(PlainMutex::new(Csv::new(source, schema_of(py, columns, max_payload)?, after))))
    }

    /// Reads whole lines. Returns the records that end with them, the line where the last one begins, and whether the
    /// header can't be used: then nothing more is read. `left_out`: bytes of the last line that are not here. No bytes
    /// mean that the input has ended.
    #[pyo3(signature = (data, *, left_out=0, now_ns=None))]
    fn read(&self, py: Python<'_>, data: &[u8], left_out: usize, now_ns: Option<i64>) -> (Records, u64, bool) {
        py.detach(|| {
            let mut csv = self.0.lock();
            let items = csv.read(data, left_out, now_ns);
            let line = items.last().and_then(Parsed::origin).map_or(0, |origin| origin.line);
            (Records::new(items, true), line, csv.is_refused)
        })
    }
}
