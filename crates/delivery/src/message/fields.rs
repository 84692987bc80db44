//! The one schema (rule D1): how every input format describes a message, and why a record is refused.
//!
//! The reader of a format puts a record's values into [`Fields`]. [`Schema::check`] turns them into a request (a
//! message, a cancel or a reschedule) or an error. Rules for every format:
//!
//! - `due` and `delay_ms` exclude each other, and so do the payload and `payload_base64`.
//! - A cancel has only a name. A reschedule has a name, and a due time or a delay.
//! - An event has a name, `event`, and perhaps a payload: see `fields/events.rs`.
//! - A recurring message has `every` or `cron`. It may also have the due time or the delay of its first occurrence.
//! - If there is no payload, the other fields become the payload, as an object. If there is a payload, any other
//!   field is an error. For this reason no value is ever dropped.
//! - If there is no payload, a field whose name is nearly a known name is an error too, such as `paylod`.
//! - A field that is null is not there, whatever its name. Inside a payload null is a value.
//! - A key and a payload that the caller named must be there.
//! - JSON keeps its bytes, on one line. If a format has only text, text that is not JSON becomes a JSON string.

mod events;
mod recurrence;

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use jiff::tz::TimeZone;
use smallvec::SmallVec;

use crate::base::display::{cut, quoted};
use crate::base::due_times::{due_from_float, due_from_integer, due_from_text};
use crate::base::error::BadRecord;
use crate::base::json::write_text;
use crate::base::times::zone_named;
use crate::base::times::{ALLOWED, delay_in_range, divided_up, due_in_range};
use crate::message::columns::{
    CRON, Columns, DELAY_MS, EVERY, EXPIRES, PAYLOAD_BASE64, TRACEPARENT, UNTIL_EVENT, VALUES,
};
use crate::message::events::Event;
use crate::message::recurrence::NEVER_MS;
use crate::message::{Body, Cancel, Extras, MAX_NAME, Message, Reschedule, check_extras, check_size, too_long};

const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));
/// Arguments of `put` and of a request, which are not in a record.
const NOT_FIELDS: [&str; 2] = ["debounce_ms", "at_latest_ms"];
const REPLACE: &str = "replace";
const IN_BASE64: &str = "payload_base64: text in base64, padded";

/// The value of a field. It tells only the kinds that the schema needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value<'a> {
    /// The field is missing, or null.
    #[default]
    Absent,
    /// Text.
    Text(Cow<'a, str>),
    /// An integer. An integer too large for this type becomes the largest or smallest value, and no rule allows those
    /// two values.
    Integer(i128),
    /// Any other number.
    Float(f64),
    /// Milliseconds since 1970, from a type that means a point in time.
    Instant(i64),
    /// A boolean, an array, an object, or text that is not UTF-8.
    Other,
}

/// A payload as the record gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct Payload<'a> {
    /// JSON on one line, or any bytes.
    pub bytes: Cow<'a, [u8]>,
    /// Whether the bytes are JSON.
    pub is_json: bool,
}

impl Payload<'_> {
    pub(super) fn null() -> Self {
        Self { bytes: b"null".into(), is_json: true }
    }
}

/// A field unknown to all rules: its name, and its value as JSON on one line.
pub type Other<'a> = (Cow<'a, str>, Cow<'a, [u8]>);

/// A record's values before the check.
#[expect(missing_docs, reason = "most are the fields of these names")]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields<'a> {
    pub id: Value<'a>,
    pub key: Value<'a>,
    pub due: Value<'a>,
    pub delay_ms: Value<'a>,
    pub expires: Value<'a>,
    pub op: Value<'a>,
    pub payload_base64: Value<'a>,
    pub traceparent: Value<'a>,
    pub every: Value<'a>,
    pub cron: Value<'a>,
    pub destination: Value<'a>,
    pub tenant: Value<'a>,
    /// The payload, if the format has it apart from the other fields.
    pub payload: Option<Payload<'a>>,
    /// All fields that no rule knows.
    pub others: SmallVec<[Other<'a>; 4]>,
}

/// The values of `Columns::values`, in that order.
pub(crate) type Values<'a> = [Value<'a>; VALUES];

impl<'a> Fields<'a> {
    /// Fields with no entry in `others`.
    pub(crate) fn of(values: Values<'a>, payload: Option<Payload<'a>>) -> Self {
        let [id, key, due, delay_ms, expires, op, payload_base64, traceparent, every, cron, destination, tenant] =
            values;
        let others = SmallVec::new();
        Self {
            id,
            key,
            due,
            delay_ms,
            expires,
            op,
            payload_base64,
            traceparent,
            every,
            cron,
            destination,
            tenant,
            payload,
            others,
        }
    }
}

