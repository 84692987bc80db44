//! Converts between `Message` of Python and a message of the engine, and reads the parts of both.

use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyMemoryView, PyString, PyTuple};

use crate::delivery::calls::failures::{bad_record, quoted};
use crate::tools::made_once::{imported, intern};
use tickwheel_delivery::internal::{Body, Extras, Value};
use tickwheel_delivery::{BadRecord, Message};

/// As `Message` of Python.
pub(crate) fn message_to_python<'py>(py: Python<'py>, it: &Message) -> PyResult<Bound<'py, PyAny>> {
    let (body, expires_ms) = (&it.body, it.expires_ms());
    let payload = payload_of(py, body)?;
    // A recurring message has the due time of its first occurrence.
    let due_ms = body.recurrence().and_then(|it| it.first_ms().ok()).unwrap_or(it.due_ms);
    let (traceparent, destination, tenant) = (body.traceparent(), body.destination(), body.tenant());
    let until = body.until().map(|until| PyTuple::new(py, until.names.split(' ').collect::<Vec<_>>())).transpose()?;
    let (delay_ms, key) = (it.delay_ms, body.key());
    let given = (body.id(), key, due_ms, payload, delay_ms, expires_ms, traceparent, destination, tenant, until);
    message_class(py)?.call1(given)
}

/// The class `Message` of Python.
pub(crate) fn message_class<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyAny>> {
    imported!(py, "tickwheel.delivery.model.message", "Message")
}

/// `bytes`, or `msgspec.Raw` for JSON.
pub(crate) fn payload_of<'py>(py: Python<'py>, body: &Body) -> PyResult<Bound<'py, PyAny>> {
    let bytes = PyBytes::new(py, body.payload());
    if !body.is_json() {
        return Ok(bytes.into_any());
    }
    raw_of(bytes)
}

/// JSON as `msgspec.Raw`.
pub(crate) fn raw_of(json: Bound<'_, PyBytes>) -> PyResult<Bound<'_, PyAny>> {
    imported!(json.py(), "msgspec", "Raw")?.call1((json,))
}

/// The bytes of a payload that a program gives, and whether they are JSON.
///
/// Errors: `WrongUsage` for a value that JSON can't hold.
pub(crate) fn payload_given<'py>(payload: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyBytes>, bool)> {
    let py = payload.py();
    let bytes_of =
        |object: &Bound<'py, PyAny>| Ok(py.get_type::<PyBytes>().call1((object,))?.cast_into::<PyBytes>()?);
    if let Ok(bytes) = payload.cast::<PyBytes>() {
        return Ok((bytes.clone(), false));
    }
    if payload.is_instance_of::<PyByteArray>() || payload.is_instance_of::<PyMemoryView>() {
        return bytes_of(payload).map(|bytes| (bytes, false));
    }
    if payload.is_instance(imported!(py, "msgspec", "Raw")?)? {
        return bytes_of(payload).map(|bytes| (bytes, true));
    }
    let json_of = imported!(py, "tickwheel.delivery.model.payloads", "json_of")?;
    Ok((json_of.call1((payload,))?.cast_into::<PyBytes>()?, true))
}

/// The value of a field as text or a number of Python's own, if it is a time, a span of time, or a number of another type.
/// Anything else as it is.
pub(crate) fn plain<'py>(value: Bound<'py, PyAny>, field: &str) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    let is_span = ["delay_ms", "every", "debounce_ms", "at_latest_ms", "remember_ms"].contains(&field);
    let is_plain = value.is_none()
        || value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>();
    if is_plain || !(is_span || ["due", "expires"].contains(&field)) {
        return Ok(value);
    }
    if is_span && value.is_instance(imported!(py, "datetime", "timedelta")?)? {
        let part = |name: &str| value.getattr(name)?.extract::<i64>();
        let us = (part("days")? * 86_400 + part("seconds")?) * 1_000_000 + part("microseconds")?;
        let is_whole = us % 1_000 == 0;
        return if is_whole { (us / 1_000).into_bound_py_any(py) } else { (us as f64 / 1e3).into_bound_py_any(py) };
    }
    if !is_span && value.is_instance(imported!(py, "datetime", "datetime")?)? {
        return value.call_method0(intern!(py, "isoformat"));
    }
    let number = if value.hasattr(intern!(py, "__index__"))? {
        value.call_method0(intern!(py, "__index__"))
    } else if value.hasattr(intern!(py, "as_integer_ratio"))? {
        py.get_type::<PyFloat>().call1((&value,))
    } else {
        return Ok(value);
    };
    number.or_else(|error| {
        let is_none = error.is_instance_of::<PyTypeError>(py)
            || error.is_instance_of::<PyValueError>(py)
            || error.is_instance_of::<PyOverflowError>(py);
        if is_none { Ok(value) } else { Err(error) }
    })
}

