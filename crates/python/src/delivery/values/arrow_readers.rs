//! The readers of Arrow: `ArrowRows` for batches of messages, `HandOffRows` for those of a hand-off, and `ArrowBody` for either as the
//! body of a request. They read without the GIL.

use std::sync::Arc;

use arrow_array::RecordBatch;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;

use super::readers::{Names, schema_of};
use crate::delivery::calls::failures::bad_record;
use crate::delivery::values::records::Records;
use crate::tools::native_lock::lock_plain;
use tickwheel::internal::sync::PlainMutex;
use tickwheel_delivery::BadRecord;
use tickwheel_delivery::internal::{ArrowRows as ArrowReader, ArrowStream, Parsed, Schema, add_hand_off, batches};

/// How rows of Arrow batches are read.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct ArrowRows(Arc<ArrowInput>);

struct ArrowInput {
    source: Arc<str>,
    schema: Schema,
    letters: bool,
}

#[pymethods]
impl ArrowRows {
    #[new]
    #[pyo3(signature = (source, columns, max_payload, *, letters=true))]
    fn new(source: &str, columns: Names, max_payload: usize, letters: bool) -> Self {
        Self(Arc::new(ArrowInput { source: source.into(), schema: schema_of(columns, max_payload), letters }))
    }

    /// Errors: `BadRecord` if no message can be read with these columns.
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts it")]
    fn check(&self, py: Python<'_>, names: Vec<PyBackedStr>) -> PyResult<()> {
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        self.0.schema.columns.fault("schema", &names).map_or(Ok(()), |bad| Err(bad_record(py, &bad)))
    }

    /// Reads an Arrow IPC stream, and returns an iterator of `Records`. `first_line`: the number of its first row;
    /// 0 for rows without an order.
    /// `as_bytes`: the columns of text that are given as bytes, because not all of it is UTF-8. `fault`: what is wrong with
    /// every row, and what is allowed. Errors: `BadRecord` if the stream can't be read.
    #[pyo3(signature = (stream, *, first_line=1, now_ns=None, as_bytes=Vec::new(), fault=None))]
    fn read(
        &self,
        py: Python<'_>,
        stream: &[u8],
        first_line: u64,
        now_ns: Option<i64>,
        as_bytes: Vec<String>,
        fault: Option<(String, String)>,
    ) -> PyResult<ArrowPieces> {
        let batches = py.detach(|| batches(stream)).map_err(|bad| bad_record(py, &bad))?;
        let fault = fault.map(|(reason, allowed)| BadRecord { reason, allowed });
        let rows = Rows::Messages { input: Arc::clone(&self.0), now_ns, as_bytes, fault };
        Ok(ArrowPieces::new(rows, batches, first_line))
    }

    /// A reader of one request's body.
    fn body(&self) -> ArrowBody {
        ArrowBody::new(Kind::Messages(Arc::clone(&self.0)))
    }
}

/// How rows of a hand-off are read.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct HandOffRows {
    max_payload: usize,
}

#[pymethods]
impl HandOffRows {
    #[new]
    fn new(max_payload: usize) -> Self {
        Self { max_payload }
    }

    /// A reader of one request's body.
    fn body(&self) -> ArrowBody {
        ArrowBody::new(Kind::HandOff { max_payload: self.max_payload })
    }
}

enum Kind {
    Messages(Arc<ArrowInput>),
    HandOff { max_payload: usize },
}

/// The body of a request, which is an Arrow IPC stream, as its parts come. One thread uses it at a time.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct ArrowBody {
    kind: Kind,
    stream: PlainMutex<Reading>,
}

#[derive(Default)]
struct Reading {
    stream: ArrowStream,
    is_known: bool,
    rows: u64,
}

impl ArrowBody {
    fn new(kind: Kind) -> Self {
        Self { kind, stream: PlainMutex::new(Reading::default()) }
    }

    fn read(&self, part: &[u8]) -> Result<(Vec<RecordBatch>, u64), BadRecord> {
        let mut reading = self.stream.lock();
        let found = reading.stream.read(part)?;
        if !reading.is_known
            && let Some(schema) = reading.stream.schema()
        {
            reading.is_known = true;
            if let Kind::Messages(input) = &self.kind {
                let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
                input.schema.columns.fault("schema", &names).map_or(Ok(()), Err)?;
            }
        }
        let first_line = reading.rows + 1;
        reading.rows += found.iter().map(|batch| batch.num_rows() as u64).sum::<u64>();
        Ok((found, first_line))
    }
}

