//! Writes a delivery as one line of NDJSON (rule D11), the same for files, standard output and webhooks.
//!
//! `id, key, due, payload` (or `payload_base64`), `delivered_at, lateness_ms, attempt, redelivered`, and `traceparent` if it came
//! with one. Times are RFC 3339 in
//! UTC with milliseconds; `lateness_ms` is to the microsecond. About 0.2 µs for a small message.

#![forbid(unsafe_code)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::delivery::Delivery;
use crate::incoming::Incoming;
use crate::json::write_text;
use crate::message::{Body, Message};
use crate::origin::Origin;
use crate::recurrence::Rule;
use crate::times::rfc_3339;

/// The record that it came from, or else one from which the same message can be read.
pub(crate) fn record_of_incoming(incoming: &Incoming) -> Vec<u8> {
    match &incoming.origin {
        Some(Origin { record: Some(record), .. }) => record.as_bytes().to_vec(),
        _ => record_of(&incoming.message),
    }
}

/// Writes lines. Keeps the last two times as text, because messages that go out together share them.
#[derive(Clone, Debug, Default)]
pub struct LineWriter {
    due: CachedTime,
    delivered_at: CachedTime,
}

impl LineWriter {
    /// Appends the line of a delivery, with its newline.
    pub fn write(&mut self, out: &mut Vec<u8>, delivery: &Delivery) {
        out.reserve(delivery.body.size() + 200);
        write_names(out, &delivery.body, Some(self.due.text(delivery.due_ms)));
        out.extend_from_slice(b",\"delivered_at\":\"");
        out.extend_from_slice(self.delivered_at.text(delivery.delivered_at_ms));
        out.extend_from_slice(b"\",\"lateness_ms\":");
        write_thousandths(out, delivery.lateness_us);
        out.extend_from_slice(b",\"attempt\":");
        out.extend_from_slice(itoa::Buffer::new().format(delivery.attempt).as_bytes());
        out.extend_from_slice(b",\"redelivered\":");
        out.extend_from_slice(if delivery.redelivered { b"true" } else { b"false" });
        write_traceparent(out, &delivery.body);
        out.extend_from_slice(b"}\n");
    }
}

/// The message as a record that can be given again, without a newline (rule D1).
#[must_use]
pub(crate) fn record_of(message: &Message) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.body.size() + 64);
    match message.body.recurrence() {
        None => write_names(&mut out, &message.body, Some(&rfc_3339(message.due_ms))),
        Some(it) => {
            // The times of a pattern are the same whenever it begins.
            let from = matches!(it.rule, Rule::Every { .. }).then(|| rfc_3339(it.from_ms));
            write_names(&mut out, &message.body, from.as_ref().map(<[u8; 24]>::as_slice));
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
    out.push(b'}');
    out
}

fn write_traceparent(out: &mut Vec<u8>, body: &Body) {
    if let Some(traceparent) = body.traceparent() {
        out.extend_from_slice(b",\"traceparent\":");
        write_text(out, traceparent);
    }
}

/// The first four members of both.
fn write_names(out: &mut Vec<u8>, body: &Body, due: Option<&[u8]>) {
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
    if body.is_json() {
        out.extend_from_slice(b",\"payload\":");
        out.extend_from_slice(body.payload());
    } else {
        out.extend_from_slice(b",\"payload_base64\":\"");
        write_base64(out, body.payload());
        out.push(b'"');
    }
}

pub(crate) fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).expect("base64 takes four bytes for three");
    out.truncate(start + written);
}

/// The shortest decimal of thousandths: `1.235`, `1.5`, `0.0`.
fn write_thousandths(out: &mut Vec<u8>, value: i64) {
    let (size, mut digits) = (value.unsigned_abs(), itoa::Buffer::new());
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(digits.format(size / 1000).as_bytes());
    let rest = (size % 1000) as u16;
    let fraction = [b'.', b'0' + (rest / 100) as u8, b'0' + (rest / 10 % 10) as u8, b'0' + (rest % 10) as u8];
    let length = match rest {
        _ if rest.is_multiple_of(100) => 2,
        _ if rest.is_multiple_of(10) => 3,
        _ => 4,
    };
    out.extend_from_slice(&fraction[..length]);
}

