//! What Python submits, as items of the engine; and the engine's answers as members of `Answer`.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyList, PyString, PyTuple, PyType};

use crate::delivery::BadRecord;
use crate::delivery::message::check_name;
use crate::delivery::store::{Letter, Progress};
use crate::delivery::{Answer, Item};
use crate::delivery::{Body, Cancel, Incoming, Message, Origin, Record, checked};
use crate::python::delivery::failures::{bad_record, shown};
use crate::python::tools::made_once::{MadeOnce, intern};

const ENTRIES: &str = "tickwheel.delivery.entries";

macro_rules! class {
    ($py:expr, $module:expr, $name:literal) => {{
        static CLASS: MadeOnce<Py<PyType>> = MadeOnce::new();
        CLASS.import($py, $module, $name)?
    }};
}

/// Reads a sequence of items: `Message`, `Cancel`, `Look`, `Letter`, `Progress`, `Dropped`, `Read`.
///
/// Errors: `BadRecord` for a message that the rules for records refuse.
pub(crate) fn items_of(items: &Bound<'_, PyAny>, max_payload: usize) -> PyResult<Vec<Item>> {
    let py = items.py();
    let message = class!(py, "tickwheel.delivery.message", "Message");
    let cancel = class!(py, "tickwheel.delivery.message", "Cancel");
    let read = class!(py, ENTRIES, "Read");
    let look = class!(py, ENTRIES, "Look");
    let letter = class!(py, ENTRIES, "Letter");
    let progress = class!(py, ENTRIES, "Progress");
    let dropped = class!(py, ENTRIES, "Dropped");
    let mut found = Vec::with_capacity(items.len().unwrap_or(0));
    for item in items.try_iter()? {
        let item = item?;
        let class = item.get_type();
        let made = if class.is(message) {
            let message = checked(message_of(&item)?, max_payload).map_err(|bad| bad_record(py, &bad))?;
            Item::Put(Incoming::of(message))
        } else if class.is(read) {
            let (message, source, line, record) =
                item.extract::<(Bound<'_, PyAny>, String, u64, Bound<'_, PyBytes>)>()?;
            let origin = Origin { source: Arc::from(source), line, record: Some(Record::from(record.as_bytes())) };
            Item::Put(Incoming::from_origin(message_of(&message)?, Some(origin)))
        } else if class.is(cancel) {
            let (id, key) = name_of(&item)?;
            Item::Cancel(Cancel { id, key, keep_days: item.getattr(intern!(py, "keep_days"))?.extract()? })
        } else if class.is(look) {
            let (id, key) = name_of(&item)?;
            Item::Look { id, key }
        } else if class.is(letter) {
            Item::Letter(letter_of(item.cast::<PyTuple>()?)?)
        } else if class.is(progress) {
            Item::Progress(progress_of(item.cast::<PyTuple>()?)?)
        } else if class.is(dropped) {
            Item::Dropped(item.getattr(intern!(py, "count"))?.extract()?)
        } else {
            return Err(PyTypeError::new_err(format!(
                "{} can't be submitted: give a Message, a Cancel or a Look",
                shown(&item)
            )));
        };
        found.push(made);
    }
    Ok(found)
}

/// A `Message` of Python, not yet checked but for the types of its parts.
pub(crate) fn message_of(message: &Bound<'_, PyAny>) -> PyResult<Message> {
    let py = message.py();
    let (id, key) = parts_of_name(message)?;
    let id = text(&id, "id")?;
    let key = key.as_ref().map(|key| text(key, "key")).transpose()?;
    let due = message.getattr(intern!(py, "due_ms"))?;
    let due_ms = match due.cast::<PyInt>() {
        Ok(due) if !due.is_instance_of::<PyBool>() => due.extract::<i64>().ok(),
        _ => None,
    };
    let Some(due_ms) = due_ms else {
        // It raises what is wrong.
        py.import("tickwheel.delivery.times")?.call_method1("due_from", (due, "due_ms"))?;
        return Err(bad_record(py, &BadRecord::new("due_ms is out of range", "due_ms: epoch milliseconds")));
    };
    let payload = message.getattr(intern!(py, "payload"))?;
    let delay_ms = message.getattr(intern!(py, "delay_ms"))?.extract()?;
    let body = if let Ok(bytes) = payload.cast::<PyBytes>() {
        Body::new(key, id, bytes.as_bytes(), false)
    } else {
        let bytes = py.get_type::<PyBytes>().call1((&payload,))?;
        Body::new(key, id, bytes.cast::<PyBytes>()?.as_bytes(), true)
    };
    Ok(Message { body, due_ms, delay_ms })
}

