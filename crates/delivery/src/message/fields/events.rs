//! Reads an event, and the events that a message waits for (rule D22).
//!
//! `until_event` has a meaning in every message with a key. `event` and `remember_ms` have one beside `op: "event"` only;
//! in any other record they are ordinary fields of the payload.

use std::borrow::Cow;

use super::{Fields, Payload, Schema, Value};
use crate::base::error::BadRecord;
use crate::message::check_size;
use crate::message::columns::{EVENT, REMEMBER_MS, UNTIL_EVENT, refuse_near};
use crate::message::events::{Event, remembered};
use crate::message::until::{NAMES, Until};

impl<'a> Fields<'a> {
    /// The fields without these, which no format's reader knows.
    pub(in crate::message) fn without(&self, names: &[&str]) -> Cow<'_, Self> {
        if self.others.iter().all(|(name, _)| !names.contains(&&**name)) {
            return Cow::Borrowed(self);
        }
        let others = self.others.iter().filter(|(name, _)| !names.contains(&&**name));
        Cow::Owned(Fields { others: others.cloned().collect(), ..self.clone() })
    }

    fn other(&self, name: &str) -> Option<&[u8]> {
        self.others.iter().find(|(other, _)| other == name).map(|(_, json)| &**json)
    }

    /// The events that the message waits for: a list of names, or a text with spaces between them.
    pub(in crate::message) fn until(&self, key: Option<&str>) -> Result<Option<Until>, BadRecord> {
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
    pub(in crate::message) fn event(
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
            Some(json) => Some(remembered(number_in(json))?),
        };
        let rest = fields.without(&[EVENT, REMEMBER_MS]);
        rest.others.iter().try_for_each(|(name, _)| refuse_near(name, &[(REMEMBER_MS, 2), (EVENT, 1)]))?;
        let is_bare = rest.payload.is_none() && rest.payload_base64 == Value::Absent && rest.others.is_empty();
        let payload = if is_bare { Cow::Owned(Payload::null()) } else { self.payload(&rest)? };
        check_size(payload.bytes.len(), self.max_payload)?;
        let (payload, is_json) = (payload.bytes.as_ref().into(), payload.is_json);
        Event { id: id.into(), key: key.into(), event, remember_ms, payload, is_json }.named()
    }
}

/// A whole number, also one in text, as CSV has it.
fn number_in(json: &[u8]) -> Option<i64> {
    let given: serde_json::Value = serde_json::from_slice(json).ok()?;
    given.as_i64().or_else(|| given.as_str()?.trim().parse().ok())
}
