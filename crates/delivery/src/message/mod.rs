//! The message, and the ways in which a program makes one (rule D1).

mod body;
pub(crate) mod columns;
pub(crate) mod events;
pub(crate) mod fields;
pub(crate) mod hashes;
pub(crate) mod incoming;
pub(crate) mod named;
pub(crate) mod parsed;
pub(crate) mod partition;
pub(crate) mod record;
pub(crate) mod recurrence;
mod recurring;
pub(crate) mod shares;
pub(crate) mod until;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::base::clock::{SystemWallTime, WallTime as _};
use crate::base::display::with_commas;
use crate::base::error::BadRecord;
use crate::base::json;
use crate::base::times::{delay_in_range, divided_up, due_in_range};

pub use body::{Body, Extras, check_traceparent, checked_destination, checked_tenant};

/// The most bytes of an id, and of a key (D12).
pub(crate) const MAX_NAME: usize = 1 << 20;

/// The most bytes of one payload, unless set otherwise (D12).
pub const MAX_PAYLOAD: usize = 1 << 20;

/// A message to deliver, and when it is due.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use tickwheel_delivery::Message;
///
/// let due = UNIX_EPOCH + Duration::from_micros(1_700_000_000_249_001);
/// let message = Message::at("tea", due, r#"{"text": "ready"}"#).with_key("kitchen").until_event(["boils"]).json();
/// assert_eq!((message.key(), message.id(), message.due_ms()), (Some("kitchen"), "tea", 1_700_000_000_250));
/// assert!(message.is_json());
///
/// let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let message = Message::after("tea", Duration::from_secs(180), [1, 2])
///     .expires_at(due + Duration::from_secs(60))
///     .with_traceparent(parent)
///     .to("waiter") // a named destination
///     .tenant("acme");
/// assert_eq!((message.payload(), message.expires_ms()), (&[1, 2][..], Some(1_700_000_060_250)));
/// assert_eq!(message.traceparent(), Some(parent));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Message {
    /// Key, id and payload.
    #[doc(hidden)]
    pub body: Body,
    /// The due time in milliseconds since 1970.
    #[doc(hidden)]
    pub due_ms: i64,
    /// The delay, if the record gave one. Two records with the same delay have the same content (D5), though their
    /// due times differ.
    #[doc(hidden)]
    pub delay_ms: Option<f64>,
}

impl Message {
    #[doc(hidden)]
    #[must_use]
    pub fn from_parts(body: Body, due_ms: i64, delay_ms: Option<f64>) -> Self {
        Self { body, due_ms, delay_ms }
    }

    /// A message due at this time, rounded up to the millisecond. The id and the key are its name.
    #[must_use]
    pub fn at(id: &str, due: SystemTime, payload: impl AsRef<[u8]>) -> Self {
        Self { body: Body::new(None, id, payload.as_ref(), false), due_ms: ms_of(due), delay_ms: None }
    }