type Named<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

fn parts_of_name<'py>(named: &Bound<'py, PyAny>) -> PyResult<Named<'py>> {
    let py = named.py();
    let key = named.getattr(intern!(py, "key"))?;
    Ok((named.getattr(intern!(py, "id"))?, (!key.is_none()).then_some(key)))
}

fn name_of(named: &Bound<'_, PyAny>) -> PyResult<(String, Option<String>)> {
    let (id, key) = parts_of_name(named)?;
    let id = text(&id, "id")?;
    let key = key.as_ref().map(|key| text(key, "key")).transpose()?;
    check_name(key, id).map_err(|bad| bad_record(named.py(), &bad))?;
    Ok((id.to_owned(), key.map(str::to_owned)))
}

fn text<'a>(value: &'a Bound<'_, PyAny>, part: &str) -> PyResult<&'a str> {
    let bad = |what: &str, allowed: &str| {
        bad_record(value.py(), &BadRecord::new(format!("{part} {what}"), format!("{part}: {allowed}")))
    };
    let Ok(value) = value.cast::<PyString>() else {
        let what = if value.is_none() { "is missing" } else { "is not text" };
        return Err(bad(what, "text, not empty"));
    };
    value.to_str().map_err(|_| bad("has half of a surrogate pair", "text that can be written in UTF-8"))
}

fn letter_of(letter: &Bound<'_, PyTuple>) -> PyResult<Letter> {
    let text = |at| -> PyResult<String> { Ok(letter.get_item(at)?.cast::<PyString>()?.to_string_lossy().into_owned()) };
    Ok(Letter {
        source: text(0)?,
        line: letter.get_item(1)?.extract()?,
        reason: text(2)?,
        allowed: text(3)?,
        record: letter.get_item(4)?.cast::<PyBytes>()?.as_bytes().to_vec(),
    })
}

fn progress_of(progress: &Bound<'_, PyTuple>) -> PyResult<Progress> {
    let (source, line, size, digest) = progress.extract::<(String, i64, i64, [u8; 16])>()?;
    Ok(Progress { source, line, size, digest })
}

/// As `Progress` of Python.
pub(crate) fn progress_to_python<'py>(py: Python<'py>, it: &Progress) -> PyResult<Bound<'py, PyAny>> {
    let digest = PyBytes::new(py, &it.digest);
    class!(py, ENTRIES, "Progress").call1((&it.source, it.line, it.size, digest))
}

/// As `Letter` of Python.
pub(crate) fn letter_to_python<'py>(py: Python<'py>, it: &Letter) -> PyResult<Bound<'py, PyAny>> {
    let record = PyBytes::new(py, &it.record);
    class!(py, ENTRIES, "Letter").call1((&it.source, it.line, &it.reason, &it.allowed, record))
}

/// As a list of members of `Answer`.
pub(crate) fn answers_to_python<'py>(py: Python<'py>, answers: &[Answer]) -> PyResult<Bound<'py, PyList>> {
    static MEMBERS: MadeOnce<Vec<Py<PyAny>>> = MadeOnce::new();
    let members = MEMBERS.get_or_try_init(py, || {
        let members = class!(py, ENTRIES, "Answer").try_iter()?;
        members.map(|member| member.map(Bound::unbind)).collect()
    })?;
    PyList::new(py, answers.iter().map(|answer| members[place_of(*answer)].bind(py)))
}

/// The place of its member in `Answer`.
fn place_of(answer: Answer) -> usize {
    match answer {
        Answer::Accepted => 0,
        Answer::Duplicate => 1,
        Answer::OtherContent => 2,
        Answer::Cancelled => 3,
        Answer::Delivered => 4,
        Answer::Delivering => 5,
        Answer::Dead => 6,
        Answer::Unknown => 7,
        Answer::Waiting => 8,
    }
}
