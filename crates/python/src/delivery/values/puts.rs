//! Messages as a program gives them to `put` and `put_many`: a `Message`, a dict, or a tuple. And due times as text.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyMapping, PySequence, PyString, PyTuple};

use crate::delivery::calls::failures::{bad_record, quoted, wrong_usage};
use crate::delivery::values::entry::Entry;
use crate::delivery::values::message::{message_class, message_of, payload_given, plain, raw_of, value_of};
use crate::tools::finalizing::ForeignCall;
use crate::tools::made_once::imported;
use tickwheel_delivery::internal::{
    Columns, EVENT, Fields, Incoming, MISSED, Other, Parsed, Payload, REMEMBER_MS, Request, Schema, SystemWallTime, TZ,
    UNTIL_EVENT, Value, WallTime as _, checked, not_json, on_one_line, times, write_text,
};
use tickwheel_delivery::{BadRecord, KeyEvent};

/// The arguments of `put`, which are the fields of a message that is given as a dict.
const FIELDS: [&str; 17] = [
    "id",
    "due",
    "delay_ms",
    "payload",
    "key",
    "expires",
    "traceparent",
    "destination",
    "tenant",
    "every",
    "cron",
    "tz",
    "missed",
    "until_event",
    "replace",
    "debounce_ms",
    "at_latest_ms",
];
/// The places of a tuple's values among them.
const OF_TUPLE: [usize; 4] = [0, 1, 3, 4];
/// From here on they are no fields of a record.
const REPLACE: usize = 14;

/// The fields in the order of `FIELDS`. What is not given is `None`, or `False`.
type Given<'py> = [Bound<'py, PyAny>; FIELDS.len()];

/// Reads a message by the rules for records. A delay counts from now.
///
/// Errors: `BadRecord`; `WrongUsage` for what is no message.
pub(crate) fn put_of(value: &Bound<'_, PyAny>, max_payload: usize) -> PyResult<Entry> {
    let py = value.py();
    let refused = |bad: BadRecord| bad_record(py, &bad);
    if value.is_instance(message_class(py)?)? {
        let message = checked(message_of(value)?, max_payload).map_err(refused)?;
        return Ok(Entry::Read(Parsed::Message(Incoming::of(message))));
    }
    let given = given_in(value)?;
    let [id, due, delay_ms, payload, key, expires, traceparent, destination, tenant, rest @ ..] = &given;
    let [every, cron, tz, missed, until_event, replace, debounce_ms, latest] = rest;
    let is_given = |it: &Bound<'_, PyAny>| !it.is_none();
    if (is_given(every) || is_given(cron)) && (is_given(debounce_ms) || is_given(latest)) {
        let text = "a message that recurs can't be debounced: leave out debounce_ms and at_latest_ms";
        return Err(wrong_usage(py, text));
    }
    let is_debounced = is_given(debounce_ms);
    if is_debounced && (is_given(due) || is_given(delay_ms)) {
        return Err(wrong_usage(py, "debounce_ms says when the message is due: leave out due and delay_ms"));
    }
    let replaces = is_debounced
        || replace
            .cast_exact::<PyBool>()
            .map(PyBoolMethods::is_true)
            .map_err(|_| wrong_usage(py, &format!("replace is {}: give True or False", quoted(replace))))?;
    let at_latest_ms = match value_of(latest, "at_latest_ms")? {
        Value::Absent => None,
        Value::Integer(ms) if replaces && (0..=i128::from(times::MAX_DUE_MS)).contains(&ms) => Some(ms as i64),
        _ => {
            let allowed = "give a whole number, or a timedelta, with debounce_ms or replace";
            return Err(wrong_usage(py, &format!("at_latest_ms is {}: {allowed}", quoted(latest))));
        }
    };
    let (payload, is_json) = payload_given(payload)?;
    let bytes = payload.as_bytes();
    let one_line = if is_json { on_one_line(bytes).map_err(|why| refused(not_json(&why)))? } else { None };
    let rest = [(TZ, tz), (MISSED, missed)];
    let mut others: Vec<Other<'_>> =
        rest.iter().filter_map(|(name, given)| other_of(name, given).transpose()).collect::<PyResult<_>>()?;
    let is_text = |it: &Bound<'_, PyAny>| it.is_instance_of::<PyString>();
    let are_texts = |it: &Bound<'_, PyAny>| it.extract::<Vec<_>>().is_ok_and(|all| all.iter().all(is_text));
    if until_event.is_none() || is_text(until_event) || are_texts(until_event) {
        others.extend(json_other(UNTIL_EVENT, until_event)?);
    } else {
        others.push((UNTIL_EVENT.into(), b"0".to_vec().into())); // refused; bytes would become text in base64
    }
    let fields = Fields {
        id: value_of(id, "id")?,
        key: value_of(key, "key")?,
        due: value_of(due, "due")?,
        delay_ms: if is_debounced { value_of(debounce_ms, "delay_ms")? } else { value_of(delay_ms, "delay_ms")? },
        expires: value_of(expires, "expires")?,
        traceparent: value_of(traceparent, "traceparent")?,
        destination: value_of(destination, "destination")?,
        tenant: value_of(tenant, "tenant")?,
        every: value_of(every, "every")?,
        cron: value_of(cron, "cron")?,
        payload: Some(Payload { bytes: one_line.map_or(bytes.into(), Into::into), is_json }),
        others: others.into_iter().collect(),
        ..Fields::default()
    };
    match Schema::new(Columns::default(), max_payload).check(&fields, Some(now_ns())).map_err(refused)? {
        Request::Message(message) => {
            let entry = Entry::Read(Parsed::Message(Incoming::of(message)));
            Ok(if replaces { entry.replacing(at_latest_ms) } else { entry })
        }
        Request::Cancel(_) | Request::Reschedule(_) | Request::Event(_) => unreachable!("it has no op"),
    }
}

