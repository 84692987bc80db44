//! A message in memory, and how much may be there (rule D8).

use crate::message::Body;
use crate::store::{Outcome, Position};

/// How much may be in memory, and of one lane; a lane has at least one message, whatever its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
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
pub(crate) enum State {
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
pub(crate) struct Entry {
    pub(crate) seq: i64,
    pub(crate) due_ms: i64,
    /// The number of its lane in the window.
    pub(crate) lane: Option<u32>,
    pub(crate) size: u32,
    pub(crate) attempts: u32,
    pub(crate) state: State,
    pub(crate) is_near: bool,
    /// Of a near one.
    pub(crate) partition: u8,
    /// An earlier process may have sent it, or it came back from the store after it was sent.
    pub(crate) redelivered: bool,
    /// The attempt that comes next is counted in `attempts`, and on disk.
    pub(crate) is_noted: bool,
    /// It was sent, and may have arrived.
    pub(crate) was_sent: bool,
    /// A send of it ended without an answer.
    pub(crate) is_unanswered: bool,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) body: Option<Body>,
}

impl Entry {
    pub(crate) fn position(&self) -> Position {
        (self.due_ms, self.seq)
    }

    /// Whether an earlier send of it may have arrived: the next one is marked.
    pub(crate) fn may_have_arrived(&self) -> bool {
        self.redelivered || self.is_unanswered
    }
}

/// A message that left memory for the store.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) due_ms: i64,
    pub(crate) seq: i64,
    pub(crate) size: u32,
    pub(crate) redelivered: bool,
    pub(crate) was_near: bool,
    /// Of a near one.
    pub(crate) body: Option<Body>,
}