/// The request in a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Deliver a message.
    Message(Message),
    /// Do not deliver a message.
    Cancel(Cancel),
    /// Deliver a message at another time.
    Reschedule(Reschedule),
    /// Let messages go that wait for an event.
    Event(Event),
}

/// The names of the fields, and the largest payload.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The name of each field in the input.
    pub columns: Columns,
    pub(crate) max_payload: usize,
    /// The zone of times without an offset.
    zone: Option<TimeZone>,
}

impl Schema {
    /// Payloads have at most `max_payload` bytes, and records twice as many. The reason: a payload in base64 or with
    /// escapes takes up to twice its size.
    #[must_use]
    pub fn new(columns: Columns, max_payload: usize) -> Self {
        Self { columns, max_payload, zone: None }
    }

    /// Reads times without an offset as those of the zone with this name.
    ///
    /// # Errors
    /// There is no such zone.
    pub fn in_zone(self, name: &str) -> Result<Self, BadRecord> {
        Ok(Self { zone: Some(zone_named(name, "zone")?), ..self })
    }

    /// The most bytes of one record.
    #[must_use]
    pub fn max_record(&self) -> usize {
        self.max_payload.saturating_mul(2)
    }

    /// The request of a record. `now_ns` is the wall time from which a `delay_ms` counts; `None` in a replay.
    ///
    /// # Errors
    /// The first rule that the record breaks.
    pub fn check(&self, fields: &Fields<'_>, now_ns: Option<i64>) -> Result<Request, BadRecord> {
        let fields = &*without_nulls(fields);
        let id = text(&fields.id, self.columns.id())?;
        let key = match fields.key {
            Value::Absent if self.columns.needs_key() => return Err(self.no_key()),
            Value::Absent => None,
            ref key => Some(text(key, self.columns.key())?),
        };
        match &fields.op {
            Value::Absent => {}
            Value::Text(op) if op == "cancel" => return cancel(fields, id, key),
            Value::Text(op) if op == "reschedule" => return self.reschedule(fields, id, key, now_ns),
            Value::Text(op) if op == "event" => return self.event(fields, id, key, now_ns).map(Request::Event),
            _ => {
                let allowed = "op: \"cancel\", \"reschedule\" or \"event\", or no op at all for a message";
                return Err(BadRecord::new("op is not known", allowed));
            }
        }
        let until = fields.until(key)?;
        let fields = &*fields.without(&[UNTIL_EVENT]);
        if fields.recurs() {
            let (recurrence, delay_ms) = self.recurrence(fields, now_ns)?;
            let mut message = self.message(&fields.once(), id, key, |_| Ok((NEVER_MS, delay_ms)))?;
            message.body = message.body.recurring(recurrence);
            return Ok(Request::Message(message));
        }
        let mut message = self.message(fields, id, key, |fields| self.due(fields, now_ns))?;
        if until.is_some() {
            message.body = message.body.with(|extras| extras.until = until.map(Box::new));
        }
        Ok(Request::Message(message))
    }