/// The value of a part, as far as its type matters. `None` is absent.
pub(crate) fn value_of<'a>(value: &'a Bound<'_, PyAny>, part: &str) -> PyResult<Value<'a>> {
    Ok(if value.is_none() {
        Value::Absent
    } else if value.is_instance_of::<PyString>() {
        Value::Text(text(value, part)?.into())
    } else if value.is_instance_of::<PyBool>() {
        Value::Other
    } else if value.is_instance_of::<PyInt>() {
        let bound = || value.lt(0).map(|is_less| if is_less { i128::MIN } else { i128::MAX });
        Value::Integer(value.extract().or_else(|_| bound())?)
    } else if value.is_instance_of::<PyFloat>() {
        Value::Float(value.extract()?)
    } else {
        Value::Other
    })
}

/// A `Message` of Python, not yet checked but for the types of its parts.
pub(crate) fn message_of(message: &Bound<'_, PyAny>) -> PyResult<Message> {
    let py = message.py();
    let (id, key) = parts_of_name(message)?;
    let id = text(&id, "id")?;
    let key = key.as_ref().map(|key| text(key, "key")).transpose()?;
    let due_ms = part_of(message, intern!(py, "due_ms"), "epoch milliseconds")?;
    let payload = message.getattr(intern!(py, "payload"))?;
    let (payload, is_json) = payload_given(&if payload.is_none() { PyDict::new(py).into_any() } else { payload })?;
    let delay_ms = part_of(message, intern!(py, "delay_ms"), "a number of milliseconds, or None")?;
    let expires_ms = part_of(message, intern!(py, "expires_ms"), "epoch milliseconds, or None")?;
    let text_of = |name| part_of::<Option<String>>(message, name, "text, or None");
    let traceparent = text_of(intern!(py, "traceparent"))?.map(Into::into);
    let destination = text_of(intern!(py, "destination"))?.map(Into::into);
    let tenant = text_of(intern!(py, "tenant"))?.map(Into::into);
    let until: Option<Vec<String>> = part_of(message, intern!(py, "until_event"), "a list of names, or None")?;
    let extras = Extras { expires_ms, traceparent, destination, tenant, ..Extras::default() };
    let body = Body::new(key, id, payload.as_bytes(), is_json).with_extras(extras);
    let made = Message::from_parts(body, due_ms, delay_ms);
    Ok(until.map_or_else(|| made.clone(), |names| made.clone().until_event(names.iter().map(String::as_str))))
}

/// Errors: `BadRecord` if it is of another type. A `bool` is no number.
fn part_of<'py, T: FromPyObjectOwned<'py>>(
    message: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
    allowed: &str,
) -> PyResult<T> {
    let part = message.getattr(name)?;
    let is_bool = part.is_instance_of::<PyBool>();
    let found = if is_bool { None } else { part.extract().ok() };
    found.ok_or_else(|| {
        let name = name.to_string_lossy();
        let reason = match &*name {
            "due_ms" if !is_bool && part.is_instance_of::<PyInt>() => "due_ms is out of range".to_owned(),
            "due_ms" => "due_ms is not an integer".to_owned(),
            _ => format!("{name} is {}", quoted(&part)),
        };
        bad_record(message.py(), &BadRecord { reason, allowed: format!("{name}: {allowed}") })
    })
}

type Named<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

/// The id and the key of an object.
pub(crate) fn parts_of_name<'py>(named: &Bound<'py, PyAny>) -> PyResult<Named<'py>> {
    let py = named.py();
    let key = named.getattr(intern!(py, "key"))?;
    Ok((named.getattr(intern!(py, "id"))?, (!key.is_none()).then_some(key)))
}

/// A part of a name.
pub(crate) fn text<'a>(value: &'a Bound<'_, PyAny>, part: &str) -> PyResult<&'a str> {
    let bad = |what: &str, allowed: &str| {
        let bad = BadRecord { reason: format!("{part} {what}"), allowed: format!("{part}: {allowed}") };
        bad_record(value.py(), &bad)
    };
    let Ok(value) = value.cast::<PyString>() else {
        let what = if value.is_none() { "is missing" } else { "is not text" };
        return Err(bad(what, "text, not empty"));
    };
    value.to_str().map_err(|_| bad("has half of a surrogate pair", "text that can be written in UTF-8"))
}
