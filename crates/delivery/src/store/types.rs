//! What goes into the store and comes out of it. Times are milliseconds since 1970 unless their name says otherwise.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

use crate::message::incoming::Content;

/// `(due_ms, seq)`: the order of delivery (D4).
pub(crate) type Position = (i64, i64);

/// How it ended for a message, as it stands in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The destination has it.
    Delivered = 1,
    /// It was cancelled in time.
    Cancelled = 2,
    /// It is a dead letter.
    Dead = 3,
    /// It goes on under another number, at another time, or with another payload.
    Moved = 4,
    /// It was not sent in time (D17).
    Expired = 5,
    /// It was the occurrence of a rule that has ended, or has another text since (D19): another one may come under its name.
    Withdrawn = 6,
}

impl Outcome {
    /// Whether there is a dead letter of it, and its name may be given again (D5).
    pub(crate) fn is_dead(self) -> bool {
        matches!(self, Self::Dead | Self::Expired)
    }

    /// Whether its name may be given again, as if it had not come.
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
        match i64::column_result(value)? {
            1 => Ok(Self::Delivered),
            2 => Ok(Self::Cancelled),
            3 => Ok(Self::Dead),
            4 => Ok(Self::Moved),
            5 => Ok(Self::Expired),
            6 => Ok(Self::Withdrawn),
            other => Err(FromSqlError::OutOfRange(other)),
        }
    }
}

/// A message that was accepted before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Its number.
    pub seq: i64,
    /// When it is due.
    pub due_ms: i64,
    /// What it says.
    pub content: Content,
    /// Its outcome where that is not delivery. `None`: delivered, or still open; [`super::Store::is_open`] tells.
    pub outcome: Option<Outcome>,
}

/// The answer to a message that was handed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// It is new, and this is its number.
    New(i64),
    /// As `New`, and the one before of its name is a dead letter.
    NewAgain(i64),
    /// It is new, but a cancel came before it: it has its outcome.
    CancelledBefore(i64),
    /// Its name is known.
    Known(Known),
}

/// An open message that has a row in `waiting`, without its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// When it is due.
    pub due_ms: i64,
    /// Its number.
    pub seq: i64,
    /// The number of its key; `None`: it has no key.
    pub lane: Option<i64>,
    /// Bytes in memory.
    pub size: u32,
    /// Whether it may have arrived before.
    pub redelivered: bool,
    /// How often it was tried.
    pub attempts: u32,
    /// When it is to be tried again.
    pub next_ms: Option<i64>,
}

/// An open message that is to have a row in `waiting`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// When it is due.
    pub due_ms: i64,
    /// Its number.
    pub seq: i64,
    /// The number of its key; `None`: it has no key.
    pub lane: Option<i64>,
    /// Bytes in memory.
    pub size: u32,
    /// Whether it was sent, and may have arrived.
    pub redelivered: bool,
}

/// A message that has its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// Its number.
    pub seq: i64,
    /// When it was due.
    pub due_ms: i64,
    /// How it ended.
    pub outcome: Outcome,
    /// When it ended.
    pub at_ms: i64,
    /// How late it arrived, in microseconds.
    pub lateness_us: Option<i64>,
    /// How often it was tried.
    pub attempts: u32,
    /// Whether it may have arrived before.
    pub redelivered: bool,
}

/// What is kept of the failed attempts of a message (D6).
#[expect(clippy::struct_field_names, reason = "it is the count of them")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempts {
    /// The message's number.
    pub seq: i64,
    /// How often it was tried.
    pub attempts: u32,
    /// When it is to be tried again.
    pub next_ms: Option<i64>,
    /// The last error.
    pub error: Option<String>,
}

/// A dead letter: a message that was given up, or a record that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// The input, or `delivery` for a message that was given up.
    pub source: String,
    /// The line in it; of a message the number in its store.
    pub line: i64,
    /// What is wrong.
    pub reason: String,
    /// What would be right.
    pub allowed: String,
    /// The record as it was read, or one that can be given to [`Deliverer::submit_ndjson`](crate::Deliverer::submit_ndjson)
    /// again.
    pub record: Vec<u8>,
}

/// How far an input was read: the records up to `line` are taken, and its first `size` bytes have this digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The name of the input.
    pub source: String,
    /// The last line that was taken, from 1.
    pub line: i64,
    /// Bytes that were read.
    pub size: i64,
    /// `BLAKE2b` of those bytes.
    pub digest: [u8; 16],
}
