//! A delivery that goes to a sink, and what became of it (rules D5, D6).

#![forbid(unsafe_code)]

use crate::delivery::message::Body;

/// One attempt to deliver a message.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The number of the message in its store.
    pub seq: i64,
    /// Key, id and payload.
    pub body: Body,
    /// When it is due, in milliseconds since 1970.
    pub due_ms: i64,
    /// When it is sent.
    pub delivered_at_ms: i64,
    /// How late that is.
    pub lateness_us: i64,
    /// From 1.
    pub attempt: u32,
    /// Whether it may have arrived before, as a process that sent it ended (D5).
    pub redelivered: bool,
}

/// What became of one delivery (D6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has arrived.
    Delivered,
    /// The destination does not take this message: it is tried again, `max_attempts` times in all.
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
