//! What a message is, and the hashes by which the store knows it (rules D1, D4, D5).
//!
//! | hash | of | used for |
//! |---|---|---|
//! | [`Digest`], 128 bits | key and id | the name: is it known? Two names may share its first 64 bits, so they are compared too |
//! | [`Content`], 120 or 128 bits | due time or delay, and payload | is a second message of that name a duplicate? |
//! | lane, 64 bits | key | order: the messages of one lane go out one after the other |
//!
//! They are computed once, by the thread that reads the message: [`Incoming::of`].

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::delivery::clock::{SystemWallTime, WallTime as _};
use crate::delivery::error::BadRecord;
use crate::delivery::hashes;
use crate::delivery::json;
use crate::delivery::origin::Origin;
use crate::delivery::shown::with_commas;
use crate::delivery::times::due_in_range;

/// The most bytes of an id, and of a key (D12).
pub(crate) const MAX_NAME: usize = 1 << 20;

/// The most bytes of one payload, unless set otherwise (D12).
pub(crate) const MAX_PAYLOAD: usize = 1 << 20;

const NO_KEY: u32 = u32::MAX;

/// Key, id and payload of a message, in one allocation that its copies share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    bytes: Arc<[u8]>,
    key_len: u32,
    id_len: u32,
    is_json: bool,
}

impl Body {
    /// Copies the parts. `is_json`: the payload is JSON on one line, else any bytes.
    #[must_use]
    pub(crate) fn new(key: Option<&str>, id: &str, payload: &[u8], is_json: bool) -> Self {
        let key_bytes = key.unwrap_or("").as_bytes();
        let mut bytes = Vec::with_capacity(key_bytes.len() + id.len() + payload.len());
        bytes.extend_from_slice(key_bytes);
        bytes.extend_from_slice(id.as_bytes());
        bytes.extend_from_slice(payload);
        let key_len = if key.is_some() { key_bytes.len() as u32 } else { NO_KEY };
        Self { bytes: bytes.into(), key_len, id_len: id.len() as u32, is_json }
    }

    fn id_start(&self) -> usize {
        if self.key_len == NO_KEY { 0 } else { self.key_len as usize }
    }

    fn id_end(&self) -> usize {
        self.id_start() + self.id_len as usize
    }

    /// The key; messages of one key are delivered in order.
    #[must_use]
    pub(crate) fn key(&self) -> Option<&str> {
        (self.key_len != NO_KEY).then(|| text(&self.bytes[..self.id_start()]))
    }

    /// The id; `(key, id)` is the name of the message.
    #[must_use]
    pub(crate) fn id(&self) -> &str {
        text(&self.bytes[self.id_start()..self.id_end()])
    }

    /// The payload's bytes.
    #[must_use]
    pub(crate) fn payload(&self) -> &[u8] {
        &self.bytes[self.id_end()..]
    }

    /// Whether the payload is JSON.
    #[must_use]
    pub(crate) fn is_json(&self) -> bool {
        self.is_json
    }

    /// Bytes of all three parts.
    #[must_use]
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the parts were text")
}

/// A message to deliver, and when it is due.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use tickwheel::delivery::Message;
///
/// let due = UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
/// let message = Message::at("tea", due, r#"{"text": "ready"}"#).with_key("kitchen").json();
/// assert_eq!((message.key(), message.id(), message.due_ms()), (Some("kitchen"), "tea", 1_700_000_000_250));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Key, id and payload.
    pub(crate) body: Body,
    /// In milliseconds since 1970.
    pub(crate) due_ms: i64,
    /// The delay that the record gave, if it gave one: two records with one delay have the same content (D5), though
    /// their due times differ.
    pub(crate) delay_ms: Option<f64>,
}