    /// A message due `delay` after this call, rounded up to the millisecond. Two messages with the same delay and
    /// payload have the same content, though their due times differ.
    #[must_use]
    pub fn after(id: &str, delay: Duration, payload: impl AsRef<[u8]>) -> Self {
        let delay_ms = delay.as_secs_f64() * 1_000.0;
        let due_ms = now_ms().saturating_add(i64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX));
        Self { body: Body::new(None, id, payload.as_ref(), false), due_ms, delay_ms: Some(delay_ms) }
    }

    /// Sets the key. Messages with the same key are delivered in order of their due times, one after the other.
    #[must_use]
    pub fn with_key(self, key: &str) -> Self {
        let body = Body::new(Some(key), self.id(), self.payload(), self.is_json());
        Self { body: body.with_extras(self.extras()), ..self }
    }

    /// Sets the time when the message expires, rounded up to the millisecond. A message that is not sent by then
    /// becomes a dead letter.
    #[must_use]
    pub fn expires_at(self, expires: SystemTime) -> Self {
        Self { body: self.body.with(|extras| extras.expires_ms = Some(ms_of(expires))), ..self }
    }

    /// Sets the trace and the span in which the message was made, as W3C Trace Context writes them. The destination
    /// gets them with the message.
    #[must_use]
    pub fn with_traceparent(self, traceparent: &str) -> Self {
        Self { body: self.body.with(|extras| extras.traceparent = Some(traceparent.into())), ..self }
    }

    /// Names the destination of the message. It must be set before the message comes: see
    /// [`Deliverer::set_destination`](crate::Deliverer::set_destination).
    #[must_use]
    pub fn to(self, destination: &str) -> Self {
        Self { body: self.body.with(|extras| extras.destination = Some(destination.into())), ..self }
    }

    /// Names the tenant whose message this is. Where something is short, tenants take turns. A key's messages are in order
    /// only among those of one tenant at one destination.
    #[must_use]
    pub fn tenant(self, tenant: &str) -> Self {
        Self { body: self.body.with(|extras| extras.tenant = Some(tenant.into())), ..self }
    }

    /// Lets an event of one of these names make the message due before its time: see
    /// [`Deliverer::event`](crate::Deliverer::event). The message needs a key. A name has no spaces.
    #[must_use]
    pub fn until_event<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let until = until::Until::unchecked(names);
        Self { body: self.body.with(|extras| extras.until = Some(until.into())), ..self }
    }

    fn extras(&self) -> Extras {
        self.body.extras().cloned().unwrap_or_default()
    }

    /// Marks the payload as JSON. JSON is written unchanged, and not as base64. The payload is checked when the
    /// message is submitted.
    #[must_use]
    pub fn json(mut self) -> Self {
        self.body.is_json = true;
        self
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> &str {
        self.body.id()
    }

    /// The key, if the message has one.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.body.key()
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.body.payload()
    }

    /// Whether the payload is JSON.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.body.is_json()
    }

    /// When the message is due, in milliseconds since 1970.
    #[must_use]
    pub fn due_ms(&self) -> i64 {
        self.due_ms
    }

    /// When the message expires, in milliseconds since 1970. After this time it is not delivered.
    #[must_use]
    pub fn expires_ms(&self) -> Option<i64> {
        self.body.expires_ms()
    }

    /// The trace and the span in which the message was made.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.body.traceparent()
    }

    pub(crate) fn parts(&self) -> hashes::Parts<'_> {
        let Self { body, due_ms, delay_ms } = self;
        let (key, id, payload) = (body.key(), body.id(), body.payload());
        let (expires_ms, recurrence, is_json) = (body.expires_ms(), body.recurrence(), body.is_json());
        let (due_ms, delay_ms, destination, tenant) = (*due_ms, *delay_ms, body.destination(), body.tenant());
        let until = body.until().map(|until| &*until.names);
        hashes::Parts {
            key,
            id,
            due_ms,
            delay_ms,
            expires_ms,
            recurrence,
            destination,
            tenant,
            until,
            payload,
            is_json,
        }
    }

    /// The approximate size in memory, in bytes: the parts of the message, and 200 for its entries in the engine's
    /// tables (D8).
    pub(crate) fn size_in_memory(&self) -> usize {
        size_in_memory(self.body.size())
    }
}

/// Like [`Message::size_in_memory`], for a message whose parts have `body_bytes` bytes.
pub(crate) fn size_in_memory(body_bytes: usize) -> usize {
    200 + body_bytes
}

/// The size of a name in bytes. Each part may have 1 MiB.
pub(crate) fn name_size(key: Option<&str>, id: &str) -> usize {
    id.len() + key.map_or(0, str::len)
}

/// A request not to deliver a message (D7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// The id of the message.
    pub id: String,
    /// The key of the message.
    pub key: Option<String>,
    /// The least number of days for which the cancel is remembered, if its message has not come. 0: as long as ids.
    pub keep_days: u32,
}

/// A request to deliver a waiting message at another time (D16).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reschedule {
    /// The id of the message.
    pub id: String,
    /// Its key.
    pub key: Option<String>,
    /// The new due time.
    pub due_ms: i64,
}

/// The wall clock in milliseconds since 1970, rounded up.
fn now_ms() -> i64 {
    divided_up(SystemWallTime.now_us(), 1_000)
}

