//! The types that the store takes and returns. Times are milliseconds since 1970 unless their name says otherwise.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

use crate::message::incoming::Content;
use crate::message::recurrence::NEVER_MS;

/// `(due_ms, seq)`: the order of delivery (D4).
pub(crate) type Position = (i64, i64);

/// The outcome of a message, as the ledger stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The destination has it.
    Delivered = 1,
    /// It was cancelled in time.
    Cancelled = 2,
    /// It is a dead letter.
    Dead = 3,
    /// The message goes on under another number, at another time, or with another payload.
    Moved = 4,
    /// The message was not sent in time (D17).
    Expired = 5,
    /// The message was an occurrence, and its rule has ended or has changed since (D19). Another message may come
    /// under its name.
    Withdrawn = 6,
}

impl Outcome {
    /// The outcome with this number.
    #[must_use]
    pub fn of(number: i64) -> Option<Self> {
        use Outcome::{Cancelled, Dead, Delivered, Expired, Moved, Withdrawn};
        [Delivered, Cancelled, Dead, Moved, Expired, Withdrawn].into_iter().find(|outcome| *outcome as i64 == number)
    }

    /// Whether the message has a dead letter. Then its name may be used again (D5).
    pub(crate) fn is_dead(self) -> bool {
        matches!(self, Self::Dead | Self::Expired)
    }

    /// Whether the name of the message may be used again, as if the message had not come.
    pub(crate) fn is_free(self) -> bool {
        self.is_dead() || self == Self::Withdrawn
    }
}

impl ToSql for Outcome {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok((*self as i64).into())
    }
}

impl FromSql for Outcome {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let number = i64::column_result(value)?;
        Self::of(number).ok_or(FromSqlError::OutOfRange(number))
    }
}

/// A message that was accepted before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Its number.
    pub seq: i64,
    /// When the message is due.
    pub due_ms: i64,
    /// The digest of its content.
    pub content: Content,
    /// The outcome, unless it is delivery. `None`: the message is delivered or still open; [`super::Store::is_open`]
    /// tells.
    pub outcome: Option<Outcome>,
}

impl Known {
    /// Whether it is a recurring message that has not ended. No such message is ever delivered.
    pub(crate) fn is_open_rule(&self) -> bool {
        self.due_ms == NEVER_MS && self.outcome.is_none()
    }
}

/// The answer to a submitted message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// The message is new, with this number.
    New(i64),
    /// Like `New`, but an earlier message of its name is a dead letter or was withdrawn. `again`: the number by which
    /// destinations know it, if not by its name alone. `redelivered`: it is the dead letter again, and may have arrived.
    NewAgain { seq: i64, again: Option<i64>, redelivered: bool },
    /// The message is new, but a cancel came before it, so it has its outcome.
    CancelledBefore(i64),
    /// The name is known.
    Known(Known),
}

/// An open message in `waiting`, without its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitingRow {
    /// When it is due.
    pub due_ms: i64,
    /// Its number.
    pub seq: i64,
    /// The number of its key; `None` if it has no key.
    pub lane: Option<i64>,
    /// The size in memory, in bytes.
    pub size: u32,
    /// Whether the message may have arrived before.
    pub redelivered: bool,
    /// The number of attempts.
    pub attempts: u32,
    /// The number of attempts that count towards the most that there may be.
    pub strikes: u32,
    /// How long it was due, and its key without success, while the destination was up.
    pub waited_ms: i64,
    /// The time of the next attempt.
    pub next_ms: Option<i64>,
    /// When the attempts were noted, by a clock that is not stepped. 0 if there are none.
    pub tried_ms: i64,
    /// An attempt had no answer, or failed: the message may have arrived.
    pub is_unanswered: bool,
}

impl WaitingRow {
    /// A message that was not tried.
    pub(crate) fn untried(due_ms: i64, seq: i64, lane: Option<i64>, size: u32) -> Self {
        Self {
            due_ms,
            seq,
            lane,
            size,
            redelivered: false,
            attempts: 0,
            strikes: 0,
            waited_ms: 0,
            next_ms: None,
            tried_ms: 0,
            is_unanswered: false,
        }
    }
}

/// A message with its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// Its number.
    pub seq: i64,
    /// When it was due.
    pub due_ms: i64,
    /// How it ended.
    pub outcome: Outcome,
    /// The time of the outcome.
    pub at_ms: i64,
    /// How late the message arrived, in microseconds.
    pub lateness_us: Option<i64>,
    /// The number of attempts.
    pub attempts: u32,
    /// Whether the message may have arrived before.
    pub redelivered: bool,
}

/// The stored facts about failed attempts of a message (D6).
#[expect(clippy::struct_field_names, reason = "it is the count of them")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempts {
    /// The message's number.
    pub seq: i64,
    /// The number of attempts.
    pub attempts: u32,
    /// The number of attempts that count towards the most that there may be.
    pub strikes: u32,
    /// How long it was due, and its key without success, while the destination was up.
    pub waited_ms: i64,
    /// The time of the next attempt.
    pub next_ms: Option<i64>,
    /// The error of the last send that ended with one. [`CRASHED`] if sends were made and none did, `None` if none was made.
    pub error: Option<String>,
    /// The time of this note, by a clock that is not stepped while the process runs.
    pub at_ms: i64,
    /// An attempt had no answer, or failed: the message may have arrived.
    pub is_unanswered: bool,
}

/// The reason for an attempt that counts because the process crashed during it.
pub(crate) const CRASHED: &str = "the process ended while this was being sent";

impl Attempts {
    /// No attempt was made.
    pub(crate) fn none(seq: i64) -> Self {
        Self { seq, attempts: 0, strikes: 0, waited_ms: 0, next_ms: None, error: None, at_ms: 0, is_unanswered: false }
    }

    /// With a send whose end is not known.
    pub(crate) fn and_one_more(self) -> Self {
        Self { attempts: self.attempts.saturating_add(1), error: Some(CRASHED.to_owned()), ..self }
    }
}

/// A dead letter: a message that was given up, or a record that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// The input, or `delivery` for a message that was given up.
    pub source: String,
    /// The line in the input; for a message, its number in the store.
    pub line: i64,
    /// What is wrong.
    pub reason: String,
    /// What would be right.
    pub allowed: String,
    /// The record as it was read, or a record that can be given to
    /// [`Deliverer::submit_ndjson`](crate::Deliverer::submit_ndjson) again.
    pub record: Vec<u8>,
}

/// The numbers of the last dead letter and of the last one that is written out, and the bytes of all records.
pub(in crate::store) struct Letters {
    pub last: i64,
    pub written: i64,
    pub bytes: u64,
}

/// How far an input was read. Records up to `line` are accepted, and the first `size` bytes of the input have this
/// digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The name of the input.
    pub source: String,
    /// The last accepted line, from 1.
    pub line: i64,
    /// Bytes that were read.
    pub size: i64,
    /// `BLAKE2b` of those bytes.
    pub digest: [u8; 16],
}
