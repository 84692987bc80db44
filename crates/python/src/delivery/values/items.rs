//! Converts the items that Python submits to items of the engine.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString, PyTuple, PyType};

use crate::delivery::calls::failures::{bad_record, quoted};
use crate::delivery::values::message::{message_class, message_of, parts_of_name, text};
use crate::delivery::values::records::{Found, Records};
use crate::tools::made_once::{MadeOnce, intern};
use tickwheel_delivery::internal::{
    ActionKind, Cancel, Columns, Failing, Fields, Filter, Incoming, Item, MAX_PAYLOAD, MISSED, Other, Parsed, Payload,
    Progress, Request, Reschedule, Schema, SystemWallTime, TZ, Value, WallTime, check_name, checked, not_json,
    on_one_line, with_commas, write_text,
};
use tickwheel_delivery::{BadRecord, Letter};

const ENTRIES: &str = "tickwheel.delivery.model.entries";

/// For how long a cancel may be remembered: as long as ids may be kept.
const MOST_DAYS: u32 = 36_500;

macro_rules! class {
    ($py:expr, $module:expr, $name:literal) => {{
        static CLASS: MadeOnce<Py<PyType>> = MadeOnce::new();
        CLASS.import($py, $module, $name)?
    }};
}

/// The items of one submit. All parts that need the GIL are read.
pub(crate) struct Given(Vec<Part>);

enum Part {
    One(Item),
    Many(Arc<Found>),
}

impl Given {
    /// The items. To be called without the GIL, as they may be many.
    pub(crate) fn items(self) -> Vec<Item> {
        let mut items = Vec::new();
        for part in self.0 {
            match part {
                Part::One(item) => items.push(item),
                Part::Many(found) => items.extend(found.items()),
            }
        }
        items
    }
}

/// Reads a `Message`. Errors: `BadRecord`.
#[pyfunction]
pub(crate) fn read_message(message: &Bound<'_, PyAny>, max_payload: usize) -> PyResult<Records> {
    Ok(Records::new(vec![Parsed::Message(incoming_of(message, max_payload)?)], false))
}

fn incoming_of(message: &Bound<'_, PyAny>, max_payload: usize) -> PyResult<Incoming> {
    let checked = checked(message_of(message)?, max_payload);
    checked.map(Incoming::of).map_err(|bad| bad_record(message.py(), &bad))
}

/// Reads a sequence of items: `Records`, `Message`, `Cancel`, `Reschedule`, `Look`, `Letter`, `Progress`.
///
/// Errors: `BadRecord` for a message that the rules for records refuse.
pub(crate) fn items_of(items: &Bound<'_, PyAny>, max_payload: usize) -> PyResult<Given> {
    let py = items.py();
    let message = message_class(py)?;
    let cancel = class!(py, "tickwheel.delivery.model.message", "Cancel");
    let requeue = class!(py, ENTRIES, "Requeue");
    let act = class!(py, ENTRIES, "Act");
    let reschedule = class!(py, ENTRIES, "Reschedule");
    let pause = class!(py, ENTRIES, "Pause");
    let again = class!(py, ENTRIES, "Again");
    let look = class!(py, ENTRIES, "Look");
    let letter = class!(py, ENTRIES, "Letter");
    let progress = class!(py, ENTRIES, "Progress");
    let mut parts = Vec::new(); // an object may say any length
    let listed = items.try_iter().map_err(|_| {
        let text = format!("{} can't be submitted: give a sequence of Messages, Cancels and Looks", quoted(items));
        PyTypeError::new_err(text)
    });
    for item in listed? {
        let item = item?;
        if let Ok(records) = item.cast::<Records>() {
            parts.push(Part::Many(records.get().found()));
            continue;
        }
        parts.push(Part::One(if item.is_instance(message)? {
            Item::Put(incoming_of(&item, max_payload)?)
        } else if item.is_exact_instance(requeue) {
            let (id, key) = name_of(&item)?;
            Item::Requeue { id, key }
        } else if item.is_exact_instance(act) {
            act_of(&item)?
        } else if item.is_instance(cancel)? {
            let (id, key) = name_of(&item)?;
            Item::Cancel(Cancel { id, key, keep_days: keep_days_of(&item)?, asked_ms: None })
        } else if item.is_exact_instance(reschedule) {
            let (id, key) = name_of(&item)?;
            Item::Reschedule(Reschedule {
                id,
                key,
                due_ms: item.getattr(intern!(py, "due_ms"))?.extract()?,
                asked_ms: None,
            })
        } else if item.is_exact_instance(pause) {
            Item::Pause { key: key_of(&item)?, is_paused: item.getattr(intern!(py, "is_paused"))?.extract()? }
        } else if item.is_exact_instance(again) {
            Item::Again(match key_of(&item)? {
                Some(key) => Failing::Key(key),
                None => Failing::Message(name_of(&item)?.0),
            })
        } else if item.is_instance(look)? {
            let (id, key) = name_of(&item)?;
            Item::Look { id, key }
        } else if item.is_exact_instance(letter) {
            Item::Letter(letter_of(item.cast::<PyTuple>()?)?)
        } else if item.is_exact_instance(progress) {
            Item::Progress(progress_of(item.cast::<PyTuple>()?)?)
        } else {
            return Err(PyTypeError::new_err(format!(
                "{} can't be submitted: give a Message, a Cancel or a Look",
                quoted(&item)
            )));
        }));
    }
    Ok(Given(parts))
}