/// Reads an `Event` by the rules for records.
///
/// Errors: `BadRecord`; `WrongUsage` for a payload that JSON can't hold.
pub(crate) fn event_of(event: &Bound<'_, PyAny>, max_payload: usize) -> PyResult<KeyEvent> {
    let py = event.py();
    let refused = |bad: BadRecord| bad_record(py, &bad);
    let (id, key) = (event.getattr("id")?, event.getattr("key")?);
    let (name, remember_ms) = (event.getattr("event")?, plain(event.getattr("remember_ms")?, "remember_ms")?);
    let (payload, is_json) = payload_given(&event.getattr("payload")?)?;
    let bytes = payload.as_bytes();
    let one_line = if is_json { on_one_line(bytes).map_err(|why| refused(not_json(&why)))? } else { None };
    let fields = Fields {
        id: value_of(&id, "id")?,
        key: value_of(&key, "key")?,
        op: Value::Text("event".into()),
        payload: Some(Payload { bytes: one_line.map_or(bytes.into(), Into::into), is_json }),
        others: other_of(EVENT, &name)?.into_iter().chain(json_other(REMEMBER_MS, &remember_ms)?).collect(),
        ..Fields::default()
    };
    match Schema::new(Columns::default(), max_payload).check(&fields, Some(now_ns())).map_err(refused)? {
        Request::Event(event) => Ok(event),
        _ => unreachable!("its op says so"),
    }
}

/// The wall time from which a delay counts.
pub(crate) fn now_ns() -> i64 {
    SystemWallTime.now_us().saturating_mul(1_000)
}