    fn message(
        &self,
        fields: &Fields<'_>,
        id: &str,
        key: Option<&str>,
        due: impl FnOnce(&Fields<'_>) -> Result<(i64, Option<f64>), BadRecord>,
    ) -> Result<Message, BadRecord> {
        if !fields.others.is_empty() {
            self.refuse_near_misses(fields)?;
        }
        let (due_ms, delay_ms) = due(fields)?;
        let payload = self.payload(fields)?;
        check_size(payload.bytes.len(), self.max_payload)?;
        let body = Body::new(key, id, &payload.bytes, payload.is_json).with_extras(self.extras(fields)?);
        let message = Message { body, due_ms, delay_ms };
        check_extras(&message)?;
        Ok(message)
    }

    fn reschedule(
        &self,
        fields: &Fields<'_>,
        id: &str,
        key: Option<&str>,
        now_ns: Option<i64>,
    ) -> Result<Request, BadRecord> {
        if !is_plain(fields) {
            let allowed =
                format!("op: \"reschedule\" with id, key, {} or delay_ms, and nothing else", self.columns.due());
            return Err(BadRecord::new("a reschedule has more than a name and a time", allowed));
        }
        let (due_ms, _) = self.due(fields, now_ns)?;
        Ok(Request::Reschedule(Reschedule { id: id.into(), key: key.map(Into::into), due_ms }))
    }

    fn refuse_near_misses(&self, fields: &Fields<'_>) -> Result<(), BadRecord> {
        let columns = &self.columns;
        let is_absent = |value: &Value<'_>| *value == Value::Absent;
        if fields.payload.is_some() || !is_absent(&fields.payload_base64) {
            return Ok(()); // once the rest is right, a later check refuses all of them
        }
        let is_given = |name: &str| {
            (name == columns.id() && !is_absent(&fields.id))
                || (name == columns.key() && !is_absent(&fields.key))
                || (name == columns.due() && !is_absent(&fields.due))
                || (name == DELAY_MS && !is_absent(&fields.delay_ms))
                || (name == EXPIRES && !is_absent(&fields.expires))
                || (name == TRACEPARENT && !is_absent(&fields.traceparent))
                || (name == columns.destination() && !is_absent(&fields.destination))
                || (name == columns.tenant() && !is_absent(&fields.tenant))
                || ([EVERY, CRON].contains(&name) && fields.recurs())
        };
        for (name, json) in &fields.others {
            if NOT_FIELDS.contains(&&**name) || (name == REPLACE && **json == *b"true") {
                let allowed = "put(..., replace=True), POST /messages?replace=true, or another name in the payload";
                return Err(BadRecord::new(format!("{name} is not a field of a record"), allowed));
            }
            if let Some(meant) = columns.meant_by(name, is_given) {
                let name = quoted(name, 60);
                let allowed = format!("{meant}; a field with another meaning needs a name less like it");
                return Err(BadRecord::new(format!("{name} is not a field: {meant} is probably meant"), allowed));
            }
        }
        Ok(())
    }

    /// When the message is due, and the delay if the record gives one.
    ///
    /// # Errors
    /// The record gives both or neither of the two, or the value is not a time.
    pub fn due(&self, fields: &Fields<'_>, now_ns: Option<i64>) -> Result<(i64, Option<f64>), BadRecord> {
        let name = self.columns.due();
        let either = |given: String| BadRecord::new(given, format!("either {name} or delay_ms"));
        match (&fields.due, &fields.delay_ms) {
            (Value::Absent, Value::Absent) => Err(either(format!("{name} is missing"))),
            (Value::Absent, delay) => {
                let delay_ms = delay_of(delay)?;
                let Some(now_ns) = now_ns else {
                    let reason = "delay_ms counts from a time that this record does not have";
                    let allowed = format!("with --speed: {name}; in an outbox: a written_ms of this century");
                    return Err(BadRecord::new(reason, allowed));
                };
                let now_ms = divided_up(now_ns, 1_000_000);
                let due_ms = due_in_range(now_ms.saturating_add(delay_ms.ceil() as i64), "now + delay_ms")?;
                Ok((due_ms, Some(delay_ms)))
            }
            (due, Value::Absent) => self.instant(due, name).map(|due_ms| (due_ms, None)),
            _ => Err(either(format!("both {name} and delay_ms are given"))),
        }
    }

    /// Milliseconds since 1970. A part of a millisecond is rounded up.
    fn instant(&self, value: &Value<'_>, name: &str) -> Result<i64, BadRecord> {
        match value {
            Value::Text(text) => due_from_text(text, name, self.zone.as_ref()),
            Value::Integer(value) => due_from_integer(*value, name),
            Value::Float(value) => due_from_float(*value, name),
            Value::Instant(ms) => due_in_range(*ms, name),
            _ => Err(BadRecord::new(format!("{name} is neither a time nor an integer"), ALLOWED)),
        }
    }

    /// The parts that most messages do not have.
    fn extras(&self, fields: &Fields<'_>) -> Result<Extras, BadRecord> {
        let expires_ms = match &fields.expires {
            Value::Absent => None,
            expires => Some(self.instant(expires, EXPIRES)?),
        };
        let traceparent = match &fields.traceparent {
            Value::Absent => None,
            given => Some(text(given, TRACEPARENT)?.into()),
        };
        let named = |value: &Value<'_>, name: &str| match value {
            Value::Absent => Ok(None),
            given => text(given, name).map(|text| Some(text.into())),
        };
        let destination = named(&fields.destination, self.columns.destination())?;
        let tenant = named(&fields.tenant, self.columns.tenant())?;
        Ok(Extras { expires_ms, traceparent, destination, tenant, ..Extras::default() })
    }

    fn no_key(&self) -> BadRecord {
        let name = self.columns.key();
        let allowed = format!("{name}, as named by --key: text, not empty; --key '{name}?' if a record may lack it");
        BadRecord::new(format!("{name} is missing"), allowed)
    }