impl Message {
    /// A message that is due at this time, rounded up to the millisecond. Its id and its key are its name.
    ///
    /// ```
    /// # use std::time::{Duration, UNIX_EPOCH};
    /// # use tickwheel::delivery::Message;
    /// let due = UNIX_EPOCH + Duration::from_micros(1_700_000_000_000_001);
    /// assert_eq!(Message::at("tea", due, "ready").due_ms(), 1_700_000_000_001);
    /// ```
    #[must_use]
    pub fn at(id: &str, due: SystemTime, payload: impl AsRef<[u8]>) -> Self {
        let due_ms = match due.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
        };
        Self { body: Body::new(None, id, payload.as_ref(), false), due_ms, delay_ms: None }
    }

    /// A message that is due so long after this call, rounded up to the millisecond. Two with the same delay and payload have the same
    /// content, though their due times differ.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel::delivery::Message;
    /// let message = Message::after("tea", Duration::from_secs(180), "ready");
    /// assert_eq!(message.payload(), b"ready");
    /// ```
    #[must_use]
    pub fn after(id: &str, delay: Duration, payload: impl AsRef<[u8]>) -> Self {
        let now_us = SystemWallTime.now_us();
        let now_ms = now_us.div_euclid(1_000) + i64::from(now_us.rem_euclid(1_000) > 0);
        let delay_ms = delay.as_secs_f64() * 1_000.0;
        let due_ms = now_ms.saturating_add(i64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX));
        Self { body: Body::new(None, id, payload.as_ref(), false), due_ms, delay_ms: Some(delay_ms) }
    }

    /// With a key. Messages of one key are delivered in order of their due times, one after the other.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel::delivery::Message;
    /// let message = Message::after("tea", Duration::from_secs(180), "ready").with_key("kitchen");
    /// assert_eq!(message.key(), Some("kitchen"));
    /// ```
    #[must_use]
    pub fn with_key(self, key: &str) -> Self {
        let body = Body::new(Some(key), self.id(), self.payload(), self.is_json());
        Self { body, ..self }
    }

    /// With a payload that is JSON: it is written as it is, and not as base64. Checked when the message is submitted.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel::delivery::Message;
    /// let message = Message::after("tea", Duration::from_secs(180), "[1, 2]").json();
    /// assert!(message.is_json());
    /// ```
    #[must_use]
    pub fn json(mut self) -> Self {
        self.body.is_json = true;
        self
    }

    /// The id.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel::delivery::Message;
    /// assert_eq!(Message::after("tea", Duration::ZERO, "ready").id(), "tea");
    /// ```
    #[must_use]
    pub fn id(&self) -> &str {
        self.body.id()
    }

    /// The key, if it has one.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel::delivery::Message;
    /// assert_eq!(Message::after("tea", Duration::ZERO, "ready").key(), None);
    /// ```
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.body.key()
    }

    /// The payload.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel::delivery::Message;
    /// assert_eq!(Message::after("tea", Duration::ZERO, [1, 2]).payload(), [1, 2]);
    /// ```
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.body.payload()
    }

    /// Whether the payload is JSON.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel::delivery::Message;
    /// assert!(!Message::after("tea", Duration::ZERO, "[1, 2]").is_json());
    /// ```
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.body.is_json()
    }

    /// When it is due, in milliseconds since 1970.
    ///
    /// ```
    /// # use tickwheel::delivery::Message;
    /// # use std::time::{Duration, UNIX_EPOCH};
    /// assert_eq!(Message::at("tea", UNIX_EPOCH + Duration::from_secs(5), "ready").due_ms(), 5_000);
    /// ```
    #[must_use]
    pub fn due_ms(&self) -> i64 {
        self.due_ms
    }

    fn parts(&self) -> hashes::Parts<'_> {
        let Self { body, due_ms, delay_ms } = self;
        let (key, id, payload) = (body.key(), body.id(), body.payload());
        hashes::Parts { key, id, due_ms: *due_ms, delay_ms: *delay_ms, payload, is_json: body.is_json() }
    }

    /// Bytes that it takes in memory, about: its parts, and 200 for its entries in the tables of the engine (D8).
    #[must_use]
    pub(crate) fn size_in_memory(&self) -> usize {
        size_in_memory(self.body.size())
    }
}

/// As [`Message::size_in_memory`], of a message whose parts have so many bytes.
pub(crate) fn size_in_memory(body_bytes: usize) -> usize {
    200 + body_bytes
}

