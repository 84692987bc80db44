//! A message in memory, what is known of all of a destination, and the bounds of memory (rules D8, D23).

use std::collections::BTreeSet;

use crate::message::Body;
use crate::store::{Outcome, Position};

/// How much may be in memory, in total and for each lane. A lane may always have one message, whatever its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Messages.
    pub messages: usize,
    /// Bytes, of the payloads and of the data kept about each message. They are less while much is being accepted: see
    /// `base::budget`.
    pub bytes: usize,
    /// Messages of one key.
    pub lane_messages: usize,
    /// Bytes of one key.
    pub lane_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { messages: 400_000, bytes: 64 << 20, lane_messages: 128, lane_bytes: 4 << 20 }
    }
}

/// The state of a message in memory. An `Uncommitted` or `Waiting` message can go back to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It was accepted, and is not committed.
    Uncommitted,
    /// It waits for the timer, or for its lane.
    Waiting,
    /// It is due, it has no key, and it is in the queue for sending.
    Ready,
    Sending,
    /// It waits for its next attempt.
    Retrying,
    /// It waits for its next attempt, and leaves memory until then. See `parking.rs`.
    Parked,
    /// It goes back to the store in the next transaction.
    Leaving,
    /// It has its outcome. The outcome is not committed.
    Over,
}

/// A message in memory.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(crate) struct Entry {
    pub(crate) seq: i64,
    pub(crate) due_ms: i64,
    /// The number of the lane in the window.
    pub(crate) lane: Option<u32>,
    /// The number of the share in the window.
    pub(crate) share: u32,
    pub(crate) size: u32,
    /// How often it was sent, without the current send.
    pub(crate) attempts: u32,
    /// How many of these attempts count towards the allowed number.
    pub(crate) counted: u32,
    /// How often the process ended while it may have been sent, since its last answer.
    pub(crate) strikes: u32,
    /// How long it was due while its key had no success, as noted in the store.
    pub(crate) waited_us: u64,
    /// When `waited_us` was noted, on the timer's clock. 0: before the start.
    pub(crate) waited_from_us: u64,
    /// When the attempts in the store were noted.
    pub(crate) tried_ms: i64,
    /// When it is tried again, as noted in the store.
    pub(crate) next_ms: Option<i64>,
    pub(crate) state: State,
    pub(crate) is_near: bool,
    /// Used only while the message is near.
    pub(crate) partition: u8,
    /// An earlier process may have sent it. Or it was sent, went to the store, and came back.
    pub(crate) redelivered: bool,
    /// It was sent, and may have arrived.
    pub(crate) was_sent: bool,
    /// A send failed, or ended without an answer, so it may have arrived.
    pub(crate) is_unanswered: bool,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) body: Option<Body>,
}

impl Entry {
    pub(crate) fn position(&self) -> Position {
        (self.due_ms, self.seq)
    }

    /// Whether an earlier send may have arrived. If so, the next send is marked.
    pub(crate) fn may_have_arrived(&self) -> bool {
        self.redelivered || self.is_unanswered
    }
}

/// Whether the loader has to look for messages of a named destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// No: memory has what it may have.
    Not,
    /// With its next load.
    Next,
    /// There is more, and no room for it: with a later load.
    Behind,
    /// When its tenant or destination may send again: until then its messages are in the store alone.
    Held,
}

/// What the window knows of the messages of one destination.
#[derive(Debug)]
pub(crate) struct Share {
    /// The number of the destination in the store.
    pub(crate) id: i64,
    /// `None`: nothing of it is in memory.
    pub(crate) cursor: Option<Position>,
    /// The cursor has moved since the last group.
    pub(super) has_moved: bool,
    /// Lanes that may run empty while the store has more of their messages, ordered by the lane's `more_from`.
    pub(super) needy: BTreeSet<(Position, u32)>,
    /// The share of its destination.
    pub(super) home: u32,
    /// Only of a home: how many shares its destination has in memory.
    pub(super) shares: usize,
    /// Messages in memory and their bytes: of a home, those of all its shares.
    pub(super) of_all: (usize, usize),
    pub(super) own: (usize, usize),
    /// The lanes that the window knows.
    pub(super) lanes: usize,
    pub(super) look: Look,
    /// The messages without a key that wait for an attempt until then are in memory, by `(next_ms, seq)`.
    pub(crate) tried_through: (i64, i64),
}

impl Share {
    pub(super) fn new(id: i64) -> Self {
        Self {
            id,
            cursor: None,
            has_moved: false,
            needy: BTreeSet::new(),
            home: 0,
            shares: 0,
            of_all: (0, 0),
            own: (0, 0),
            lanes: 0,
            look: Look::Not,
            tried_through: (i64::MIN, 0),
        }
    }

    /// Whether a lane may run empty while the store has more of its messages, up to the cursor.
    pub(crate) fn has_needy_lanes(&self) -> bool {
        self.needy_lanes().next().is_some()
    }

    /// Such lanes. A lane that left memory after the cursor waits until the loader has read that far: nothing can be
    /// refilled before, and the writer must not try it again and again.
    pub(super) fn needy_lanes(&self) -> impl Iterator<Item = (Position, u32)> {
        self.needy.iter().copied().take_while(|(from, _)| self.cursor.is_some_and(|cursor| *from <= cursor))
    }
}

/// A message that left memory and is now in the store.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) due_ms: i64,
    pub(crate) seq: i64,
    pub(crate) size: u32,
    pub(crate) redelivered: bool,
    pub(crate) was_near: bool,
    /// Only for a near message.
    pub(crate) body: Option<Body>,
}
