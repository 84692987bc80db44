//! A message in memory, and how much may be there (rule D8).

#![forbid(unsafe_code)]

use crate::delivery::message::Body;
use crate::delivery::store::{Outcome, Position};

/// How much may be in memory, and of one lane; a lane has at least one message, whatever its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Messages.
    pub messages: usize,
    /// Bytes, of the payloads and of what is kept about each message.
    pub bytes: usize,
    /// Messages of one key.
    pub lane_messages: usize,
    /// Bytes of one key.
    pub lane_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { messages: 400_000, bytes: 96 << 20, lane_messages: 128, lane_bytes: 4 << 20 }
    }
}

/// Where a message in memory stands. The store may take back a `Held` or `Waiting` one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::delivery) enum State {
    /// Until it is committed.
    Held,
    /// On the timer, or for its lane.
    Waiting,
    /// Due, without a key, in the queue of what can be sent.
    Ready,
    Sending,
    /// Until it is tried again.
    Retrying,
    /// It goes back to the store in the next transaction.
    Leaving,
    /// It has its outcome, which is not committed yet.
    Over,
}

/// A message in memory.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(in crate::delivery) struct Entry {
    pub(in crate::delivery) seq: i64,
    pub(in crate::delivery) due_ms: i64,
    /// The number of its lane in the window.
    pub(in crate::delivery) lane: Option<u32>,
    pub(in crate::delivery) size: u32,
    pub(in crate::delivery) attempts: u32,
    pub(in crate::delivery) state: State,
    pub(in crate::delivery) is_near: bool,
    /// Of a near one.
    pub(in crate::delivery) partition: u8,
    /// An earlier process may have sent it, or it came back from the store after it was sent.
    pub(in crate::delivery) redelivered: bool,
    /// The attempt that comes next is counted in `attempts`, and on disk.
    pub(in crate::delivery) is_noted: bool,
    /// It was sent, and may have arrived.
    pub(in crate::delivery) was_sent: bool,
    /// A send of it ended without an answer.
    pub(in crate::delivery) is_unanswered: bool,
    pub(in crate::delivery) outcome: Option<Outcome>,
    pub(in crate::delivery) body: Option<Body>,
}

impl Entry {
    pub(in crate::delivery) fn position(&self) -> Position {
        (self.due_ms, self.seq)
    }

    /// Whether an earlier send of it may have arrived: the next one is marked.
    pub(in crate::delivery) fn may_have_arrived(&self) -> bool {
        self.redelivered || self.is_unanswered
    }
}

/// A message that left memory for the store.
#[derive(Debug)]
pub(in crate::delivery) struct Gone {
    pub(in crate::delivery) due_ms: i64,
    pub(in crate::delivery) seq: i64,
    pub(in crate::delivery) size: u32,
    pub(in crate::delivery) redelivered: bool,
    pub(in crate::delivery) was_near: bool,
    /// Of a near one.
    pub(in crate::delivery) body: Option<Body>,
}
