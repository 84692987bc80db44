//! The readers of the formats: `NdjsonLines`, `CsvRows`, `ArrowRows` and `HandedRows`. They read without the GIL.

use std::sync::Arc;

use arrow_array::RecordBatch;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};

use crate::delivery::failures::bad_record;
use crate::delivery::records::Records;
use crate::tools::native_lock::lock_plain;
use tickwheel::internal::sync::PlainMutex;
use tickwheel_delivery::BadRecord;
use tickwheel_delivery::internal::{
    ArrowRows as ArrowReader, Block, Columns, CsvContent, CsvHeader, CsvRow, CsvRows as CsvReader, Ndjson, Parsed,
    Schema, batches, read_stream,
};

/// Names of id, key, due and payload; `None` for the usual one.
type Names = (Option<String>, Option<String>, Option<String>, Option<String>);

fn schema_of((id, key, due, payload): Names, max_payload: usize) -> Schema {
    Schema::new(Columns { id, key, due, payload }, max_payload)
}

/// How the lines of one input are read. `after`: lines up to this one are skipped. `letters`: a line that can't be used
/// becomes a dead letter; otherwise its fault is only told.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct NdjsonLines {
    source: Arc<str>,
    schema: Schema,
    after: u64,
    letters: bool,
}

#[pymethods]
impl NdjsonLines {
    #[new]
    #[pyo3(signature = (source, columns, max_payload, *, after=0, letters=true))]
    fn new(source: &str, columns: Names, max_payload: usize, after: u64, letters: bool) -> Self {
        Self { source: source.into(), schema: schema_of(columns, max_payload), after, letters }
    }

    /// Reads whole lines. `left_out`: bytes of the last one that are not here.
    #[pyo3(signature = (data, *, first_line=1, left_out=0, now_ns=None))]
    fn read(&self, py: Python<'_>, data: &[u8], first_line: u64, left_out: usize, now_ns: Option<i64>) -> Records {
        let items = py.detach(|| {
            let block = Block { bytes: Arc::<[u8]>::from(data), first_line, left_out };
            self.reader(now_ns).read(&block).collect()
        });
        Records::new(items, self.letters)
    }

    /// Reads bytes that are one record, on however many lines. Their size is known to be allowed.
    #[pyo3(signature = (data, *, now_ns=None))]
    fn read_object(&self, py: Python<'_>, data: &[u8], now_ns: Option<i64>) -> Records {
        let item = py.detach(|| self.reader(now_ns).read_object(&Arc::from(data)));
        Records::new(vec![item], self.letters)
    }

    /// Reads values that hold one record each, with the source and the line of each, and the time from which its delay counts, in
    /// milliseconds since 1970.
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
                reader.read_value(&Arc::from(value.as_deref().unwrap_or(&[])), line.unwrap_or(0))
            };
            values.iter().map(item).collect()
        });
        Records::new(items, self.letters)
    }
}

type PlacedValue = (Option<PyBackedBytes>, Option<PyBackedStr>, Option<u64>, i64);

impl NdjsonLines {
    fn reader(&self, now_ns: Option<i64>) -> Ndjson<'_> {
        let (source, schema) = (Arc::clone(&self.source), &self.schema);
        Ndjson { source, schema, now_ns, after: self.after, keeps_origin: self.letters }
    }
}

/// How the rows of a CSV file are read, once its header is known. Python's `csv` splits them into cells.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct CsvRows {
    source: Arc<str>,
    schema: Schema,
    header: CsvHeader,
}

/// The line of a row, its bytes, how many there were, and its cells; or else why it is not CSV, and what would be; or
/// neither if a line of it is no text.
type CsvLine = (u64, PyBackedBytes, usize, Option<Vec<PyBackedStr>>, Option<(String, String)>);

fn row_of((line, data, size, cells, fault): &CsvLine) -> CsvRow<'_, PyBackedStr> {
    let content = match (cells, fault) {
        (Some(cells), _) => CsvContent::Cells(cells),
        (None, Some((reason, allowed))) => {
            CsvContent::Broken(BadRecord { reason: reason.clone(), allowed: allowed.clone() })
        }
        (None, None) => CsvContent::Unread(*size),
    };
    CsvRow { line: *line, data, content }
}

