//! What is submitted, and the receipt for it. No Python object is made for a record.

use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::delivery::calls::failures::{bad_record, quoted, wrong_usage};
use crate::delivery::values::entry::{Entry, Limits};
use crate::delivery::values::items::entry_of;
use crate::delivery::values::message::{message_to_python, raw_of};
use crate::delivery::values::operations::answer_to_python;
use crate::delivery::values::puts::{now_ns, put_of, rfc_3339};
use crate::tools::finalizing::ForeignCall;
use crate::tools::made_once::imported;
use tickwheel_delivery::internal::{
    Answers, Block, Columns, Csv, Item, MAX_PAYLOAD, Ndjson, Origin, Parsed, Schema, check_traceparent,
    record_as_given, with_commas, write_stream,
};
use tickwheel_delivery::{Answer, BadRecord};

/// The most messages of one part.
const PART: usize = 1_000;

/// How a call reads what it is given: its keyword arguments.
pub(crate) struct Options {
    /// `item`, or `items`: a message or another item; `messages`: nothing else; `object`: the bytes of one JSON object;
    /// `lines`: the bytes of lines of NDJSON.
    format: String,
    /// Whether each message takes the place of the message with its name.
    replace: bool,
    /// How long after the first call of a series a message that replaces is due at the latest.
    at_latest_ms: Option<i64>,
    /// New messages for these `destinations` or `tenants` are taken, and nothing else (D12).
    limits: Option<Limits>,
    /// The `traceparent` for messages without one. Another text is ignored, as W3C Trace Context asks.
    trace: Option<String>,
    max_payload: usize,
    /// With more bad records, none is taken.
    most_bad: usize,
}

