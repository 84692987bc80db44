//! The readers of Arrow: `ArrowRows` for batches of messages or of a hand-off. `ArrowBody` reads them from the body of a
//! request. They read without the GIL.

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

/// How rows of Arrow batches are read: as messages, or as those of a hand-off.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct ArrowRows(Arc<Rows>);

enum Rows {
    Messages { source: Arc<str>, schema: Schema, letters: bool },
    HandOff { max_payload: usize },
}

#[pymethods]
impl ArrowRows {
    /// `letters`: whether a row that can't be used becomes a dead letter. If not, the caller gets its fault.
    #[new]
    #[pyo3(signature = (source, columns, max_payload, *, letters=true))]
    fn new(py: Python<'_>, source: &str, columns: Names, max_payload: usize, letters: bool) -> PyResult<Self> {
        let schema = schema_of(py, columns, max_payload)?;
        Ok(Self(Arc::new(Rows::Messages { source: source.into(), schema, letters })))
    }

    #[staticmethod]
    fn hand_off(max_payload: usize) -> Self {
        Self(Arc::new(Rows::HandOff { max_payload }))
    }

    /// Errors: `BadRecord` if no message can be read with these columns.
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts it")]
    fn check(&self, py: Python<'_>, names: Vec<PyBackedStr>) -> PyResult<()> {
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        self.0.fault(&names).map_or(Ok(()), |bad| Err(bad_record(py, &bad)))
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
        Ok(ArrowPieces { now_ns, as_bytes, fault, ..ArrowPieces::of(&self.0, batches, first_line) })
    }

    /// A reader of one request's body.
    fn body(&self) -> ArrowBody {
        ArrowBody { rows: Arc::clone(&self.0), stream: PlainMutex::default(), decoded_bytes: Arc::default() }
    }
}

/// The columns of messages, in any order. Other columns are the payload if there is no payload column.
const COLUMNS: &str = "the columns id; due, delay_ms, every, cron or op; and if needed key, payload, payload_base64, \
                       expires, traceparent, tz, missed";

impl Rows {
    /// What is wrong with these columns of messages.
    fn fault(&self, names: &[&str]) -> Option<BadRecord> {
        if let Self::Messages { schema, .. } = self { schema.columns.fault("schema", names) } else { None }
    }
}

/// The body of a request, which is an Arrow IPC stream, as its parts come. One thread uses it at a time.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct ArrowBody {
    rows: Arc<Rows>,
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
    fn read(&self, part: &[u8]) -> Result<(Vec<RecordBatch>, u64), BadRecord> {
        let mut reading = self.stream.lock();
        let found = reading.stream.read(part)?;
        reading.kept_bytes += part.len();
        if !reading.is_known
            && let Some(schema) = reading.stream.schema()
        {
            reading.is_known = true;
            reading.has_dictionaries = has_dictionaries(&schema);
            if let Rows::HandOff { max_payload } = &*self.rows {
                read_hand_off(&RecordBatch::new_empty(Arc::clone(&schema)), *max_payload).map(drop)?; // its columns
            }
            let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            if let Some(bad) = self.rows.fault(&names) {
                return Err(BadRecord { reason: bad.reason, allowed: COLUMNS.to_owned() });
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
        let decoded_bytes = Arc::clone(&self.decoded_bytes);
        Ok(ArrowPieces { now_ns, decoded_bytes, ..ArrowPieces::of(&self.rows, batches, first_line) })
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

#[derive(Clone, Copy)]
struct Place {
    batch: usize,
    row: usize,
    line: u64,
}

/// An iterator of the records of some batches, in pieces of bounded size.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct ArrowPieces {
    rows: Arc<Rows>,
    now_ns: Option<i64>,
    as_bytes: Vec<String>,
    fault: Option<BadRecord>,
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
        Ok(Some(Records::new(items, !matches!(&*self.rows, Rows::Messages { letters: false, .. }))))
    }
}

impl ArrowPieces {
    fn of(rows: &Arc<Rows>, batches: Vec<RecordBatch>, first_line: u64) -> Self {
        let next = PlainMutex::new(Place { batch: 0, row: 0, line: first_line });
        let (rows, decoded_bytes) = (Arc::clone(rows), Arc::default());
        Self { rows, now_ns: None, as_bytes: Vec::new(), fault: None, decoded_bytes, batches, next }
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
        let items = match &*self.rows {
            Rows::HandOff { max_payload } => some_of(read_hand_off(&batch, *max_payload)?, &self.decoded_bytes),
            Rows::Messages { source, schema, letters } => {
                let reader = ArrowReader {
                    source: Arc::clone(source),
                    schema,
                    now_ns: self.now_ns,
                    keeps_origin: *letters,
                    as_bytes: &self.as_bytes,
                    fault: self.fault.as_ref(),
                };
                some_of(reader.read(&batch, place.line), &self.decoded_bytes)
            }
        };
        place.row += items.len();
        place.line += if place.line == 0 { 0 } else { items.len() as u64 };
        Ok(Some(items))
    }
}