/// Its parts were checked by the caller.
fn act_of(act: &Bound<'_, PyAny>) -> PyResult<Item> {
    let py = act.py();
    let kind: String = act.getattr(intern!(py, "kind"))?.extract()?;
    let kind = ActionKind::of(&kind).ok_or_else(|| PyTypeError::new_err(format!("{kind} is no action")))?;
    let filter = Filter {
        key: act.getattr(intern!(py, "filter_key"))?.extract()?,
        key_prefix: act.getattr(intern!(py, "key_prefix"))?.extract()?,
        due_from_ms: act.getattr(intern!(py, "due_from_ms"))?.extract()?,
        due_before_ms: act.getattr(intern!(py, "due_before_ms"))?.extract()?,
    };
    Ok(Item::Act { id: act.getattr(intern!(py, "id"))?.extract()?, kind, filter })
}

fn keep_days_of(cancel: &Bound<'_, PyAny>) -> PyResult<u32> {
    let keep_days = cancel.getattr(intern!(cancel.py(), "keep_days"))?;
    let given = if keep_days.is_instance_of::<PyBool>() { None } else { keep_days.extract::<u32>().ok() };
    given.filter(|days| *days <= MOST_DAYS).ok_or_else(|| {
        let reason = format!("keep_days is {}", quoted(&keep_days));
        let allowed = format!("keep_days: a whole number of days, 0 to {}", with_commas(MOST_DAYS as usize));
        bad_record(cancel.py(), &BadRecord { reason, allowed })
    })
}

fn name_of(named: &Bound<'_, PyAny>) -> PyResult<(String, Option<String>)> {
    let (id, key) = parts_of_name(named)?;
    let id = text(&id, "id")?;
    let key = key.as_ref().map(|key| text(key, "key")).transpose()?;
    check_name(key, id).map_err(|bad| bad_record(named.py(), &bad))?;
    Ok((id.to_owned(), key.map(str::to_owned)))
}

/// A key alone, or none.
fn key_of(named: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let key = named.getattr(intern!(named.py(), "key"))?;
    if key.is_none() {
        return Ok(None);
    }
    let key = text(&key, "key")?;
    check_name(Some(key), "any").map_err(|bad| bad_record(named.py(), &bad))?;
    Ok(Some(key.to_owned()))
}