impl Options {
    pub(crate) fn of(given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        fn option<T>(given: Option<&Bound<'_, PyDict>>, name: &str, otherwise: T) -> PyResult<T>
        where
            T: for<'py> FromPyObjectOwned<'py, Error = PyErr>,
        {
            let found = given.map(|given| given.get_item(name)).transpose()?.flatten();
            found.map_or(Ok(otherwise), |found| found.extract())
        }
        let trace = option::<Option<String>>(given, "trace", None)?;
        Ok(Self {
            format: option(given, "format", "items".to_owned())?,
            replace: option(given, "replace", false)?,
            at_latest_ms: option(given, "at_latest_ms", None)?,
            limits: option(given, "limits", None)?,
            trace: trace.filter(|trace| check_traceparent(trace).is_ok()),
            max_payload: option(given, "max_payload", MAX_PAYLOAD)?,
            most_bad: option(given, "most_bad", usize::MAX)?,
        })
    }

    fn applied(&self, entry: Entry) -> Entry {
        let entry = if self.replace { entry.replacing(self.at_latest_ms) } else { entry };
        let entry = if let Some(limits) = &self.limits { entry.limited_to(limits) } else { entry };
        if let Some(trace) = &self.trace { entry.traced(trace) } else { entry }
    }

    /// Reads what a caller gives, in parts. All of it is read before it is submitted.
    ///
    /// Errors: `BadRecord` and `WrongUsage` for a value that is wrong, and `BadRecord` for too many bad records.
    pub(crate) fn read(&self, given: &Bound<'_, PyAny>) -> PyResult<Parts> {
        let py = given.py();
        let _call = ForeignCall::enter(py)?;
        match &*self.format {
            _ if let Ok(records) = given.cast::<Records>() => Ok(self.read_again(records.get())),
            "item" => Ok(vec![Found::asked(vec![self.applied(entry_of(given, self.max_payload)?)])]),
            "object" | "lines" | "csv" => {
                let data = given.cast::<PyBytes>()?.as_bytes();
                let found = py.detach(|| self.read_text(data)).map_err(|bad| bad_record(py, &bad))?;
                Ok(vec![found])
            }
            _ => self.read_values(given),
        }
    }

    fn read_again(&self, records: &Records) -> Parts {
        if !self.replace && self.trace.is_none() && self.limits.is_none() {
            return records.0.clone();
        }
        let changed = |found: &Arc<Found>| {
            let entries = found.entries.iter().map(|entry| self.applied(entry.clone())).collect();
            Arc::new(Found { entries, letters: found.letters })
        };
        records.0.iter().map(changed).collect()
    }

    fn read_values(&self, given: &Bound<'_, PyAny>) -> PyResult<Parts> {
        let py = given.py();
        let is_messages = self.format == "messages";
        let values = given.try_iter().map_err(|_| {
            if is_messages {
                let allowed = "give a list of messages, or another iterable";
                return wrong_usage(py, &format!("{} can't be put: {allowed}", quoted(given)));
            }
            let allowed = "give a sequence of Messages, Cancels and Looks";
            PyTypeError::new_err(format!("{} can't be submitted: {allowed}", quoted(given)))
        })?;
        let (mut parts, mut entries) = (Parts::new(), Vec::new());
        for (at, value) in values.enumerate() {
            let value = value?;
            if !is_messages && let Ok(records) = value.cast::<Records>() {
                parts.extend((!entries.is_empty()).then(|| Found::asked(std::mem::take(&mut entries))));
                parts.extend(self.read_again(records.get()));
                continue;
            }
            let read = if is_messages { put_of(&value, self.max_payload) } else { entry_of(&value, self.max_payload) };
            let noted = |error: PyErr| {
                if error.is_instance_of::<PyValueError>(py) {
                    let note = format!("It is number {at} of those that were given, counted from 0.");
                    let _ = error.value(py).call_method1("add_note", (note,));
                }
                error
            };
            entries.push(self.applied(read.map_err(noted)?));
            if is_messages && entries.len() == PART {
                parts.push(Found::asked(std::mem::take(&mut entries)));
            }
        }
        parts.extend((!entries.is_empty()).then(|| Found::asked(entries)));
        Ok(parts)
    }

    fn read_text(&self, data: &[u8]) -> Result<Arc<Found>, BadRecord> {
        let schema = Schema::new(Columns::default(), self.max_payload);
        let (source, now_ns) = ("-".into(), Some(now_ns()));
        if self.format == "csv" {
            let mut csv = Csv::new("-", schema, 0);
            let mut rows = csv.read(data, 0, now_ns);
            rows.extend(csv.read(&[], 0, now_ns)); // no bytes are the end
            return self.asked(rows.into_iter());
        }
        let reader = Ndjson { source, schema: &schema, now_ns, after: 0, keeps_origin: true };
        let bytes = data.to_vec().into();
        if self.format == "object" {
            return Ok(Found::asked(vec![self.applied(without_record(reader.read_object(&bytes)))]));
        }
        self.asked(reader.read(&Block { bytes, first_line: 1, left_out: 0 }))
    }

    fn asked(&self, records: impl Iterator<Item = Parsed>) -> Result<Arc<Found>, BadRecord> {
        let (mut entries, mut bad) = (Vec::new(), 0);
        for record in records {
            entries.push(self.applied(without_record(record)));
            bad += usize::from(entries.last().is_some_and(|entry| entry.bad().is_some()));
            if bad > self.most_bad {
                let (first, origin) = entries.iter().find_map(Entry::bad).expect("there are some");
                let (most, line) = (with_commas(self.most_bad), origin.line);
                let reason = format!("more than {most} records are bad, the first in line {line}: {}", first.reason);
                let allowed = format!("at most {most} bad records in a request; {}", first.allowed);
                return Err(BadRecord { reason, allowed });
            }
        }
        Ok(Found::asked(entries))
    }
}

/// A message keeps its line alone: the caller gets the answer, so no dead letter shows the record, which may be large.
fn without_record(mut record: Parsed) -> Entry {
    if let Parsed::Message(put) = &mut record
        && let Some(origin) = &mut put.origin
    {
        origin.record = None;
    }
    Entry::Read(record)
}

/// What was read together.
pub(crate) struct Found {
    entries: Vec<Entry>,
    /// Whether a record that can't be used becomes a dead letter. If not, the caller gets its fault.
    letters: bool,
}

pub(crate) type Parts = Vec<Arc<Found>>;

impl Found {
    fn asked(entries: Vec<Entry>) -> Arc<Self> {
        Arc::new(Self { entries, letters: false })
    }
}

/// The items for the engine. To be called without the GIL, as they may be many.
pub(crate) fn items_of(parts: &Parts) -> Vec<Item> {
    let mut items = Vec::new();
    for Found { entries, letters } in parts.iter().map(AsRef::as_ref) {
        let taken = entries.iter().filter(|entry| *letters || entry.bad().is_none());
        items.extend(taken.map(|entry| entry.item(*letters)));
    }
    items
}

/// Reads what a caller gives, and submits nothing: as `DeliveryEngine.submit` does it. Messages come in parts of 1,000.
///
/// Errors: `BadRecord`, `WrongUsage`.
#[pyfunction]
#[pyo3(signature = (given, **options))]
pub(crate) fn read_records(given: &Bound<'_, PyAny>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<Records>> {
    let parts = Options::of(options)?.read(given)?;
    Ok(parts.into_iter().map(|part| Records(vec![part])).collect())
}

/// Records in their order: messages, cancels, and bad records. It does not change after it is made.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct Records(pub(crate) Parts);

/// The place of a record, and its original bytes if they were kept.
type Place<'py> = (String, u64, Option<Bound<'py, PyBytes>>);