fn given_in<'py>(value: &Bound<'py, PyAny>) -> PyResult<Given<'py>> {
    let py = value.py();
    let none = py.None().into_bound(py);
    let mut given: Given<'py> = std::array::from_fn(|_| none.clone());
    given[REPLACE] = PyBool::new(py, false).to_owned().into_any();
    if let Ok(mapping) = value.cast::<PyMapping>() {
        for item in mapping.items()?.iter() {
            let (name, field) = item.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
            let place = name.extract::<&str>().ok().and_then(|name| FIELDS.iter().position(|known| *known == name));
            let Some(place) = place else {
                let allowed = FIELDS.join(", ");
                let text = format!("{} is no message: it has {}, and may have {allowed}", quoted(value), quoted(&name));
                return Err(wrong_usage(py, &text));
            };
            given[place] = plain(field, FIELDS[place])?;
        }
        return Ok(given);
    }
    let is_text = value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>();
    if (value.is_instance_of::<PyTuple>() || (!is_text && value.cast::<PySequence>().is_ok()))
        && [3, 4].contains(&value.len()?)
    {
        for (place, field) in OF_TUPLE.into_iter().zip(value.try_iter()?) {
            given[place] = plain(field?, FIELDS[place])?;
        }
        return Ok(given);
    }
    let allowed = "give a Message, a dict with id, due or delay_ms, payload and key, or a tuple (id, due, payload) or \
                   (id, due, payload, key)";
    Err(wrong_usage(py, &format!("{} is no message: {allowed}", quoted(value))))
}

/// The fields of a message, a dict or a tuple, as plain values that JSON can hold, for a record. The payload is bytes, or JSON as
/// `msgspec.Raw`. `None` is left out.
///
/// Errors: `WrongUsage` for what is no message.
#[pyfunction]
pub(crate) fn record_fields<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let py = value.py();
    let _call = ForeignCall::enter(py)?;
    let fields = PyDict::new(py);
    for (name, field) in FIELDS.into_iter().zip(given_in(value)?).take(REPLACE) {
        if name == "payload" {
            let (bytes, is_json) = payload_given(&field)?;
            fields.set_item(name, if is_json { raw_of(bytes)? } else { bytes.into_any() })?;
        } else if !field.is_none() {
            fields.set_item(name, field)?;
        }
    }
    Ok(fields)
}

/// A due time in milliseconds since 1970, by the rules for records; a delay counts from now.
///
/// Errors: `BadRecord`.
#[pyfunction]
pub(crate) fn due_ms_of(due: Bound<'_, PyAny>, delay_ms: Bound<'_, PyAny>) -> PyResult<i64> {
    let _call = ForeignCall::enter(due.py())?;
    let (due, delay_ms) = (plain(due, "due")?, plain(delay_ms, "delay_ms")?);
    let (due_value, delay_value) = (value_of(&due, "due")?, value_of(&delay_ms, "delay_ms")?);
    let fields = Fields { due: due_value, delay_ms: delay_value, ..Fields::default() };
    let found = Schema::new(Columns::default(), 0).due(&fields, Some(now_ns()));
    found.map(|(due_ms, _)| due_ms).map_err(|bad| bad_record(due.py(), &bad))
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

/// A field of any value that JSON can hold.
fn json_other<'a>(name: &'a str, given: &Bound<'_, PyAny>) -> PyResult<Option<Other<'a>>> {
    if given.is_none() {
        return Ok(None);
    }
    let json = imported!(given.py(), "tickwheel.delivery.model.payloads", "json_of")?.call1((given,))?;
    Ok(Some((name.into(), json.cast::<PyBytes>()?.as_bytes().to_vec().into())))
}

/// The epoch milliseconds of a due time given as text, where digits are epoch milliseconds; `name` is for the error.
///
/// Errors: `BadRecord`.
#[pyfunction]
pub(crate) fn due_of(py: Python<'_>, text: &str, name: &str) -> PyResult<i64> {
    times::due_from_digits_or_text(text, name).map_err(|bad| bad_record(py, &bad))
}

/// The time in UTC with milliseconds, as in every output. Before 1970 it is 1970, after 9999 the last of 9999.
#[pyfunction]
pub(crate) fn rfc_3339(epoch_ms: i64) -> String {
    String::from_utf8_lossy(&times::rfc_3339(epoch_ms)).into_owned()
}