/// Reads a message from values of Python, by the rules for records. The payload is bytes, of JSON or not. A delay counts
/// from now.
///
/// Errors: `BadRecord`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "each is a field of a record")]
pub(crate) fn read_put(
    id: &Bound<'_, PyAny>,
    key: &Bound<'_, PyAny>,
    due: &Bound<'_, PyAny>,
    delay_ms: &Bound<'_, PyAny>,
    payload: &Bound<'_, PyBytes>,
    is_json: bool,
    expires: &Bound<'_, PyAny>,
    traceparent: &Bound<'_, PyAny>,
    every: &Bound<'_, PyAny>,
    cron: &Bound<'_, PyAny>,
    tz: &Bound<'_, PyAny>,
    missed: &Bound<'_, PyAny>,
) -> PyResult<Records> {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Columns::default(), MAX_PAYLOAD));
    let py = id.py();
    let payload = payload.as_bytes();
    let one_line = if is_json { on_one_line(payload).map_err(|why| bad_record(py, &not_json(&why)))? } else { None };
    let rest = [(TZ, tz), (MISSED, missed)];
    let fields = Fields {
        id: value_of(id, "id")?,
        key: value_of(key, "key")?,
        due: value_of(due, "due")?,
        delay_ms: value_of(delay_ms, "delay_ms")?,
        expires: value_of(expires, "expires")?,
        traceparent: value_of(traceparent, "traceparent")?,
        every: value_of(every, "every")?,
        cron: value_of(cron, "cron")?,
        payload: Some(Payload { bytes: one_line.map_or(Cow::Borrowed(payload), Cow::Owned), is_json }),
        others: rest.iter().filter_map(|(name, given)| other_of(name, given).transpose()).collect::<PyResult<_>>()?,
        ..Fields::default()
    };
    match SCHEMA.check(&fields, Some(SystemWallTime.now_us().saturating_mul(1000))) {
        Ok(Request::Message(message)) => Ok(Records::new(vec![Parsed::Message(Incoming::of(message))], false)),
        Ok(Request::Cancel(_) | Request::Reschedule(_)) => unreachable!("it has no op"),
        Err(bad) => Err(bad_record(py, &bad)),
    }
}

/// A field that only some records may have, as JSON. A value that is not text becomes a number, which no such field may
/// be.
fn other_of<'a>(name: &'a str, given: &Bound<'_, PyAny>) -> PyResult<Option<Other<'a>>> {
    let mut json = Vec::new();
    match value_of(given, name)? {
        Value::Absent => return Ok(None),
        Value::Text(text) => write_text(&mut json, &text),
        _ => json.push(b'0'),
    }
    Ok(Some((name.into(), json.into())))
}

/// A due time in milliseconds since 1970, by the rules for records; a delay counts from now.
///
/// Errors: `BadRecord`.
#[pyfunction]
pub(crate) fn due_ms_of(due: &Bound<'_, PyAny>, delay_ms: &Bound<'_, PyAny>) -> PyResult<i64> {
    let fields = Fields { due: value_of(due, "due")?, delay_ms: value_of(delay_ms, "delay_ms")?, ..Fields::default() };
    let schema = Schema::new(Columns::default(), 0);
    let found = schema.due(&fields, Some(SystemWallTime.now_us().saturating_mul(1000)));
    found.map(|(due_ms, _)| due_ms).map_err(|bad| bad_record(due.py(), &bad))
}

/// The value of a part, as far as its type matters.
fn value_of<'a>(value: &'a Bound<'_, PyAny>, part: &str) -> PyResult<Value<'a>> {
    Ok(if value.is_none() {
        Value::Absent
    } else if value.is_instance_of::<PyString>() {
        Value::Text(text(value, part)?.into())
    } else if value.is_instance_of::<PyBool>() {
        Value::Other
    } else if value.is_instance_of::<PyInt>() {
        Value::Integer(
            value.extract().or_else(|_| value.lt(0).map(|is_less| if is_less { i128::MIN } else { i128::MAX }))?,
        )
    } else if value.is_instance_of::<PyFloat>() {
        Value::Float(value.extract()?)
    } else {
        Value::Other
    })
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