#[pymethods]
impl ArrowBody {
    /// The records of the batches that are complete with this part, in pieces of at most some megabytes. `now_ns`: the
    /// wall time from which a `delay_ms` counts. Errors: `BadRecord` if it can't be read; it is not used again then.
    #[pyo3(signature = (part, *, now_ns=None))]
    fn add(&self, py: Python<'_>, part: &[u8], now_ns: Option<i64>) -> PyResult<ArrowPieces> {
        let (batches, first_line) = py.detach(|| self.read(part)).map_err(|bad| bad_record(py, &bad))?;
        let rows = match &self.kind {
            Kind::HandOff { max_payload } => Rows::HandOff { max_payload: *max_payload },
            Kind::Messages(input) => {
                Rows::Messages { input: Arc::clone(input), now_ns, as_bytes: Vec::new(), fault: None }
            }
        };
        Ok(ArrowPieces::new(rows, batches, first_line))
    }

    /// How many rows there were in its batches.
    #[getter]
    fn rows(&self, py: Python<'_>) -> u64 {
        lock_plain(py, &self.stream).rows
    }

    /// Nothing more comes. Errors: `BadRecord` if it ends in the middle.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.stream.lock().stream.end()).map_err(|bad| bad_record(py, &bad))
    }
}

/// Rows and bytes of a piece, about: a row may be larger, and in Arrow many equal ones take little memory.
const PIECE: (usize, usize) = (1024, 4 << 20);

enum Rows {
    Messages { input: Arc<ArrowInput>, now_ns: Option<i64>, as_bytes: Vec<String>, fault: Option<BadRecord> },
    HandOff { max_payload: usize },
}

#[derive(Clone, Copy)]
struct Place {
    batch: usize,
    row: usize,
    line: u64,
}

/// An iterator of the records of some batches, in pieces of bounded size.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct ArrowPieces {
    rows: Rows,
    batches: Vec<RecordBatch>,
    next: PlainMutex<Place>,
}

#[pymethods]
impl ArrowPieces {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Records>> {
        let mut place = *lock_plain(py, &self.next);
        let Some(items) = py.detach(|| self.piece(&mut place)).map_err(|bad| bad_record(py, &bad))? else {
            return Ok(None);
        };
        *lock_plain(py, &self.next) = place;
        let letters = match &self.rows {
            Rows::Messages { input, .. } => input.letters,
            Rows::HandOff { .. } => true,
        };
        Ok(Some(Records::new(items, letters)))
    }
}

impl ArrowPieces {
    fn new(rows: Rows, batches: Vec<RecordBatch>, first_line: u64) -> Self {
        Self { rows, batches, next: PlainMutex::new(Place { batch: 0, row: 0, line: first_line }) }
    }

    fn piece(&self, place: &mut Place) -> Result<Option<Vec<Parsed>>, BadRecord> {
        let (most_rows, most_bytes) = PIECE;
        let batch = loop {
            match self.batches.get(place.batch) {
                None => return Ok(None),
                Some(batch) if place.row < batch.num_rows() => break batch,
                Some(_) => (place.batch, place.row) = (place.batch + 1, 0),
            }
        };
        let batch = batch.slice(place.row, most_rows.min(batch.num_rows() - place.row));
        let mut items = Vec::new();
        match &self.rows {
            Rows::HandOff { max_payload } => add_hand_off(&mut items, &batch, *max_payload)?,
            Rows::Messages { input, now_ns, as_bytes, fault } => {
                let reader = ArrowReader {
                    source: Arc::clone(&input.source),
                    schema: &input.schema,
                    now_ns: *now_ns,
                    keeps_origin: input.letters,
                    as_bytes,
                    fault: fault.as_ref(),
                };
                let mut bytes = 0;
                for item in reader.read(&batch, place.line) {
                    bytes += item.size_in_memory();
                    items.push(item);
                    if bytes >= most_bytes {
                        break;
                    }
                }
            }
        }
        place.row += items.len();
        place.line += if place.line == 0 { 0 } else { items.len() as u64 };
        Ok(Some(items))
    }
}
