//! The key, id and payload of a message in one piece, and the parts that few messages have.

use std::sync::Arc;

use super::extras::Extras;
use crate::message::recurrence::Recurrence;

const NO_KEY: u32 = u32::MAX;

/// The key, id and payload of a message, in one allocation. Copies of the message share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    bytes: Arc<[u8]>,
    key_len: u32,
    id_len: u32,
    pub(super) is_json: bool,
    /// Copies of the message share these too.
    extras: Option<Arc<Extras>>,
}

impl Body {
    /// Copies the parts. If `is_json` is true, the payload is JSON on one line; otherwise it may be any bytes.
    #[must_use]
    pub fn new(key: Option<&str>, id: &str, payload: &[u8], is_json: bool) -> Self {
        let key_bytes = key.unwrap_or("").as_bytes();
        let mut bytes = Vec::with_capacity(key_bytes.len() + id.len() + payload.len());
        bytes.extend_from_slice(key_bytes);
        bytes.extend_from_slice(id.as_bytes());
        bytes.extend_from_slice(payload);
        let key_len = if key.is_some() { key_bytes.len() as u32 } else { NO_KEY };
        Self { bytes: bytes.into(), key_len, id_len: id.len() as u32, is_json, extras: None }
    }

    /// Replaces the extras.
    #[must_use]
    pub fn with_extras(self, extras: Extras) -> Self {
        let extras = (extras != Extras::default()).then(|| Arc::new(extras));
        Self { extras, ..self }
    }

    /// Marks a message whose name an earlier message had. `number` is the number of the new message.
    #[must_use]
    pub(crate) fn again(self, number: i64) -> Self {
        let extras = Extras { again: Some(number), ..self.extras().cloned().unwrap_or_default() };
        self.with_extras(extras)
    }

    /// Makes the message recurring.
    #[must_use]
    pub(crate) fn recurring(self, recurrence: Recurrence) -> Self {
        let extras = Extras { recurrence: Some(Box::new(recurrence)), ..self.extras().cloned().unwrap_or_default() };
        self.with_extras(extras)
    }

    /// The parts that few messages have.
    #[must_use]
    pub(crate) fn extras(&self) -> Option<&Extras> {
        self.extras.as_deref()
    }

    /// When the message expires, in milliseconds since 1970. After this time it is not delivered.
    #[must_use]
    pub(crate) fn expires_ms(&self) -> Option<i64> {
        self.extras()?.expires_ms
    }

    /// The trace and span in which the message was made.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.extras()?.traceparent.as_deref()
    }

    /// The rule of a recurring message: when its occurrences are due.
    #[must_use]
    pub fn recurrence(&self) -> Option<&Recurrence> {
        self.extras()?.recurrence.as_deref()
    }

    fn id_start(&self) -> usize {
        if self.key_len == NO_KEY { 0 } else { self.key_len as usize }
    }

    fn id_end(&self) -> usize {
        self.id_start() + self.id_len as usize
    }

    /// The key. Messages with the same key are delivered in order.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        (self.key_len != NO_KEY).then(|| text(&self.bytes[..self.id_start()]))
    }

    /// The id. `(key, id)` is the name of the message.
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

    /// The size of all parts in bytes.
    #[must_use]
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.extras().map_or(0, Extras::size)
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the parts were text")
}
