//! Writes a delivery as one line of NDJSON (rule D11), the same for files, standard output and webhooks.
//!
//! The members are `id, key, due, payload` (or `payload_base64`), `delivered_at, lateness_ms, attempt, redelivered`,
//! and `traceparent`, `destination` and `tenant` if the message has one. One that may have waited for an event has `cause`, and perhaps
//! `event`; one of a replicated store has `store` and `epoch`. Times are RFC 3339 in UTC with milliseconds; `lateness_ms` is exact to the
//! microsecond. A small message takes about 0.2 µs.

use super::delivery::Delivery;
use crate::base::times::rfc_3339;
use crate::message::record::{
    write_cause, write_destination_and_tenant, write_names, write_payload, write_traceparent,
};

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
        self.write_around(out, delivery, |out| write_payload(out, &delivery.body));
    }

    /// The same, with what `write_payload` writes in the place of the payload.
    pub(super) fn write_around(&mut self, out: &mut Vec<u8>, delivery: &Delivery, payload: impl FnOnce(&mut Vec<u8>)) {
        write_names(out, &delivery.body, Some(self.due.text(delivery.due_ms)));
        payload(out);
        out.extend_from_slice(b",\"delivered_at\":\"");
        out.extend_from_slice(self.delivered_at.text(delivery.delivered_at_ms));
        out.extend_from_slice(b"\",\"lateness_ms\":");
        write_thousandths(out, delivery.lateness_us);
        out.extend_from_slice(b",\"attempt\":");
        out.extend_from_slice(itoa::Buffer::new().format(delivery.attempt).as_bytes());
        out.extend_from_slice(b",\"redelivered\":");
        out.extend_from_slice(if delivery.redelivered { b"true" } else { b"false" });
        write_traceparent(out, &delivery.body);
        write_destination_and_tenant(out, &delivery.body);
        write_cause(out, &delivery.body);
        if let Some((store, epoch)) = delivery.owner() {
            out.extend_from_slice(b",\"store\":\"");
            out.extend_from_slice(store.as_bytes());
            out.extend_from_slice(b"\",\"epoch\":");
            out.extend_from_slice(itoa::Buffer::new().format(epoch).as_bytes());
        }
        out.extend_from_slice(b"}\n");
    }
}

/// Writes thousandths as the shortest decimal: `1.235`, `1.5`, `0.0`.
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
    use crate::message::record::record_of;
    use crate::message::{Body, Message};

    fn line(key: Option<&str>, payload: &[u8], is_json: bool, lateness_us: i64) -> String {
        let body = Body::new(key, "a", payload, is_json);
        let delivered_at_ms = 1_700_000_000_002;
        let delivery =
            Delivery::from_parts(Message::from_parts(body, 1, None), 1, delivered_at_ms, lateness_us, 1, false);
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
            let message = Message::from_parts(body.clone(), due_ms, None);
            let delivery = Delivery::from_parts(message, 1, due_ms + 7, 7000, 2, true);
            let mut out = Vec::new();
            writer.write(&mut out, &delivery);
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains(&format!("\"due\":\"1970-01-01T00:00:00.00{due_ms}Z\"")), "{text}");
            assert!(text.contains(&format!("\"delivered_at\":\"1970-01-01T00:00:00.00{}Z\"", due_ms + 7)), "{text}");
            assert!(text.ends_with("\"lateness_ms\":7.0,\"attempt\":2,\"redelivered\":true}\n"), "{text}");
        }
    }
}
