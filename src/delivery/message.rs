//! What a message is, and the hashes by which the store knows it (rules D1, D5).

#![forbid(unsafe_code)]

use blake2b_simd::Params;

/// The most bytes of one payload, unless set otherwise (D12).
pub const MAX_PAYLOAD: usize = 1 << 20;

const NO_KEY: u32 = u32::MAX;

/// Key, id and payload of a message, in one allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    bytes: Box<[u8]>,
    key_len: u32,
    id_len: u32,
    is_json: bool,
}

impl Body {
    /// Copies the parts. `is_json`: the payload is JSON on one line, else any bytes.
    #[must_use]
    pub fn new(key: Option<&str>, id: &str, payload: &[u8], is_json: bool) -> Self {
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
    pub fn key(&self) -> Option<&str> {
        (self.key_len != NO_KEY).then(|| text(&self.bytes[..self.id_start()]))
    }

    /// The id; `(key, id)` is the name of the message.
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

    /// Bytes of all three parts.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the parts were text")
}

/// A message to deliver at `due_ms`, milliseconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Key, id and payload.
    pub body: Body,
    /// When it is due.
    pub due_ms: i64,
    /// The delay that the record gave, if it gave one: two records with one delay have the same content (D5), though
    /// their due times differ.
    pub delay_ms: Option<f64>,
}

/// A request not to deliver a message (D7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// The id of the message.
    pub id: String,
    /// Its key.
    pub key: Option<String>,
    /// How long the request is remembered at least, if the message has not come; otherwise as long as ids are.
    pub keep_days: u32,
}

/// The 128-bit digest of a name: what sinks know a message by (D5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// Of `(key, id)`.
    #[must_use]
    pub fn of(key: Option<&str>, id: &str) -> Self {
        let mut params = Params::new();
        let mut state = params.hash_length(16).to_state();
        match key {
            None => {
                state.update(b"\0");
            }
            Some(key) => {
                state.update(itoa::Buffer::new().format(key.chars().count()).as_bytes());
                state.update(b":").update(key.as_bytes());
            }
        }
        let hash = state.update(id.as_bytes()).finalize();
        Self(hash.as_bytes().try_into().expect("16 bytes"))
    }

    /// Its first 64 bits, by which the store looks names up. Two names may have the same number.
    #[must_use]
    pub fn number(self) -> i64 {
        i64::from_le_bytes(self.0[..8].try_into().expect("8 bytes"))
    }
}

/// What a message says, as a digest: 15 bytes where the payload is JSON, 16 where it is other bytes, so that the two never
/// have the same content (D5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    pub(crate) bytes: [u8; 16],
    pub(crate) len: u8,
}

impl Content {
    /// The bytes to keep.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Of a message: with a delay as given, not with the due time computed from it.
    #[must_use]
    pub fn of(message: &Message) -> Self {
        let len = if message.body.is_json() { 15 } else { 16 };
        let mut params = Params::new();
        let mut state = params.hash_length(len).to_state();
        match message.delay_ms {
            Some(delay_ms) => state.update(format!("+{delay_ms:?} ").as_bytes()),
            None => state.update(itoa::Buffer::new().format(message.due_ms).as_bytes()).update(b" "),
        };
        let hash = state.update(message.body.payload()).finalize();
        let mut bytes = [0; 16];
        bytes[..len].copy_from_slice(hash.as_bytes());
        Self { bytes, len: len as u8 }
    }
}

/// The number of a key's lane; `None` without a key: such a message waits for no other (D4).
#[must_use]
pub fn lane_of(key: Option<&str>) -> Option<i64> {
    let hash = Params::new().hash_length(8).hash(key?.as_bytes());
    Some(i64::from_le_bytes(hash.as_bytes().try_into().expect("8 bytes")))
}

impl Message {
    /// Bytes that it takes in memory, near enough for the bounds of D8.
    #[must_use]
    pub fn size_in_memory(&self) -> usize {
        200 + self.body.size()
    }
}

/// Where a record came from.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The name of the input.
    pub source: std::sync::Arc<str>,
    /// The line of the record in it, from 1.
    pub line: u64,
    /// The record as it was read.
    pub record: std::sync::Arc<[u8]>,
}

/// A message on its way into the store, with what the store asks about it.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The message.
    pub message: Message,
    /// Of its name.
    pub digest: Digest,
    /// Of what it says.
    pub content: Content,
    /// The number of its key.
    pub lane: Option<i64>,
    /// Where it came from, if from an input.
    pub origin: Option<Origin>,
}

impl Incoming {
    /// Hashes the message; to be done by the thread that reads it.
    #[must_use]
    pub fn of(message: Message) -> Self {
        let digest = Digest::of(message.body.key(), message.body.id());
        let (content, lane) = (Content::of(&message), lane_of(message.body.key()));
        Self { message, digest, content, lane, origin: None }
    }
}