    pub(super) fn payload<'a>(&self, fields: &'a Fields<'_>) -> Result<Cow<'a, Payload<'a>>, BadRecord> {
        let name = self.columns.payload();
        let payload = match (&fields.payload, &fields.payload_base64) {
            (Some(payload), Value::Absent) => Cow::Borrowed(payload),
            (None, Value::Absent) if self.columns.payload.is_some() => {
                let allowed = format!("{name}, as named by --payload, or payload_base64");
                return Err(BadRecord::new(format!("{name} is missing"), allowed));
            }
            (None, Value::Absent) => {
                return Ok(Cow::Owned(Payload { bytes: object_of(fields).into(), is_json: true }));
            }
            (None, base64) => Cow::Owned(Payload { bytes: from_base64(base64)?.into(), is_json: false }),
            (Some(_), _) => {
                let reason = format!("both {name} and {PAYLOAD_BASE64} are given");
                return Err(BadRecord::new(reason, format!("either {name} or {PAYLOAD_BASE64}")));
            }
        };
        if fields.others.is_empty() {
            return Ok(payload);
        }
        let names = fields.others.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(", ");
        let reason = format!("fields beside the payload: {}", cut(&names, 200));
        Err(BadRecord::new(reason, format!("only {}, {UNTIL_EVENT}", self.columns.known().join(", "))))
    }
}

/// The fields without those that are null. The readers leave out most of them; a payload, and a field that no rule
/// knows, may still be the JSON `null`.
fn without_nulls<'f, 'a>(fields: &'f Fields<'a>) -> Cow<'f, Fields<'a>> {
    let has_null_payload = fields.payload.as_ref().is_some_and(|it| it.is_json && *it.bytes == *b"null");
    if !has_null_payload && fields.others.iter().all(|(_, json)| **json != *b"null") {
        return Cow::Borrowed(fields);
    }
    let mut fields = fields.clone();
    fields.payload.take_if(|_| has_null_payload);
    fields.others.retain(|(_, json)| **json != *b"null");
    Cow::Owned(fields)
}

fn text<'a>(value: &'a Value<'_>, name: &str) -> Result<&'a str, BadRecord> {
    let state = match value {
        Value::Text(text) if text.len() > MAX_NAME => return Err(too_long(name, text.len())),
        Value::Text(text) if !text.is_empty() => return Ok(text),
        Value::Text(_) => "empty",
        Value::Absent => "missing",
        Value::Integer(number) => {
            let allowed = format!("{name}: text, as \"{number}\"; of a table, convert the column to text");
            return Err(BadRecord::new(format!("{name} is not text"), allowed));
        }
        _ => "not text",
    };
    Err(BadRecord::new(format!("{name} is {state}"), format!("{name}: text, not empty")))
}

fn cancel(fields: &Fields<'_>, id: &str, key: Option<&str>) -> Result<Request, BadRecord> {
    if !is_plain(fields) || [&fields.due, &fields.delay_ms].into_iter().any(|value| *value != Value::Absent) {
        let allowed = "op: \"cancel\" with id, key and nothing else";
        return Err(BadRecord::new("a cancel has more than id and key", allowed));
    }
    Ok(Request::Cancel(Cancel { id: id.into(), key: key.map(Into::into), keep_days: 0 }))
}

/// Whether the record has only a name, and perhaps a time.
fn is_plain(fields: &Fields<'_>) -> bool {
    let Fields { payload_base64, expires, traceparent, every, cron, destination, tenant, .. } = fields;
    let others = [payload_base64, expires, traceparent, every, cron, destination, tenant];
    fields.others.is_empty() && fields.payload.is_none() && others.into_iter().all(|value| *value == Value::Absent)
}

fn delay_of(value: &Value<'_>) -> Result<f64, BadRecord> {
    delay_in_range(match value {
        Value::Integer(value) => *value as f64,
        Value::Float(value) => *value,
        _ => f64::NAN,
    })
}

fn from_base64(value: &Value<'_>) -> Result<Vec<u8>, BadRecord> {
    match value {
        Value::Text(text) if text.is_ascii() => BASE64
            .decode(&**text)
            .map_err(|error| BadRecord::new(format!("payload_base64 can't be decoded: {error}"), IN_BASE64)),
        _ => Err(BadRecord::new("payload_base64 is not base64", IN_BASE64)),
    }
}

/// The other fields as an object.
fn object_of(fields: &Fields<'_>) -> Vec<u8> {
    let size = fields.others.iter().map(|(name, raw)| name.len() + raw.len() + 4).sum::<usize>();
    let mut out = Vec::with_capacity(size + 2);
    out.push(b'{');
    for (at, (name, raw)) in fields.others.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_text(&mut out, name);
        out.push(b':');
        out.extend_from_slice(raw);
    }
    out.push(b'}');
    out
}