#[derive(Clone, Debug)]
struct CachedTime {
    ms: i64,
    text: [u8; 24],
}

impl Default for CachedTime {
    fn default() -> Self {
        Self { ms: 0, text: rfc_3339(0) }
    }
}

impl CachedTime {
    fn text(&mut self, ms: i64) -> &[u8; 24] {
        if ms != self.ms {
            *self = Self { ms, text: rfc_3339(ms) };
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(key: Option<&str>, payload: &[u8], is_json: bool, lateness_us: i64) -> String {
        let body = Body::new(key, "a", payload, is_json);
        let delivered_at_ms = 1_700_000_000_002;
        let delivery =
            Delivery { seq: 1, body, due_ms: 1, delivered_at_ms, lateness_us, attempt: 1, redelivered: false };
        let mut out = Vec::new();
        LineWriter::default().write(&mut out, &delivery);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_has_the_fields_in_order__d11() {
        assert_eq!(
            line(Some("k"), b"{\"x\": 1.50}", true, 1235),
            "{\"id\":\"a\",\"key\":\"k\",\"due\":\"1970-01-01T00:00:00.001Z\",\"payload\":{\"x\": 1.50},\
             \"delivered_at\":\"2023-11-14T22:13:20.002Z\",\"lateness_ms\":1.235,\"attempt\":1,\"redelivered\":false}\n"
        );
    }

    #[test]
    fn other_bytes_are_written_as_base64__d1() {
        for (bytes, text) in [(&b"\xff\x00"[..], "/wA="), (b"", ""), (b"abc", "YWJj")] {
            let written = line(None, bytes, false, 0);
            assert!(written.contains(&format!(
                "\"key\":null,\"due\":\"1970-01-01T00:00:00.001Z\",\"payload_base64\":\"{text}\","
            )));
        }
    }

    #[test]
    fn a_line_stays_one_line_whatever_the_names_are__d11() {
        let body = Body::new(Some("\u{1}\u{8}\u{c}\u{7f}"), "\"\\/\n\r\té😀", b"1", true);
        let message = Message { body, due_ms: 0, delay_ms: None };
        assert_eq!(
            String::from_utf8(record_of(&message)).unwrap(),
            "{\"id\":\"\\\"\\\\/\\n\\r\\té😀\",\"key\":\"\\u0001\\b\\f\u{7f}\",\"due\":\"1970-01-01T00:00:00.000Z\",\"payload\":1}"
        );
    }

    #[test]
    fn lateness_is_the_shortest_decimal_of_microseconds__d11() {
        for (lateness_us, text) in [
            (0, "0.0"),
            (1, "0.001"),
            (10, "0.01"),
            (100, "0.1"),
            (1000, "1.0"),
            (1050, "1.05"),
            (-1500, "-1.5"),
            (86_400_000_000, "86400000.0"),
        ] {
            let written = line(None, b"1", true, lateness_us);
            assert!(written.contains(&format!("\"lateness_ms\":{text},\"attempt\"")), "{written}");
        }
    }

    #[test]
    fn times_that_are_kept_follow_the_messages() {
        let body = Body::new(None, "a", b"1", true);
        let mut writer = LineWriter::default();
        for due_ms in [1, 1, 2, 1] {
            let delivery = Delivery {
                seq: 1,
                body: body.clone(),
                due_ms,
                delivered_at_ms: due_ms + 7,
                lateness_us: 7000,
                attempt: 2,
                redelivered: true,
            };
            let mut out = Vec::new();
            writer.write(&mut out, &delivery);
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains(&format!("\"due\":\"1970-01-01T00:00:00.00{due_ms}Z\"")), "{text}");
            assert!(text.contains(&format!("\"delivered_at\":\"1970-01-01T00:00:00.00{}Z\"", due_ms + 7)), "{text}");
            assert!(text.ends_with("\"lateness_ms\":7.0,\"attempt\":2,\"redelivered\":true}\n"), "{text}");
        }
    }
}