#[pymethods]
impl CsvRows {
    /// `header`: the first row. Errors: `BadRecord` if it can't be read, or no message can be read with its columns.
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts it")]
    fn new(py: Python<'_>, source: &str, columns: Names, max_payload: usize, header: CsvLine) -> PyResult<Self> {
        let schema = schema_of(columns, max_payload);
        let names = row_of(&header).cells(schema.max_record()).map_err(|bad| BadRecord {
            reason: format!("the header can't be read: {}", bad.reason),
            allowed: bad.allowed,
        });
        let names = names.map(|names| names.iter().map(ToString::to_string).collect());
        match names.and_then(|names| CsvHeader::new(names, &schema)) {
            Ok(header) => Ok(Self { source: source.into(), schema, header }),
            Err(bad) => Err(bad_record(py, &bad)),
        }
    }

    /// Reads rows below the header.
    #[pyo3(signature = (rows, *, now_ns=None))]
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts it")]
    fn read(&self, py: Python<'_>, rows: Vec<CsvLine>, now_ns: Option<i64>) -> Records {
        let items = py.detach(|| {
            let reader =
                CsvReader { source: Arc::clone(&self.source), schema: &self.schema, header: &self.header, now_ns };
            rows.iter().map(|row| reader.read(&row_of(row))).collect()
        });
        Records::new(items, true)
    }
}

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
        let place = Place { batch: 0, row: 0, line: first_line };
        Ok(ArrowPieces { input: Arc::clone(&self.0), batches, now_ns, as_bytes, fault, next: PlainMutex::new(place) })
    }
}

/// Rows and bytes of a piece, about: a row may be larger, and in Arrow many equal ones take little memory.
const PIECE: (usize, usize) = (1024, 4 << 20);

#[derive(Clone, Copy)]
struct Place {
    batch: usize,
    row: usize,
    line: u64,
}

/// An iterator of the records of some batches, in pieces of bounded size.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct ArrowPieces {
    input: Arc<ArrowInput>,
    batches: Vec<RecordBatch>,
    now_ns: Option<i64>,
    as_bytes: Vec<String>,
    fault: Option<BadRecord>,
    next: PlainMutex<Place>,
}

#[pymethods]
impl ArrowPieces {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> Option<Records> {
        let mut place = *lock_plain(py, &self.next);
        let items = py.detach(|| self.piece(&mut place))?;
        *lock_plain(py, &self.next) = place;
        Some(Records::new(items, self.input.letters))
    }
}

impl ArrowPieces {
    fn piece(&self, place: &mut Place) -> Option<Vec<Parsed>> {
        let (most_rows, most_bytes) = PIECE;
        while self.batches.get(place.batch)?.num_rows() <= place.row {
            (place.batch, place.row) = (place.batch + 1, 0);
        }
        let batch = &self.batches[place.batch];
        let batch = batch.slice(place.row, most_rows.min(batch.num_rows() - place.row));
        let reader = ArrowReader {
            source: Arc::clone(&self.input.source),
            schema: &self.input.schema,
            now_ns: self.now_ns,
            keeps_origin: self.input.letters,
            as_bytes: &self.as_bytes,
            fault: self.fault.as_ref(),
        };
        let (mut items, mut bytes) = (Vec::new(), 0);
        for item in reader.read(&batch, place.line) {
            bytes += item.size_in_memory();
            items.push(item);
            if bytes >= most_bytes {
                break;
            }
        }
        place.row += items.len();
        place.line += if place.line == 0 { 0 } else { items.len() as u64 };
        Some(items)
    }
}

/// How rows of a hand-off are read.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct HandedRows {
    max_payload: usize,
}

#[pymethods]
impl HandedRows {
    #[new]
    fn new(max_payload: usize) -> Self {
        Self { max_payload }
    }

    /// Reads an Arrow IPC stream. Errors: `BadRecord` if it can't be read, or its columns are not those of a hand-off.
    fn read(&self, py: Python<'_>, stream: &[u8]) -> PyResult<Records> {
        let items = py.detach(|| read_stream(stream, self.max_payload)).map_err(|bad| bad_record(py, &bad))?;
        Ok(Records::new(items, true))
    }
}
