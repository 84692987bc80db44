//! Writes a message as a record that can be read again, for dead letters and exports (rule D1).

use super::incoming::{Incoming, Origin};
use super::recurrence::Rule;
use super::until::Cause;
use super::{Body, Message};
use crate::base::json::{write_base64, write_text};
use crate::base::times::rfc_3339;

/// The record from which the message was read. If it was not kept, a record from which the same message can be read.
pub(crate) fn record_of_incoming(incoming: &Incoming) -> Vec<u8> {
    match &incoming.origin {
        Some(Origin { record: Some(record), .. }) => record.to_vec(),
        _ => record_of(&incoming.message),
    }
}

/// The message as a record that can be given again, without a newline (rule D1).
pub(crate) fn record_of(message: &Message) -> Vec<u8> {
    record_with(message, None)
}

/// The same with the delay that was given, so that it has the same content.
#[must_use]
pub fn record_as_given(message: &Message) -> Vec<u8> {
    record_with(message, message.delay_ms)
}

fn record_with(message: &Message, delay_ms: Option<f64>) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.body.size() + 64);
    match message.body.recurrence() {
        None => {
            let due = delay_ms.is_none().then(|| rfc_3339(message.due_ms));
            write_names(&mut out, &message.body, due.as_ref().map(<[u8; 24]>::as_slice));
            if let Some(delay_ms) = delay_ms {
                out.extend_from_slice(format!(",\"delay_ms\":{delay_ms}").as_bytes());
            }
            write_payload(&mut out, &message.body);
        }
        Some(it) => {
            // The times of a cron pattern do not depend on the start, so the record leaves it out.
            let from = matches!(it.rule, Rule::Every { .. }).then(|| rfc_3339(it.from_ms));
            write_names(&mut out, &message.body, from.as_ref().map(<[u8; 24]>::as_slice));
            write_payload(&mut out, &message.body);
            out.push(b',');
            out.extend_from_slice(&it.fields());
        }
    }
    if let Some(expires_ms) = message.expires_ms() {
        out.extend_from_slice(b",\"expires\":\"");
        out.extend_from_slice(&rfc_3339(expires_ms));
        out.push(b'"');
    }
    write_traceparent(&mut out, &message.body);
    write_destination_and_tenant(&mut out, &message.body);
    if let Some(until) = message.body.until() {
        out.extend_from_slice(b",\"until_event\":");
        write_text(&mut out, &until.names); // names with spaces between them, as in CSV
    }
    out.push(b'}');
    out
}

pub(crate) fn write_destination_and_tenant(out: &mut Vec<u8>, body: &Body) {
    if let Some(destination) = body.destination() {
        out.extend_from_slice(b",\"destination\":");
        write_text(out, destination);
    }
    if let Some(tenant) = body.tenant() {
        out.extend_from_slice(b",\"tenant\":");
        write_text(out, tenant);
    }
}

/// Why the message is due, if it may have waited for an event.
pub(crate) fn write_cause(out: &mut Vec<u8>, body: &Body) {
    let Some(until) = body.until() else { return };
    out.extend_from_slice(b",\"cause\":");
    write_text(out, until.cause.word());
    if let Cause::Event(_, data) = &until.cause {
        out.extend_from_slice(b",\"event\":");
        out.extend_from_slice(data.as_bytes());
    }
}

pub(crate) fn write_traceparent(out: &mut Vec<u8>, body: &Body) {
    if let Some(traceparent) = body.traceparent() {
        out.extend_from_slice(b",\"traceparent\":");
        write_text(out, traceparent);
    }
}

/// The first members that both kinds of record share.
pub(crate) fn write_names(out: &mut Vec<u8>, body: &Body, due: Option<&[u8]>) {
    out.extend_from_slice(b"{\"id\":");
    write_text(out, body.id());
    out.extend_from_slice(b",\"key\":");
    match body.key() {
        Some(key) => write_text(out, key),
        None => out.extend_from_slice(b"null"),
    }
    if let Some(due) = due {
        out.extend_from_slice(b",\"due\":\"");
        out.extend_from_slice(due);
        out.push(b'"');
    }
}

/// The member after them.
pub(crate) fn write_payload(out: &mut Vec<u8>, body: &Body) {
    if body.is_json() {
        out.extend_from_slice(b",\"payload\":");
        out.extend_from_slice(body.payload());
    } else {
        out.extend_from_slice(b",\"payload_base64\":\"");
        write_base64(out, body.payload());
        out.push(b'"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::incoming::Incoming;

    #[test]
    fn a_record_as_it_was_given_keeps_its_delay_and_so_its_content__d5() {
        let given =
            Message { delay_ms: Some(1.5), ..Message::from_parts(Body::new(Some("k"), "a", b"1", true), 5_000, None) };
        let text = String::from_utf8(record_as_given(&given)).unwrap();
        assert_eq!(text, r#"{"id":"a","key":"k","delay_ms":1.5,"payload":1}"#);
        let text = String::from_utf8(record_of(&given)).unwrap();
        assert_eq!(text, r#"{"id":"a","key":"k","due":"1970-01-01T00:00:05.000Z","payload":1}"#);
        let later = Message { due_ms: 9_000, ..given.clone() };
        assert_eq!(Incoming::of(given).content, Incoming::of(later).content);
    }
}