impl Records {
    /// Records that a reader has read. Those that can't be used become dead letters if `letters` says so.
    pub(crate) fn new(items: Vec<Parsed>, letters: bool) -> Self {
        let entries = items.into_iter().map(Entry::Read).collect();
        Self(vec![Arc::new(Found { entries, letters })])
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().flat_map(|found| &found.entries)
    }

    fn parsed(&self) -> impl Iterator<Item = &Parsed> {
        self.entries().filter_map(|entry| if let Entry::Read(parsed) = entry { Some(parsed) } else { None })
    }
}

#[pymethods]
impl Records {
    /// A record that can't be used, for reasons that the caller found.
    #[staticmethod]
    fn bad(source: &str, line: u64, reason: &str, allowed: &str, record: &[u8]) -> Self {
        let origin = Origin { source: source.into(), line, record: Some(record.to_vec().into()) };
        let bad = BadRecord { reason: reason.to_owned(), allowed: allowed.to_owned() };
        Self::new(vec![Parsed::Bad(bad, origin)], true)
    }

    fn __len__(&self) -> usize {
        self.0.iter().map(|found| found.entries.len()).sum()
    }

    /// How many can't be used.
    #[getter]
    fn bad_count(&self) -> usize {
        self.entries().filter(|entry| entry.bad().is_some()).count()
    }

    /// For each record in order a `Message`, a `Cancel`, a `Reschedule`, an `Event` or a `BadRecord`.
    fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for entry in self.entries() {
            list.append(match entry {
                Entry::Read(Parsed::Message(put)) | Entry::Other(Item::Replace { put, .. }) => {
                    message_to_python(py, &put.message)?
                }
                Entry::Read(Parsed::Cancel(cancel, _)) => imported!(py, "tickwheel.delivery.model.message", "Cancel")?
                    .call1((&cancel.id, &cancel.key, cancel.keep_days))?,
                Entry::Read(Parsed::Reschedule(to, _)) => {
                    imported!(py, "tickwheel.delivery.model.entries", "Reschedule")?
                        .call1((&to.id, &to.key, to.due_ms))?
                }
                Entry::Read(Parsed::Event(it, _)) => {
                    let payload = PyBytes::new(py, &it.payload);
                    let payload = if it.is_json { raw_of(payload)? } else { payload.into_any() };
                    imported!(py, "tickwheel.delivery.model.entries", "Event")?.call1((
                        &it.id,
                        &it.key,
                        &it.event,
                        payload,
                        it.remember_ms,
                    ))?
                }
                Entry::Read(Parsed::Bad(bad, _)) => bad_record(py, bad).into_value(py).into_bound(py).into_any(),
                Entry::Other(_) => continue,
            })?;
        }
        Ok(list)
    }

    /// Returns for each record, in order, its source, its line, and the original record. `None` if these were not kept.
    fn places<'py>(&self, py: Python<'py>) -> Vec<Option<Place<'py>>> {
        let place = |origin: &Origin| {
            let record = origin.record.as_ref().map(|record| PyBytes::new(py, record));
            (origin.source.to_string(), origin.line, record)
        };
        self.parsed().map(|item| item.origin().map(place)).collect()
    }

    /// Each message as a record with the usual names, in order; `None` for anything else.
    fn message_records<'py>(&self, py: Python<'py>) -> Vec<Option<Bound<'py, PyBytes>>> {
        let record = |item: &Parsed| match item {
            Parsed::Message(put) => Some(PyBytes::new(py, &record_as_given(&put.message))),
            _ => None,
        };
        self.parsed().map(record).collect()
    }

    /// The rows of a hand-off with their partitions, as an Arrow IPC stream with one batch.
    fn to_hand_off<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let stream = py.detach(|| write_stream(&self.parsed().cloned().collect::<Vec<_>>()));
        PyBytes::new(py, &stream)
    }
}

