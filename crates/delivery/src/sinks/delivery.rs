//! A delivery that goes to a sink, and what became of it (rules D5, D6).

use crate::message::incoming::Digest;
use crate::message::{Body, Message};

/// One attempt to deliver a message.
///
/// ```
/// use tickwheel_delivery::{Delivery, Verdict};
///
/// fn print(delivery: &Delivery) -> Verdict {
///     println!("{}, attempt {}, {} us late", delivery.id(), delivery.attempt, delivery.lateness_us);
///     Verdict::Delivered
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Delivery {
    /// The number of the message in its store.
    pub seq: i64,
    #[doc(hidden)]
    pub body: Body,
    /// When it is due, in milliseconds since 1970.
    pub due_ms: i64,
    /// When it is sent.
    pub delivered_at_ms: i64,
    /// How late that is, in microseconds. Never negative.
    pub lateness_us: i64,
    /// From 1.
    pub attempt: u32,
    /// Whether it may have arrived before: an earlier send had no answer, or the process that sent it ended before it knew.
    pub redelivered: bool,
}

impl Delivery {
    #[doc(hidden)]
    #[must_use]
    pub fn from_parts(
        message: Message,
        seq: i64,
        delivered_at_ms: i64,
        lateness_us: i64,
        attempt: u32,
        redelivered: bool,
    ) -> Self {
        let Message { body, due_ms, .. } = message;
        Self { seq, body, due_ms, delivered_at_ms, lateness_us, attempt, redelivered }
    }

    /// The id of the message. Its name is `(key, id)`.
    ///
    /// ```
    /// # use tickwheel_delivery::{Destination, Verdict};
    /// let to = Destination::function(|delivery| {
    ///     println!("{}", delivery.id());
    ///     Verdict::Delivered
    /// });
    /// ```
    #[must_use]
    pub fn id(&self) -> &str {
        self.body.id()
    }

    /// The key of the message, if it has one. Messages of one key are delivered in order.
    ///
    /// ```
    /// # use tickwheel_delivery::{Destination, Verdict};
    /// let to = Destination::function(|delivery| {
    ///     println!("{}", delivery.key().unwrap_or("no key"));
    ///     Verdict::Delivered
    /// });
    /// ```
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.body.key()
    }

    /// The payload.
    ///
    /// ```
    /// # use tickwheel_delivery::{Destination, Verdict};
    /// let to = Destination::function(|delivery| match std::str::from_utf8(delivery.payload()) {
    ///     Ok(text) if !text.is_empty() => Verdict::Delivered,
    ///     _ => Verdict::Refused("no text".to_owned()),
    /// });
    /// ```
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.body.payload()
    }

    /// Whether the payload is JSON, on one line.
    ///
    /// ```
    /// # use tickwheel_delivery::{Destination, Verdict};
    /// let to = Destination::function(|delivery| {
    ///     assert!(delivery.is_json());
    ///     Verdict::Delivered
    /// });
    /// ```
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.body.is_json()
    }

    /// The trace and the span in which the message was made, as W3C Trace Context writes them, if it came with them.
    ///
    /// ```
    /// # use tickwheel_delivery::{Destination, Verdict};
    /// let to = Destination::function(|delivery| {
    ///     println!("{}", delivery.traceparent().unwrap_or("not traced"));
    ///     Verdict::Delivered
    /// });
    /// ```
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.body.traceparent()
    }

    /// 128 bits of `BLAKE2b` of the name: by these a destination recognizes a message that it has, whatever store it comes from.
    /// One whose name is used again, after an outcome, has others.
    ///
    /// ```
    /// # use tickwheel_delivery::{Destination, Verdict};
    /// let to = Destination::function(|delivery| {
    ///     println!("{:032x}", u128::from_be_bytes(delivery.digest()));
    ///     Verdict::Delivered
    /// });
    /// ```
    #[must_use]
    pub fn digest(&self) -> [u8; 16] {
        Digest::of_body(&self.body).0
    }
}

/// What became of one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has arrived.
    Delivered,
    /// The destination does not take this message: it is tried again, a bounded number of times.
    Refused(String),
    /// There was no answer that is about this message: a time-out, 408, 425, 429, 5xx, an operational error.
    Unanswered {
        /// What there was instead.
        reason: String,
        /// When the destination wants to be asked again.
        retry_after_ms: Option<u64>,
    },
    /// Nothing can be told to the destination.
    Unreachable {
        /// Why.
        reason: String,
        /// When the destination wants to be asked again.
        retry_after_ms: Option<u64>,
    },
    /// It was not sent, because one before it failed. A send of which none was tried shows that the destination is down.
    NotTried,
}

/// What became of the deliveries of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdicts {
    /// All have arrived.
    Delivered,
    /// In the order of the deliveries; those left out were not tried.
    Each(Vec<Verdict>),
}
