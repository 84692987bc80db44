//! The three hashes of a message, by `BLAKE2b`: name, lane and content.
//!
//! The hashed bytes are part of the store's format, so they never change.
//!
//! | hash | length | bytes |
//! |---|---|---|
//! | name, without a key | 16 | `\0`, then the id |
//! | name, with a key | 16 | the number of characters of the key, `:`, the key, the id |
//! | name, again | 16 | `\u{1}`, the number of the message, `:`, and the bytes of the name as above |
//! | lane | 8 | the key |
//! | content | 15 (JSON), 16 (bytes) | the parts below |
//!
//! The content is hashed in this order:
//!
//! - the due time in ms, or `+` and the delay
//! - if the message expires: `!` and the time in ms
//! - if the message recurs: `*` and the rule
//! - if it names a destination: `@` and the name
//! - if it names a tenant: `#` and the name
//! - if it may wait for an event: `?` and the names of events
//! - a space
//! - the payload
//!
//! The hashes of small messages are computed side by side, by the vector instructions of the processor.

use blake2b_simd::Params;
use blake2b_simd::many::{HashManyJob, hash_many};
use smallvec::SmallVec;

use crate::message::recurrence::Recurrence;

/// The parts of a message that are hashed.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) key: Option<&'a str>,
    pub(crate) id: &'a str,
    pub(crate) due_ms: i64,
    pub(crate) delay_ms: Option<f64>,
    pub(crate) expires_ms: Option<i64>,
    pub(crate) recurrence: Option<&'a Recurrence>,
    pub(crate) destination: Option<&'a str>,
    pub(crate) tenant: Option<&'a str>,
    pub(crate) until: Option<&'a str>,
    pub(crate) payload: &'a [u8],
    pub(crate) is_json: bool,
}

/// A digest of a message's content: the due time or the given delay, the expiry, the rule, and the payload.
///
/// It has 15 bytes for JSON and 16 for other bytes, so JSON and bytes never count as the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    bytes: [u8; 16],
    len: u8,
}

impl Content {
    /// The digest that the store has kept. `None`: it is none.
    pub(crate) fn from_bytes(kept: &[u8]) -> Option<Self> {
        let mut bytes = [0; 16];
        bytes.get_mut(..kept.len())?.copy_from_slice(kept);
        (kept.len() >= 15).then_some(Self { bytes, len: kept.len() as u8 })
    }

    /// The bytes that the store keeps.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

/// The hashes of one message.
pub(crate) struct All {
    pub(crate) name: [u8; 16],
    pub(crate) content: Content,
    pub(crate) lane: Option<i64>,
}

/// Room for the text of a name without an allocation.
type NameText = SmallVec<[u8; 128]>;

fn params(length: usize) -> Params {
    let mut params = Params::new();
    params.hash_length(length);
    params
}

fn name_text(key: Option<&str>, id: &str) -> NameText {
    let mut text = NameText::new();
    match key {
        None => text.push(0),
        Some(key) => {
            text.extend_from_slice(itoa::Buffer::new().format(key.chars().count()).as_bytes());
            text.push(b':');
            text.extend_from_slice(key.as_bytes());
        }
    }
    text.extend_from_slice(id.as_bytes());
    text
}

/// The hash of `(key, id)`.
pub(crate) fn name_of(key: Option<&str>, id: &str) -> [u8; 16] {
    sixteen(params(16).hash(&name_text(key, id)).as_bytes())
}

/// The hash of `(key, id)` and the number of the message. Used if an earlier message had the same name.
pub(crate) fn name_again_of(key: Option<&str>, id: &str, number: i64) -> [u8; 16] {
    let mut state = params(16).to_state();
    state.update(b"\x01").update(itoa::Buffer::new().format(number).as_bytes()).update(b":");
    sixteen(state.update(&name_text(key, id)).finalize().as_bytes())
}

/// The lane of a key.
pub(crate) fn lane_of(key: &str) -> i64 {
    first_64(params(8).hash(key.as_bytes()).as_bytes())
}

/// The hash of the content.
pub(crate) fn content_of(parts: Parts<'_>) -> Content {
    let (length, prefix) = content_prefix(parts);
    let mut state = params(length).to_state();
    let hash = state.update(&prefix).update(parts.payload).finalize();
    content(hash.as_bytes())
}

/// All three hashes at once. A large payload is hashed alone, because the other hashes are too short to be computed
/// beside it.
pub(crate) fn all_of(parts: Parts<'_>) -> All {
    const SMALL: usize = 512;
    let Parts { key, id, payload, .. } = parts;
    let name = name_text(key, id);
    let (length, mut text) = content_prefix(parts);
    if payload.len() > SMALL {
        return All { name: name_of(key, id), content: content_of(parts), lane: key.map(lane_of) };
    }
    text.extend_from_slice(payload);
    let (of_name, of_lane, of_content) = (params(16), params(8), params(length));
    let mut jobs = [
        HashManyJob::new(&of_name, &name),
        HashManyJob::new(&of_content, &text),
        HashManyJob::new(&of_lane, key.unwrap_or("").as_bytes()),
        HashManyJob::new(&of_lane, b""), // four at once take less time than three
    ];
    let used = if key.is_some() { 4 } else { 2 };
    hash_many(jobs[..used].iter_mut());
    All {
        name: sixteen(jobs[0].to_hash().as_bytes()),
        content: content(jobs[1].to_hash().as_bytes()),
        lane: key.map(|_| first_64(jobs[2].to_hash().as_bytes())),
    }
}

/// The length of the digest, and the bytes before the payload.
fn content_prefix(parts: Parts<'_>) -> (usize, SmallVec<[u8; 640]>) {
    let mut text = SmallVec::new();
    match parts.delay_ms {
        None => text.extend_from_slice(itoa::Buffer::new().format(parts.due_ms).as_bytes()),
        Some(delay_ms) => {
            text.push(b'+');
            text.extend_from_slice(float(delay_ms).as_bytes());
        }
    }
    if let Some(expires_ms) = parts.expires_ms {
        text.push(b'!');
        text.extend_from_slice(itoa::Buffer::new().format(expires_ms).as_bytes());
    }
    if let Some(recurrence) = parts.recurrence {
        text.push(b'*');
        text.extend_from_slice(recurrence.content().as_bytes());
    }
    if let Some(destination) = parts.destination {
        text.push(b'@');
        text.extend_from_slice(destination.as_bytes());
    }
    if let Some(tenant) = parts.tenant {
        text.push(b'#');
        text.extend_from_slice(tenant.as_bytes());
    }
    if let Some(names) = parts.until {
        text.push(b'?');
        text.extend_from_slice(names.as_bytes());
    }
    text.push(b' ');
    (if parts.is_json { 15 } else { 16 }, text)
}

/// The shortest decimal that reads back as the same number, with a fraction or a two-digit exponent: `5.0`, `1e-05`.
fn float(value: f64) -> String {
    let text = format!("{value:?}");
    match text.split_once('e') {
        None => text,
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |positive| ('-', positive));
            format!("{digits}e{sign}{exponent:0>2}")
        }
    }
}

fn content(hash: &[u8]) -> Content {
    Content::from_bytes(hash).expect("it has its length")
}

fn sixteen(hash: &[u8]) -> [u8; 16] {
    hash.try_into().expect("16 bytes")
}

fn first_64(hash: &[u8]) -> i64 {
    i64::from_le_bytes(hash.try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests;
