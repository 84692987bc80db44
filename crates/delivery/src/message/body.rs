//! The key, id and payload of a message in one piece, and the parts that few messages have.

use std::sync::Arc;

use crate::base::display::quoted;
use crate::base::error::BadRecord;
use crate::message::recurrence::Recurrence;
use crate::message::until::Until;

const NO_KEY: u32 = u32::MAX;

/// The key, id and payload of a message, in one allocation. Copies of the message share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    bytes: Arc<[u8]>,
    key_len: u32,
    id_len: u32,
    pub(super) is_json: bool,
    /// Copies of the message share these too.
    extras: Option<Arc<Extras>>,
}

impl Body {
    /// Copies the parts. If `is_json` is true, the payload is JSON on one line; otherwise it may be any bytes.
    #[must_use]
    pub fn new(key: Option<&str>, id: &str, payload: &[u8], is_json: bool) -> Self {
        let key_bytes = key.unwrap_or("").as_bytes();
        let bytes = [key_bytes, id.as_bytes(), payload].concat();
        let key_len = if key.is_some() { key_bytes.len() as u32 } else { NO_KEY };
        Self { bytes: bytes.into(), key_len, id_len: id.len() as u32, is_json, extras: None }
    }

    /// Replaces the extras.
    #[must_use]
    pub fn with_extras(self, extras: Extras) -> Self {
        let extras = (extras != Extras::default()).then(|| Arc::new(extras));
        Self { extras, ..self }
    }

    /// Sets the numbers by which destinations know the message: see [`Extras`].
    pub(crate) fn numbered(self, again: Option<i64>, first: Option<i64>) -> Self {
        if again.or(first).is_none() { self } else { self.with(|it| (it.again, it.first) = (again, first)) }
    }

    /// Makes the message recurring.
    pub(crate) fn recurring(self, recurrence: Recurrence) -> Self {
        self.with(|extras| extras.recurrence = Some(Box::new(recurrence)))
    }

    /// Changes the extras.
    pub(crate) fn with(self, change: impl FnOnce(&mut Extras)) -> Self {
        let mut extras = self.extras().cloned().unwrap_or_default();
        change(&mut extras);
        self.with_extras(extras)
    }

    /// The parts that few messages have.
    pub(crate) fn extras(&self) -> Option<&Extras> {
        self.extras.as_deref()
    }

    /// The name of its destination.
    #[must_use]
    pub fn destination(&self) -> Option<&str> {
        self.extras()?.destination.as_deref()
    }

    /// The name of its tenant.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.extras()?.tenant.as_deref()
    }

    /// The events that it waits for.
    #[must_use]
    pub fn until(&self) -> Option<&Until> {
        self.extras()?.until.as_deref()
    }

    /// The number of its share in the store; 0 if it names no destination and no tenant.
    pub(crate) fn share(&self) -> i64 {
        self.extras().map_or(0, |extras| extras.share)
    }

    /// When the message expires, in milliseconds since 1970. After this time it is not delivered.
    pub(crate) fn expires_ms(&self) -> Option<i64> {
        self.extras()?.expires_ms
    }

    /// The trace and span in which the message was made.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.extras()?.traceparent.as_deref()
    }

    /// The rule of a recurring message: when its occurrences are due.
    #[must_use]
    pub fn recurrence(&self) -> Option<&Recurrence> {
        self.extras()?.recurrence.as_deref()
    }

    fn id_start(&self) -> usize {
        if self.key_len == NO_KEY { 0 } else { self.key_len as usize }
    }

    fn id_end(&self) -> usize {
        self.id_start() + self.id_len as usize
    }

    /// The key. Messages with the same key are delivered in order.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        (self.key_len != NO_KEY).then(|| text(&self.bytes[..self.id_start()]))
    }

    /// The id. `(key, id)` is the name of the message.
    #[must_use]
    pub fn id(&self) -> &str {
        text(&self.bytes[self.id_start()..self.id_end()])
    }

    /// The payload's bytes.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes[self.id_end()..]
    }

    /// Whether the payload is JSON.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.is_json
    }

    /// The size of all parts in bytes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.extras().map_or(0, Extras::size)
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the parts were text")
}