/// Milliseconds since 1970, rounded up.
pub(crate) fn ms_of(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    }
}

/// The error for a part of a name that is longer than [`MAX_NAME`].
fn too_long(part: &str, size: usize) -> BadRecord {
    let reason = format!("{part} has {} bytes", with_commas(size));
    BadRecord::new(reason, format!("{part}: at most {} bytes", with_commas(MAX_NAME)))
}

/// Checks the name of a message.
///
/// # Errors
/// A part of the name is empty or longer than 1 MiB.
pub fn check_name(key: Option<&str>, id: &str) -> Result<(), BadRecord> {
    let empty = |part: &str| Err(BadRecord::new(format!("{part} is empty"), format!("{part}: text, not empty")));
    let long = |part: &str, size: usize| Err(too_long(part, size));
    match key {
        _ if id.is_empty() => empty("id"),
        Some("") => empty("key"),
        _ if id.len() > MAX_NAME => long("id", id.len()),
        Some(key) if key.len() > MAX_NAME => long("key", key.len()),
        _ => Ok(()),
    }
}

/// Checks a message that a program made, by the rules for records. JSON is put on one line.
///
/// # Errors
/// - A part of the name is empty or too long.
/// - The due time, the delay or the rule is not allowed.
/// - The payload is too large, or it claims to be JSON and is not.
/// - The expiry or the `traceparent` is not allowed.
pub fn checked(mut message: Message, max_payload: usize) -> Result<Message, BadRecord> {
    check_name(message.body.key(), message.body.id())?;
    match message.body.recurrence() {
        None => _ = due_in_range(message.due_ms, "due_ms")?,
        Some(recurrence) => recurrence.check(message.id(), message.expires_ms().is_some())?,
    }
    message.delay_ms.map(delay_in_range).transpose()?;
    check_size(message.body.payload().len(), max_payload)?;
    check_extras(&message)?;
    if let Some(until) = message.body.until() {
        let until = until.checked(message.key(), message.body.recurrence().is_some())?;
        message.body = message.body.with(|extras| extras.until = Some(until.into()));
    }
    if message.body.is_json() {
        let one_line = json::on_one_line(message.body.payload()).map_err(|why| not_json(&why))?;
        if let Some(one_line) = one_line {
            let body = Body::new(message.body.key(), message.body.id(), &one_line, true);
            message.body = body.with_extras(message.extras());
        }
    }
    Ok(message)
}

/// Checks the parts that few messages have.
///
/// # Errors
/// The message expires at or before its due time, or its `traceparent` is not valid.
pub(crate) fn check_extras(message: &Message) -> Result<(), BadRecord> {
    if let Some(expires_ms) = message.expires_ms() {
        due_in_range(expires_ms, "expires")?;
        if expires_ms <= message.due_ms {
            let reason =
                format!("it expires {} ms before it is due", with_commas((message.due_ms - expires_ms) as usize));
            let reason = if expires_ms == message.due_ms { "it expires when it is due".to_owned() } else { reason };
            return Err(BadRecord::new(reason, "expires: a time after due"));
        }
    }
    message.body.destination().map_or(Ok(()), |name| checked_destination(name).map(drop))?;
    message.body.tenant().map_or(Ok(()), |name| checked_tenant(name).map(drop))?;
    message.traceparent().map_or(Ok(()), check_traceparent)
}

/// The error for a payload that claims to be JSON but is not.
#[must_use]
pub fn not_json(why: &json::Refused) -> BadRecord {
    let reason = format!("the payload is not JSON: {why}");
    BadRecord::new(reason, "JSON in UTF-8, or bytes that are not marked as JSON")
}

/// Checks the size of a payload.
pub(crate) fn check_size(size: usize, max_payload: usize) -> Result<(), BadRecord> {
    if size <= max_payload {
        return Ok(());
    }
    let reason = format!("the payload has {} bytes", with_commas(size));
    Err(BadRecord::new(reason, format!("at most {} bytes", with_commas(max_payload))))
}

#[cfg(test)]
mod tests;
