//! A delivery to a sink, and its verdict (rules D5, D6).

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
    /// How late it is sent, in microseconds. Never negative.
    pub lateness_us: i64,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Whether it may have arrived before. An earlier send had no answer, or the process that sent it ended before the
    /// outcome was stored.
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

    /// The trace and the span in which the message was made, in the form of W3C Trace Context, if the message has them.
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

    /// 128 bits of `BLAKE2b` of the name. A destination recognizes a repeated message by them, whatever store it comes
    /// from. If a name is used again after an outcome, the digest is different.
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

/// The result of one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has arrived.
    Delivered,
    /// The destination does not take this message. It is tried again, a bounded number of times.
    Refused(String),
    /// The destination failed, maybe over this message: a status of 500 or 501. The message may have arrived. The attempt
    /// counts only if the destination took another message since the attempt before.
    Failed {
        /// What the destination said.
        reason: String,
        /// When the destination wants to be asked again.
        retry_after_ms: Option<u64>,
    },
    /// There was no answer about this message, and it may have arrived: a time-out, a status of 408, 425, 429, or 502 and
    /// above, an operational error. The attempt does not count.
    Unanswered {
        /// What happened instead.
        reason: String,
        /// When the destination wants to be asked again.
        retry_after_ms: Option<u64>,
    },
    /// The destination cannot be reached, and the message has not arrived: a refused connection, an unknown name. The
    /// attempt does not count.
    Unreachable {
        /// Why.
        reason: String,
        /// When the destination wants to be asked again.
        retry_after_ms: Option<u64>,
    },
    /// It was not sent, because a delivery before it failed. A send that tried none of its messages counts as
    /// unreachable.
    NotTried,
}

/// The results of the deliveries of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdicts {
    /// All have arrived.
    Delivered,
    /// In the order of the deliveries. Deliveries that are left out were not tried.
    Each(Vec<Verdict>),
}
