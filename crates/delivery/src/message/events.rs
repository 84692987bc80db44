//! Events, which let go the messages that wait for them (rule D22).

use std::sync::Arc;
use std::time::Duration;

use super::hashes::{self, Content, Parts};
use super::until::is_name;
use super::{check_name, check_size, name_size, not_json};
use crate::base::display::quoted;
use crate::base::error::BadRecord;
use crate::base::json::{on_one_line, write_base64, write_text};

/// The most messages of a key that wait for events.
pub(crate) const MOST_WAITING: usize = 1_000;
const MOST_REMEMBERED_MS: i64 = 36_500 * 86_400_000; // as --keep-ids
const ONE_NAME: &str = "event: a name without spaces, at most 1,024 bytes";

/// An event: something that has happened to a key. It lets go the messages of the key that wait for its name.
///
/// ```
/// use std::time::Duration;
/// use tickwheel_delivery::KeyEvent;
///
/// let paid = KeyEvent::of("order 7", "payment 1", "paid").with_payload(r#"{"sum": 12}"#).json();
/// let paid = paid.remember(Duration::from_secs(3_600)); // for messages that come later
/// assert_eq!((&*paid.key, &*paid.id, &*paid.event, paid.remember_ms), ("order 7", "payment 1", "paid", Some(3_600_000)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyEvent {
    /// `(key, id)` is its name, among events.
    pub id: String,
    /// It lets go messages of this key.
    pub key: String,
    /// They wait for this name.
    pub event: String,
    /// So long it also lets go messages that come later.
    pub remember_ms: Option<i64>,
    /// What their receivers get.
    pub payload: Box<[u8]>,
    /// Whether the payload is JSON.
    pub is_json: bool,
}

pub(crate) use KeyEvent as Event;

impl Event {
    /// An event without a payload, which receivers get as `null`. `(key, id)` is its name among events; `name` is what
    /// messages wait for.
    #[must_use]
    pub fn of(key: &str, id: &str, name: &str) -> Self {
        let (key, id, event) = (key.to_owned(), id.to_owned(), name.to_owned());
        Self { id, key, event, remember_ms: None, payload: b"null"[..].into(), is_json: true }
    }

    /// Sets what the receivers of the messages get.
    #[must_use]
    pub fn with_payload(self, payload: impl AsRef<[u8]>) -> Self {
        Self { payload: payload.as_ref().into(), is_json: false, ..self }
    }

    /// Marks the payload as JSON. It is checked when the event is submitted.
    #[must_use]
    pub fn json(self) -> Self {
        Self { is_json: true, ..self }
    }

    /// Lets the event also let go messages that come within this time, which is counted in whole milliseconds.
    #[must_use]
    pub fn remember(self, time: Duration) -> Self {
        Self { remember_ms: Some(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)), ..self }
    }

    /// Checks an event that a program made, by the rules for records.
    pub(crate) fn checked(mut self, max_payload: usize) -> Result<Self, BadRecord> {
        check_name(Some(&self.key), &self.id)?;
        self.remember_ms.map(|ms| remembered(Some(ms))).transpose()?;
        check_size(self.payload.len(), max_payload)?;
        if self.is_json
            && let Some(one_line) = on_one_line(&self.payload).map_err(|why| not_json(&why))?
        {
            self.payload = one_line.into();
        }
        self.named()
    }

    /// Checks its name.
    pub(super) fn named(self) -> Result<Self, BadRecord> {
        if is_name(&self.event) {
            return Ok(self);
        }
        Err(BadRecord::new(format!("{} is no name of an event", quoted(&self.event, 80)), ONE_NAME))
    }

    /// `{"name", "id", "payload"}`, as receivers get it.
    pub(crate) fn data(&self) -> Arc<str> {
        let mut out = Vec::with_capacity(self.event.len() + self.id.len() + self.payload.len() + 40);
        out.extend_from_slice(b"{\"name\":");
        write_text(&mut out, &self.event);
        out.extend_from_slice(b",\"id\":");
        write_text(&mut out, &self.id);
        if self.is_json {
            out.extend_from_slice(b",\"payload\":");
            out.extend_from_slice(&self.payload);
        } else {
            out.extend_from_slice(b",\"payload_base64\":\"");
            write_base64(&mut out, &self.payload);
            out.push(b'"');
        }
        out.push(b'}');
        String::from_utf8(out).expect("JSON is text").into()
    }

    /// Its content: two events with the same name are one event only if it is the same.
    pub(crate) fn content(&self) -> Content {
        hashes::content_of(Parts {
            key: None,
            id: "",
            due_ms: self.remember_ms.unwrap_or(0),
            delay_ms: None,
            expires_ms: None,
            recurrence: None,
            destination: Some(&self.event),
            tenant: None,
            until: None,
            payload: &self.payload,
            is_json: self.is_json,
        })
    }

    pub(crate) fn size(&self) -> usize {
        name_size(Some(&self.key), &self.id) + self.event.len() + self.payload.len()
    }
}

/// Checks `remember_ms`.
pub(super) fn remembered(given: Option<i64>) -> Result<i64, BadRecord> {
    given.filter(|ms| (1..=MOST_REMEMBERED_MS).contains(ms)).ok_or_else(|| {
        let allowed =
            "remember_ms: milliseconds, 1 to 3,153,600,000,000 (36,500 days); it ends with --keep-ids at the latest";
        BadRecord::new("remember_ms is no such number", allowed)
    })
}
