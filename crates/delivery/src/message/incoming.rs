//! A message to accept, with the hashes by which the store knows it (rules D4, D5).
//!
//! | hash | made from | used for |
//! |---|---|---|
//! | [`Digest`], 128 bits | key and id | whether the name is known. Two names may share their first 64 bits, so the store compares the names too |
//! | [`Content`](hashes::Content), 120 or 128 bits | due time or delay, expiry, rule, payload | whether a second message with the same name is a duplicate |
//! | lane, 64 bits | key | the order: messages in a lane go out one after the other |
//!
//! [`Incoming::of`] computes the hashes once, on the thread that reads the message.

use std::sync::Arc;

use bytes::Bytes;

use crate::message::hashes;
use crate::message::{Body, Message};

/// The 128-bit digest of a name. Sinks know a message by it (D5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// The digest of `(key, id)`.
    pub(crate) fn of(key: Option<&str>, id: &str) -> Self {
        Self(hashes::name_of(key, id))
    }

    /// The digest by which a destination knows a message. It is made from the name. If an earlier message had the
    /// same name, the number is added, so a destination does not take one message for the other.
    #[must_use]
    pub fn of_body(body: &Body) -> Self {
        match body.extras().and_then(|extras| extras.again) {
            None => Self::of(body.key(), body.id()),
            Some(again) => Self(hashes::name_again_of(body.key(), body.id(), again)),
        }
    }

    /// The first 64 bits, by which the store looks names up. Two names may have the same number.
    pub(crate) fn number(self) -> i64 {
        let (first, _) = self.0.split_first_chunk().expect("16 bytes");
        i64::from_le_bytes(*first)
    }
}

/// The number of a key's lane. Without a key there is none, and the message waits for no other message. Two keys may
/// share a lane.
pub(crate) fn lane_of(key: Option<&str>) -> Option<i64> {
    key.map(hashes::lane_of)
}

/// The lane at a destination of a key with this number; and, of a lane there, the number of the key (D23).
#[must_use]
pub(crate) fn lane_in(share: i64, number: i64) -> i64 {
    if share == 0 {
        return number;
    }
    // The mixing of SplitMix64: neighbouring numbers of destinations have nothing in common.
    let mut mixed = share.cast_unsigned().wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (mixed ^ (mixed >> 31)).cast_signed()
}

/// The place in the input where a record was read. A dead letter shows it (rule D2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The name of the file or connection.
    pub source: Arc<str>,
    /// The line or row of the record, from 1.
    pub line: u64,
    /// The original record, as a part of the block of bytes that was read: so it costs no copy. `None` if only the message
    /// came here; then the message is written out as a record.
    pub record: Option<Bytes>,
}

impl Origin {
    /// The original record, or nothing.
    pub(crate) fn record(&self) -> &[u8] {
        self.record.as_deref().unwrap_or_default()
    }
}

/// A message to accept, with its hashes.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The message.
    pub message: Message,
    /// The digest of its name.
    pub digest: Digest,
    /// The digest of its content.
    pub(crate) content: hashes::Content,
    /// Its lane, if it has a key.
    pub lane: Option<i64>,
    /// Where the message was read. If its name is known with other content, the dead letter shows this. `None` if a
    /// program made the message.
    pub origin: Option<Origin>,
    /// Whether another deliverer may have delivered the message before it was lost with its disk (S4).
    pub redelivered: bool,
    /// The present due time of a message that was rescheduled before it came here.
    pub moved_to_ms: Option<i64>,
}

impl Incoming {
    /// Computes the hashes: about 0.3 µs for a small message.
    #[must_use]
    pub fn of(message: Message) -> Self {
        Self::from_origin(message, None)
    }

    /// Like [`Incoming::of`], for a message read from an input.
    pub(crate) fn from_origin(message: Message, origin: Option<Origin>) -> Self {
        let hashes::All { name, content, lane } = hashes::all_of(message.parts());
        Self { message, digest: Digest(name), content, lane, origin, redelivered: false, moved_to_ms: None }
    }
}