/// The allowed form of a `traceparent`, for errors.
const TRACEPARENT: &str = "traceparent: version, trace, span and flags as W3C Trace Context has them, such as \
                           00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The parts that most messages do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// When the message expires, in milliseconds since 1970. After this time it is not delivered.
    pub expires_ms: Option<i64>,
    /// The trace and the span in which the message was made, as W3C Trace Context writes them.
    pub traceparent: Option<Box<str>>,
    /// The limit of a series of replacements with `at_latest_ms`, in milliseconds since 1970. A replacement with
    /// `at_latest_ms` is not due later.
    pub latest_ms: Option<i64>,
    /// The number of the message, if an earlier message had the same name. The number is part of the digest for
    /// destinations, so they do not take one message for the other. A reschedule does not change it.
    pub again: Option<i64>,
    /// The number of the first message with the same digest, if it is another message than this one: before a reschedule, or
    /// before a dead letter was tried anew. 0: another deliverer may have sent it before (S4).
    pub first: Option<i64>,
    /// The name of its destination.
    pub destination: Option<Arc<str>>,
    /// The name of its tenant: whose message it is.
    pub tenant: Option<Arc<str>>,
    /// The number of its share in the store, by its destination and its tenant; 0 if it names none, or is not accepted.
    pub share: i64,
    /// The events that it waits for, and why it is due.
    pub until: Option<Box<Until>>,
    /// The rule of a recurring message. The message itself is never sent, only its occurrences are.
    pub recurrence: Option<Box<Recurrence>>,
}

impl Extras {
    /// The approximate size in memory, in bytes.
    fn size(&self) -> usize {
        let recurrence = self.recurrence.as_ref().map_or(0, |it| it.size());
        let until = self.until.as_ref().map_or(0, |it| it.size());
        size_of::<Self>() + self.traceparent.as_ref().map_or(0, |text| text.len()) + recurrence + until
    }
}

/// Checks a `traceparent`.
///
/// # Errors
/// The text is not a `traceparent`.
pub fn check_traceparent(text: &str) -> Result<(), BadRecord> {
    if is_traceparent(text) {
        return Ok(());
    }
    Err(BadRecord::new(format!("{} is no traceparent", quoted(text, 80)), TRACEPARENT))
}

/// The most characters in the name of a destination or a tenant.
const LONGEST_NAME: usize = 100;

/// Checks the name of a destination.
///
/// # Errors
/// It has other characters, or too many.
pub fn checked_destination(name: &str) -> Result<String, BadRecord> {
    checked_name(name, "destination")
}

/// Checks the name of a tenant.
///
/// # Errors
/// It has other characters, or too many.
pub fn checked_tenant(name: &str) -> Result<String, BadRecord> {
    checked_name(name, "tenant")
}

fn checked_name(name: &str, of: &str) -> Result<String, BadRecord> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_path = name.bytes().all(|byte| byte == b'.'); // proxies make another path of it
    if (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_allowed) && !is_path {
        return Ok(name.to_owned());
    }
    let reason = format!("{} is no name of a {of}", quoted(name, 80));
    Err(BadRecord::new(reason, format!("1 to {LONGEST_NAME} of A-Z, a-z, 0-9, '.', '_' and '-', not dots alone")))
}

/// Checks by version 00. Later versions only add parts at the end.
fn is_traceparent(text: &str) -> bool {
    let is_hex = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |part: &str, digits| is_hex(part, digits) && part.bytes().any(|byte| byte != b'0');
    let parts: Vec<&str> = text.split('-').take(5).collect();
    match parts[..] {
        [version, trace, span, flags, ref rest @ ..] => {
            is_hex(version, 2)
                && version != "ff"
                && is_id(trace, 32)
                && is_id(span, 16)
                && is_hex(flags, 2)
                && (rest.is_empty() || version != "00")
                && text.len() <= 512
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_one_of_w3c__d15() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(is_traceparent(good));
        assert!(is_traceparent(&good.replacen("00", "cc", 1).replace("-01", "-01-what-comes-later")));
        for bad in [
            "",
            "00",
            &good.replacen("00", "ff", 1),
            &good.to_uppercase(),
            &format!("{good}-x"),
            &good[1..],
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-é",
            &format!("cc{}-{}", &good[2..], "x".repeat(500)),
        ] {
            assert!(!is_traceparent(bad), "{bad}");
        }
        assert!(check_traceparent("x\ny").unwrap_err().reason.contains("is no traceparent"));
    }
}
