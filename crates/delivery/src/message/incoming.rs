//! A message to accept, with the hashes by which the store knows it (rules D4, D5).
//!
//! | hash | of | used for |
//! |---|---|---|
//! | [`Digest`], 128 bits | key and id | the name: is it known? Two names may share its first 64 bits, so they are compared too |
//! | [`Content`], 120 or 128 bits | due time or delay, and payload | is a second message of that name a duplicate? |
//! | lane, 64 bits | key | order: the messages of one lane go out one after the other |
//!
//! They are computed once, by the thread that reads the message: [`Incoming::of`].

use crate::message::hashes;
use crate::message::origin::Origin;
use crate::message::{Body, Message};

/// The 128-bit digest of a name: what sinks know a message by (D5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// Of `(key, id)`.
    #[must_use]
    pub(crate) fn of(key: Option<&str>, id: &str) -> Self {
        Self(hashes::name_of(key, id))
    }

    /// What a destination knows a message by: its name; and its number too if its name had its outcome before it came, so that it is
    /// not taken for the one before.
    #[must_use]
    pub fn of_body(body: &Body) -> Self {
        match body.extras().and_then(|extras| extras.again) {
            None => Self::of(body.key(), body.id()),
            Some(again) => Self(hashes::name_again_of(body.key(), body.id(), again)),
        }
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
pub struct Incoming {
    /// The message.
    pub message: Message,
    /// The digest of its name.
    pub digest: Digest,
    /// The digest of its content.
    pub(crate) content: Content,
    /// Its lane, if it has a key.
    pub lane: Option<i64>,
    /// Where it was read, for the dead letter if its name is known with other content. None if a program made it.
    pub origin: Option<Origin>,
    /// Whether a deliverer that was lost with its disk may have delivered it (S4).
    pub redelivered: bool,
    /// Where it was rescheduled before it came here: when it is due.
    pub moved_to_ms: Option<i64>,
}

impl Incoming {
    /// Computes the hashes: about 0.3 µs for a small message.
    #[must_use]
    pub fn of(message: Message) -> Self {
        Self::from_origin(message, None)
    }

    /// The same for a message that was read.
    #[must_use]
    pub(crate) fn from_origin(message: Message, origin: Option<Origin>) -> Self {
        let hashes::All { name, content, lane } = hashes::all_of(message.parts());
        let (digest, content) = (Digest(name), Content::from_hash(content));
        Self { message, digest, content, lane, origin, redelivered: false, moved_to_ms: None }
    }
}