/// A request not to deliver a message (D7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cancel {
    /// The id of the message.
    pub id: String,
    /// Its key.
    pub key: Option<String>,
    /// How long the request is remembered at least, if the message has not come; otherwise as long as ids are.
    pub keep_days: u32,
}

/// The 128-bit digest of a name: what sinks know a message by (D5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Digest(pub [u8; 16]);

impl Digest {
    /// Of `(key, id)`.
    #[must_use]
    pub(crate) fn of(key: Option<&str>, id: &str) -> Self {
        Self(hashes::name_of(key, id))
    }

    /// Its first 64 bits, by which the store looks names up. Two names may have the same number.
    #[must_use]
    pub(crate) fn number(self) -> i64 {
        let (first, _) = self.0.split_first_chunk().expect("16 bytes");
        i64::from_le_bytes(*first)
    }
}

/// A digest of what a message says: when it is due, or its delay as given, and its payload.
///
/// It has 15 bytes for JSON and 16 for other bytes, so JSON and bytes are never the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) bytes: [u8; 16],
    pub(crate) len: u8,
}

impl Content {
    fn from_hash((bytes, len): hashes::ContentHash) -> Self {
        Self { bytes, len }
    }

    /// Of a message.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn of(message: &Message) -> Self {
        Self::from_hash(hashes::content_of(message.parts()))
    }

    /// As the store keeps it.
    #[must_use]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

/// The number of a key's lane; none without a key: such a message waits for no other. Two keys may share a lane.
#[must_use]
pub(crate) fn lane_of(key: Option<&str>) -> Option<i64> {
    key.map(hashes::lane_of)
}

/// A message to accept, with its hashes.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    /// The message.
    pub message: Message,
    /// The digest of its name.
    pub digest: Digest,
    /// The digest of its content.
    pub content: Content,
    /// Its lane, if it has a key.
    pub lane: Option<i64>,
    /// Where it was read, for the dead letter if its name is known with other content. None if a program made it.
    pub origin: Option<Origin>,
}

impl Incoming {
    /// Computes the hashes: about 0.3 µs for a small message.
    #[must_use]
    pub(crate) fn of(message: Message) -> Self {
        Self::from_origin(message, None)
    }

    /// The same for a message that was read.
    #[must_use]
    pub(crate) fn from_origin(message: Message, origin: Option<Origin>) -> Self {
        let hashes::All { name, content, lane } = hashes::all_of(message.parts());
        let (digest, content) = (Digest(name), Content::from_hash(content));
        Self { message, digest, content, lane, origin }
    }
}

/// Checks the name of a message.
///
/// # Errors
/// No message can have this name: a part is empty.
pub(crate) fn check_name(key: Option<&str>, id: &str) -> Result<(), BadRecord> {
    let empty = |part: &str| Err(BadRecord::new(format!("{part} is empty"), format!("{part}: text, not empty")));
    let long = |part: &str, size: usize| {
        let reason = format!("{part} has {} bytes", with_commas(size));
        Err(BadRecord::new(reason, format!("{part}: at most {} bytes", with_commas(MAX_NAME))))
    };
    match key {
        _ if id.is_empty() => empty("id"),
        Some("") => empty("key"),
        _ if id.len() > MAX_NAME => long("id", id.len()),
        Some(key) if key.len() > MAX_NAME => long("key", key.len()),
        _ => Ok(()),
    }
}

/// Checks a message made by a program, by the rules for records. JSON is put on one line.
///
/// # Errors
/// A part is empty, the due time is out of range, or the payload is too large or not the JSON that it claims to be.
pub(crate) fn checked(mut message: Message, max_payload: usize) -> Result<Message, BadRecord> {
    check_name(message.body.key(), message.body.id())?;
    due_in_range(message.due_ms, "due_ms")?;
    check_size(message.body.payload().len(), max_payload)?;
    if message.body.is_json() {
        let one_line = json::on_one_line(message.body.payload()).map_err(|why| not_json(&why))?;
        if let Some(one_line) = one_line {
            message.body = Body::new(message.body.key(), message.body.id(), &one_line, true);
        }
    }
    Ok(message)
}

/// The payload claims to be JSON, and is not.
pub(crate) fn not_json(why: &json::Refused) -> BadRecord {
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
