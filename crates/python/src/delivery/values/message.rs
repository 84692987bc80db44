//! Converts between `Message` of Python and a message of the engine.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyString, PyType};

use crate::delivery::calls::failures::{bad_record, quoted};
use crate::tools::made_once::{MadeOnce, intern};
use tickwheel_delivery::internal::{Body, Extras};
use tickwheel_delivery::{BadRecord, Message};

/// As `Message` of Python.
pub(crate) fn message_to_python<'py>(py: Python<'py>, it: &Message) -> PyResult<Bound<'py, PyAny>> {
    let (body, expires_ms) = (&it.body, it.expires_ms());
    let payload = payload_of(py, body)?;
    // A recurring message has the due time of its first occurrence.
    let due_ms = body.recurrence().and_then(|it| it.first_ms().ok()).unwrap_or(it.due_ms);
    message_class(py)?.call1((body.id(), body.key(), due_ms, payload, it.delay_ms, expires_ms, body.traceparent()))
}

/// The class `Message` of Python.
pub(crate) fn message_class<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyType>> {
    static CLASS: MadeOnce<Py<PyType>> = MadeOnce::new();
    CLASS.import(py, "tickwheel.delivery.model.message", "Message")
}

/// `bytes`, or `msgspec.Raw` for JSON.
pub(crate) fn payload_of<'py>(py: Python<'py>, body: &Body) -> PyResult<Bound<'py, PyAny>> {
    let bytes = PyBytes::new(py, body.payload());
    if !body.is_json() {
        return Ok(bytes.into_any());
    }
    raw_class(py)?.call1((bytes,))
}

fn raw_class<'py>(py: Python<'py>) -> PyResult<&'py Bound<'py, PyType>> {
    static CLASS: MadeOnce<Py<PyType>> = MadeOnce::new();
    CLASS.import(py, "msgspec", "Raw")
}

/// A `Message` of Python, not yet checked but for the types of its parts.
pub(crate) fn message_of(message: &Bound<'_, PyAny>) -> PyResult<Message> {
    let py = message.py();
    let (id, key) = parts_of_name(message)?;
    let id = text(&id, "id")?;
    let key = key.as_ref().map(|key| text(key, "key")).transpose()?;
    let due = message.getattr(intern!(py, "due_ms"))?;
    let wrong = |reason, allowed: &str| bad_record(py, &BadRecord { reason, allowed: allowed.to_owned() });
    let bad = |reason| wrong(reason, "due_ms: epoch milliseconds");
    let due_ms = match due.cast::<PyInt>() {
        Ok(due) if !due.is_instance_of::<PyBool>() => {
            due.extract::<i64>().map_err(|_| bad("due_ms is out of range".to_owned()))
        }
        _ => Err(bad("due_ms is not an integer".to_owned())),
    }?;
    let payload = message.getattr(intern!(py, "payload"))?;
    let delay_ms = message.getattr(intern!(py, "delay_ms"))?;
    let delay_ms = delay_ms.extract().map_err(|_| {
        wrong(format!("delay_ms is {}", quoted(&delay_ms)), "delay_ms: a number of milliseconds, or None")
    })?;
    let body = if let Ok(bytes) = payload.cast::<PyBytes>() {
        Body::new(key, id, bytes.as_bytes(), false)
    } else if payload.is_instance(raw_class(py)?)? {
        let bytes = py.get_type::<PyBytes>().call1((&payload,))?;
        Body::new(key, id, bytes.cast::<PyBytes>()?.as_bytes(), true)
    } else {
        let reason = format!("payload is {}", quoted(&payload));
        return Err(wrong(reason, "payload: bytes, or JSON as msgspec.Raw(msgspec.json.encode(value))"));
    };
    let wrong_type = |name: &str, allowed: &str, value: &Bound<'_, PyAny>| {
        wrong(format!("{name} is {}", quoted(value)), &format!("{name}: {allowed}, or None"))
    };
    let expires = message.getattr(intern!(py, "expires_ms"))?;
    let expires_ms = expires.extract().map_err(|_| wrong_type("expires_ms", "epoch milliseconds", &expires))?;
    let trace = message.getattr(intern!(py, "traceparent"))?;
    let traceparent: Option<String> = trace.extract().map_err(|_| wrong_type("traceparent", "text", &trace))?;
    let extras = Extras { expires_ms, traceparent: traceparent.map(Into::into), ..Extras::default() };
    Ok(Message::from_parts(body.with_extras(extras), due_ms, delay_ms))
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
