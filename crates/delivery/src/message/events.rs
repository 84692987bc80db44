//! Events, and the messages that wait for one (rule D22): `until_event` of a message, and records with `op: "event"`.
//!
//! `until_event` has a meaning in every message with a key. `event` and `remember_ms` have one beside `op: "event"` only;
//! in any other record they are ordinary fields of the payload.

use std::borrow::Cow;
use std::sync::Arc;

use super::columns::{EVENT, REMEMBER_MS, UNTIL_EVENT};
use super::fields::{Fields, Payload, Schema, Value};
use super::hashes::{self, Content, Parts};
use super::{check_size, name_size};
use crate::base::display::quoted;
use crate::base::error::BadRecord;
use crate::base::json::{write_base64, write_text};

/// The most names that a message waits for, and the most bytes of all of them.
const MOST: (usize, usize) = (16, 1_024);
/// The most messages of a key that wait for events.
pub(crate) const MOST_WAITING: usize = 1_000;
const NAMES: &str = "until_event: 1 to 16 names without spaces, at most 1,024 bytes together, on a message with a key that does \
                     not recur";
const ONE_NAME: &str = "event: a name without spaces, at most 1,024 bytes";

/// What a message waits for besides its due time, and what has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Until {
    /// The names of the events, with a space between two.
    pub names: Box<str>,
    /// What has made it due.
    pub cause: Cause,
}

/// Why a message is due that may wait for an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// Its due time, when it comes; or an event before that.
    #[default]
    Open,
    /// Its due time. It stays so if the message is moved or tried again.
    Deadline,
    /// An event: its number in the store, and `{"name", "id", "payload"}` as JSON.
    Event(i64, Arc<str>),
}

impl Until {
    /// The names are checked when the message is submitted.
    pub(super) fn unchecked<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names = names.into_iter().collect::<Vec<_>>().join("\n"); // no name has this
        Self { names: names.into(), cause: Cause::Open }
    }

    /// Checks the names, and whether a message with this key may have them.
    pub(super) fn of<'a>(
        names: impl IntoIterator<Item = &'a str>,
        key: Option<&str>,
        recurs: bool,
    ) -> Result<Self, BadRecord> {
        if key.is_none() || recurs {
            let what = if recurs { "recurs" } else { "has no key" };
            return Err(BadRecord::new(format!("until_event is on a message that {what}"), NAMES));
        }
        let mut checked: Vec<&str> = names.into_iter().collect();
        if let Some(bad) = checked.iter().find(|name| !is_name(name)) {
            return Err(BadRecord::new(format!("{} is no name of an event", quoted(bad, 80)), NAMES));
        }
        checked.sort_unstable();
        checked.dedup();
        let names = checked.join(" ");
        if checked.is_empty() || checked.len() > MOST.0 || names.len() > MOST.1 {
            let reason = format!("until_event has {} names, and {} bytes", checked.len(), names.len());
            return Err(BadRecord::new(reason, NAMES));
        }
        Ok(Self { names: names.into(), cause: Cause::Open })
    }

    pub(super) fn checked(&self, key: Option<&str>, recurs: bool) -> Result<Self, BadRecord> {
        Self::of(self.names.split(['\n', ' ']), key, recurs)
    }

    /// Whether it waits for an event with this name.
    pub(crate) fn has(names: &str, event: &str) -> bool {
        names.split(' ').any(|name| name == event)
    }

    pub(super) fn size(&self) -> usize {
        let event = if let Cause::Event(_, data) = &self.cause { data.len() } else { 0 };
        size_of::<Self>() + self.names.len() + event
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MOST.1 && !name.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// Something that has happened to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
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

impl Event {
    /// Checks the name of the event.
    ///
    /// # Errors
    /// It is empty, too long, or has spaces.
    pub fn checked(self) -> Result<Self, BadRecord> {
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

impl<'a> Fields<'a> {
    /// The fields without these, which no format's reader knows.
    pub(super) fn without(&self, names: &[&str]) -> Cow<'_, Self> {
        if self.others.iter().all(|(name, _)| !names.contains(&&**name)) {
            return Cow::Borrowed(self);
        }
        let others = self.others.iter().filter(|(name, _)| !names.contains(&&**name));
        Cow::Owned(Fields { others: others.cloned().collect(), ..self.clone() })
    }

    fn other(&self, name: &str) -> Option<&[u8]> {
        self.others.iter().find(|(other, _)| other == name).map(|(_, json)| &**json)
    }

    /// What the message waits for besides its due time: a list of names, or a text with spaces between them.
    pub(super) fn until(&self, key: Option<&str>) -> Result<Option<Until>, BadRecord> {
        let Some(json) = self.other(UNTIL_EVENT) else { return Ok(None) };
        if let Ok(text) = serde_json::from_slice::<String>(json) {
            return Until::of(text.split_whitespace(), key, self.recurs()).map(Some);
        }
        let names: Vec<String> = serde_json::from_slice(json)
            .map_err(|_| BadRecord::new("until_event is neither a list of names nor text", NAMES))?;
        Until::of(names.iter().map(String::as_str), key, self.recurs()).map(Some)
    }
}

impl Schema {
    /// Reads a record with `op: "event"`.
    pub(super) fn event(
        &self,
        fields: &Fields<'_>,
        id: &str,
        key: Option<&str>,
        now_ns: Option<i64>,
    ) -> Result<Event, BadRecord> {
        if now_ns.is_none() {
            return Err(BadRecord::new("an event is of now, which a replay does not have", "with --speed: messages"));
        }
        let Fields { due, delay_ms, expires, traceparent, every, cron, destination, tenant, .. } = fields;
        let are_absent = [due, delay_ms, expires, traceparent, every, cron, destination, tenant];
        if are_absent.into_iter().any(|value| *value != Value::Absent) || fields.other(UNTIL_EVENT).is_some() {
            let allowed = "op: \"event\" with id, key, event, and perhaps remember_ms and a payload";
            return Err(BadRecord::new("an event has a field of a message", allowed));
        }
        let Some(key) = key else {
            return Err(BadRecord::new("an event has no key", "the key of the messages that wait for it"));
        };
        let event: String = fields.other(EVENT).and_then(|json| serde_json::from_slice(json).ok()).unwrap_or_default();
        let remember_ms = match fields.other(REMEMBER_MS) {
            None => None,
            Some(json) => Some(remembered(serde_json::from_slice(json).ok())?),
        };
        let rest = fields.without(&[EVENT, REMEMBER_MS]);
        let is_bare = rest.payload.is_none() && rest.payload_base64 == Value::Absent && rest.others.is_empty();
        let payload = if is_bare { Cow::Owned(Payload::null()) } else { self.payload(&rest)? };
        check_size(payload.bytes.len(), self.max_payload)?;
        let (payload, is_json) = (payload.bytes.as_ref().into(), payload.is_json);
        Event { id: id.into(), key: key.into(), event, remember_ms, payload, is_json }.checked()
    }
}

/// Checks `remember_ms`.
fn remembered(given: Option<serde_json::Value>) -> Result<i64, BadRecord> {
    let given = given.and_then(|it| it.as_i64().or_else(|| it.as_str()?.trim().parse().ok()));
    given.filter(|ms| (1..=MOST_REMEMBERED_MS).contains(ms)).ok_or_else(|| {
        let allowed =
            "remember_ms: milliseconds, 1 to 34,560,000,000 (400 days); it ends with --keep-ids at the latest";
        BadRecord::new("remember_ms is no such number", allowed)
    })
}

const MOST_REMEMBERED_MS: i64 = 34_560_000_000;