/// What became of the records of one call, in order. It keeps no messages, which may be large.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct Receipt {
    rows: Vec<Row>,
    /// The name of a single record, and its due time on disk.
    name: Option<(String, Option<String>, Option<i64>)>,
}

/// Its line, its operation, its answer or its fault, and how many messages an event has let go.
type Row = (u64, &'static str, Result<Answer, Box<BadRecord>>, Option<u32>);

/// The same for Python.
type PythonRow<'py> = (u64, &'static str, Bound<'py, PyAny>, Option<u32>);

impl Receipt {
    pub(crate) fn new(parts: &Parts, answers: &Answers) -> Self {
        let mut given = answers.given.iter().enumerate();
        let mut counts = answers.let_go.iter().peekable();
        let mut rows = Vec::with_capacity(answers.given.len());
        for part in parts {
            for (at, entry) in part.entries.iter().enumerate() {
                let (found, let_go) = match entry.bad() {
                    Some((bad, _)) => (Err(Box::new(bad.clone())), None),
                    None if entry.is_answered() => {
                        let (place, answer) = given.next().expect("each has an answer");
                        (Ok(*answer), counts.next_if(|(of, _)| *of == place).map(|(_, count)| *count))
                    }
                    None => continue,
                };
                let line = entry.origin().map(|origin| origin.line).filter(|line| *line > 0);
                rows.push((line.unwrap_or(at as u64 + 1), entry.operation(), found, let_go));
            }
        }
        let single = parts.iter().find_map(|part| part.entries.first()?.named());
        let name = match (&*rows, single) {
            ([(_, _, Ok(answer), _)], Some((id, key, due_ms))) => {
                let told_ms = answers.due_ms.first().map(|(_, due_ms)| *due_ms);
                let due_ms = match answer {
                    Answer::Accepted | Answer::Rescheduled => told_ms.or(due_ms),
                    Answer::Replaced => told_ms,
                    _ => None,
                };
                Some((id.to_owned(), key.map(str::to_owned), due_ms))
            }
            _ => None,
        };
        Self { rows, name }
    }
}

#[pymethods]
impl Receipt {
    /// For each record its answer, or its fault as a `BadRecord`.
    fn answers<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.rows.iter().map(|(_, _, found, _)| found_to_python(py, found)).collect()
    }

    /// The same, each with its line, its operation, and how many messages it has let go if it is an event.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Vec<PythonRow<'py>>> {
        let row =
            |(line, operation, found, let_go): &Row| Ok((*line, *operation, found_to_python(py, found)?, *let_go));
        self.rows.iter().map(row).collect()
    }

    /// Id, key and due time of a single record that is not bad. The due time is that on disk, as text, if it waits now.
    #[getter]
    fn name(&self) -> Option<(&str, Option<&str>, Option<String>)> {
        let (id, key, due_ms) = self.name.as_ref()?;
        Some((id, key.as_deref(), due_ms.map(rfc_3339)))
    }
}

fn found_to_python<'py>(py: Python<'py>, found: &Result<Answer, Box<BadRecord>>) -> PyResult<Bound<'py, PyAny>> {
    match found {
        Ok(answer) => answer_to_python(py, *answer),
        Err(bad) => Ok(bad_record(py, bad).into_value(py).into_bound(py).into_any()),
    }
}
