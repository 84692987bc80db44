//! A delivery to a sink, and its verdict (rules D5, D6).

use std::ops::Deref;
use std::sync::Arc;

use crate::message::Message;
use crate::message::incoming::Digest;
use crate::message::named::NamedSettings;
use crate::message::until::Cause;

/// One attempt to deliver a message. The parts of the [`Message`] are read as those of the delivery.
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
    /// The message.
    pub message: Message,
    /// When it is sent.
    pub delivered_at_ms: i64,
    /// How late it is sent, in microseconds. Never negative.
    pub lateness_us: i64,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Whether it may have arrived before. An earlier send had no answer, or the process that sent it ended before the
    /// outcome was stored.
    pub redelivered: bool,
    /// The destination that the message names.
    #[cfg_attr(not(feature = "http"), allow(dead_code, reason = "only webhooks have names"))]
    pub(crate) to: Option<Arc<NamedSettings>>,
    /// `None`: the store is not replicated.
    pub(crate) owner: Option<Arc<Owner>>,
}

/// The process that sends, as the only one that may (rule D21).
#[derive(Debug)]
pub(crate) struct Owner {
    /// The id of the store's history.
    pub(crate) store: String,
    /// The number of the take-over.
    pub(crate) epoch: i64,
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
        Self { seq, message, delivered_at_ms, lateness_us, attempt, redelivered, to: None, owner: None }
    }

    /// Why it is due, if it has [`until_event`](Message::until_event): `event` or `deadline`.
    ///
    /// ```
    /// # use tickwheel_delivery::{Destination, Verdict};
    /// let to = Destination::function(|delivery| {
    ///     println!("{:?}: {:?}", delivery.cause(), delivery.event());
    ///     Verdict::Delivered
    /// });
    /// ```
    #[must_use]
    pub fn cause(&self) -> Option<&'static str> {
        self.body.until().map(|until| until.cause.word())
    }

    /// The event that has let it go, as JSON: an object with `name`, `id`, and `payload` or `payload_base64`.
    #[must_use]
    pub fn event(&self) -> Option<&str> {
        match &self.body.until()?.cause {
            Cause::Event(_, data) => Some(data),
            _ => None,
        }
    }

    /// The id of the store and the number of the owner's take-over, if the store is [replicated](crate::Replicate). A restore
    /// changes the id. A destination that has seen a higher number from this store refuses the message: an earlier owner sends it.
    ///
    /// ```
    /// # use tickwheel_delivery::{Destination, Verdict};
    /// let to = Destination::function(|delivery| {
    ///     assert!(delivery.owner().is_none(), "this store is not replicated");
    ///     Verdict::Delivered
    /// });
    /// ```
    #[must_use]
    pub fn owner(&self) -> Option<(&str, i64)> {
        self.owner.as_deref().map(|it| (&*it.store, it.epoch))
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

    /// No send of a message with this digest has a lower number in this store, unless its name was forgotten since then. It
    /// is `seq`, or the number before a reschedule or a requeue. 0 if another store may have sent it.
    ///
    /// ```
    /// # use tickwheel_delivery::{Destination, Verdict};
    /// let to = Destination::function(|delivery| {
    ///     assert!(delivery.first_seq() <= delivery.seq);
    ///     Verdict::Delivered
    /// });
    /// ```
    #[must_use]
    pub fn first_seq(&self) -> i64 {
        self.body.extras().and_then(|extras| extras.first).unwrap_or(self.seq)
    }
}

impl Deref for Delivery {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.message
    }
}

/// The result of one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has arrived.
    Delivered,
    /// The destination does not take this message. It is tried again, a bounded number of times.
    Refused(String),
    /// The destination will never take this message, or no request can be made of it: a dead letter without another attempt.
    Final(String),
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
