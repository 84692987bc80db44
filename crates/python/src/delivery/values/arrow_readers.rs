//! The readers of Arrow: `ArrowRows` for batches of messages, and `HandOffRows` for batches of a hand-off. `ArrowBody`
//! reads either of them from the body of a request. They read without the GIL.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;

use super::readers::{Names, schema_of};
use crate::delivery::calls::failures::bad_record;
use crate::delivery::values::records::Records;
use crate::tools::native_lock::lock_plain;
use tickwheel::internal::sync::PlainMutex;
use tickwheel_delivery::BadRecord;
use tickwheel_delivery::internal::{
    ArrowRows as ArrowReader, ArrowStream, Parsed, Schema, batches, has_dictionaries, read_hand_off,
};

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
    fn new(py: Python<'_>, source: &str, columns: Names, max_payload: usize, letters: bool) -> PyResult<Self> {
        let schema = schema_of(py, columns, max_payload)?;
        Ok(Self(Arc::new(ArrowInput { source: source.into(), schema, letters })))
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
        Ok(ArrowPieces::new(rows, batches, first_line, Arc::default()))
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

/// The columns of messages, in any order. Other columns are the payload if there is no payload column.
const COLUMNS: &str = "the columns id; due, delay_ms, every, cron or op; and if needed key, payload, payload_base64, \
                       expires, traceparent, tz, missed";

enum Kind {
    Messages(Arc<ArrowInput>),
    HandOff { max_payload: usize },
}

/// The body of a request, which is an Arrow IPC stream, as its parts come. One thread uses it at a time.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct ArrowBody {
    kind: Kind,
    stream: PlainMutex<Reading>,
    /// The bytes of the records that were read by now.
    decoded_bytes: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Reading {
    stream: ArrowStream,
    is_known: bool,
    has_dictionaries: bool,
    rows: u64,
    kept_bytes: usize,
}

impl ArrowBody {
    fn new(kind: Kind) -> Self {
        Self { kind, stream: PlainMutex::new(Reading::default()), decoded_bytes: Arc::default() }
    }

    fn read(&self, part: &[u8]) -> Result<(Vec<RecordBatch>, u64), BadRecord> {
        let mut reading = self.stream.lock();
        let found = reading.stream.read(part)?;
        reading.kept_bytes += part.len();
        if !reading.is_known
            && let Some(schema) = reading.stream.schema()
        {
            reading.is_known = true;
            reading.has_dictionaries = has_dictionaries(&schema);
            if let Kind::HandOff { max_payload } = &self.kind {
                read_hand_off(&RecordBatch::new_empty(Arc::clone(&schema)), *max_payload).map(drop)?; // its columns
            }
            if let Kind::Messages(input) = &self.kind {
                let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
                if let Some(bad) = input.schema.columns.fault("schema", &names) {
                    return Err(BadRecord { reason: bad.reason, allowed: COLUMNS.to_owned() });
                }
            }
        }
        if !found.is_empty() && !reading.has_dictionaries {
            reading.kept_bytes = 0; // but for the beginning of the next batch, which is in this part
        }
        let first_line = reading.rows.saturating_add(1);
        for batch in &found {
            reading.rows = reading.rows.saturating_add(batch.num_rows() as u64); // nulls take no bytes, however many
        }
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
        Ok(ArrowPieces::new(rows, batches, first_line, Arc::clone(&self.decoded_bytes)))
    }

    /// How many rows there were in its batches.
    #[getter]
    fn rows(&self, py: Python<'_>) -> u64 {
        lock_plain(py, &self.stream).rows
    }

    /// How many bytes it keeps, about: of the batch that has not come as a whole, and of dictionaries.
    #[getter]
    fn kept_bytes(&self, py: Python<'_>) -> usize {
        lock_plain(py, &self.stream).kept_bytes
    }

    /// How many bytes the records take that were read by now: rows may share a value of a dictionary, which takes none.
    #[getter]
    fn decoded_bytes(&self) -> usize {
        self.decoded_bytes.load(Ordering::Relaxed)
    }

    /// Nothing more comes. Errors: `BadRecord` if it ends in the middle.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.stream.lock().stream.end()).map_err(|bad| bad_record(py, &bad))
    }
}

/// Rows and bytes of a piece, about: a row may be larger, and in Arrow many equal ones take little memory.
const PIECE_ROWS: usize = 1024;
const PIECE_BYTES: usize = 4 << 20;

fn some_of(items: impl Iterator<Item = Parsed>, decoded_bytes: &AtomicUsize) -> Vec<Parsed> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    for item in items {
        bytes += item.size_in_memory();
        found.push(item);
        if bytes >= PIECE_BYTES {
            break;
        }
    }
    decoded_bytes.fetch_add(bytes, Ordering::Relaxed); // it guards nothing
    found
}

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
    decoded_bytes: Arc<AtomicUsize>,
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
    fn new(rows: Rows, batches: Vec<RecordBatch>, first_line: u64, decoded_bytes: Arc<AtomicUsize>) -> Self {
        Self { rows, decoded_bytes, batches, next: PlainMutex::new(Place { batch: 0, row: 0, line: first_line }) }
    }

    fn piece(&self, place: &mut Place) -> Result<Option<Vec<Parsed>>, BadRecord> {
        let batch = loop {
            match self.batches.get(place.batch) {
                None => return Ok(None),
                Some(batch) if place.row < batch.num_rows() => break batch,
                Some(_) => (place.batch, place.row) = (place.batch + 1, 0),
            }
        };
        let batch = batch.slice(place.row, PIECE_ROWS.min(batch.num_rows() - place.row));
        let items = match &self.rows {
            Rows::HandOff { max_payload } => some_of(read_hand_off(&batch, *max_payload)?, &self.decoded_bytes),
            Rows::Messages { input, now_ns, as_bytes, fault } => {
                let reader = ArrowReader {
                    source: Arc::clone(&input.source),
                    schema: &input.schema,
                    now_ns: *now_ns,
                    keeps_origin: input.letters,
                    as_bytes,
                    fault: fault.as_ref(),
                };
                some_of(reader.read(&batch, place.line), &self.decoded_bytes)
            }
        };
        place.row += items.len();
        place.line += if place.line == 0 { 0 } else { items.len() as u64 };
        Ok(Some(items))
    }
}
