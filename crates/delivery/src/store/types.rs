//! The types that the store takes and returns. Times are milliseconds since 1970 unless their name says otherwise.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use rustc_hash::FxHashMap;

use crate::message::hashes::Content;
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
    pub seq: i64,
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
    /// The message is new, with the number `seq`. If an earlier message of its name is a dead letter or was withdrawn,
    /// `again` is the number by which destinations know it, if not by its name alone. `first`: as in `Extras`.
    /// `redelivered`: it is that dead letter again, and may have arrived.
    New { seq: i64, again: Option<i64>, first: Option<i64>, redelivered: bool },
    /// The message is new, but a cancel came before it, so it has its outcome.
    CancelledBefore(i64),
    /// The name is known.
    Known(Known),
}

/// An open message in `waiting`, without its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitingRow {
    pub due_ms: i64,
    pub seq: i64,
    /// The number of its lane; `None` if it has no key.
    pub lane: Option<i64>,
    /// The number of its destination; 0 if it names none.
    pub share: i64,
    /// The size in memory, in bytes.
    pub size: u32,
    /// Whether the message may have arrived before.
    pub redelivered: bool,
    // Of its `Attempts`, if there are some:
    pub attempts: u32,
    pub counted: u32,
    pub waited_ms: i64,
    pub next_ms: Option<i64>,
    /// `at_ms` there.
    pub tried_ms: i64,
    pub is_unanswered: bool,
    pub strikes: u32,
}

impl WaitingRow {
    /// A message that was not tried.
    pub(crate) fn untried(due_ms: i64, seq: i64, lane: Option<i64>, size: u32) -> Self {
        Self { due_ms, seq, lane, size, ..Self::default() }
    }
}

/// A message with its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub seq: i64,
    pub due_ms: i64,
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

impl Done {
    /// A message that ends without a send.
    pub(crate) fn unsent(seq: i64, due_ms: i64, outcome: Outcome, at_ms: i64) -> Self {
        Self { seq, due_ms, outcome, at_ms, lateness_us: None, attempts: 0, redelivered: false }
    }
}

/// The stored facts about failed attempts of a message (D6).
#[expect(clippy::struct_field_names, reason = "it is the count of them")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attempts {
    pub seq: i64,
    /// The number of attempts.
    pub attempts: u32,
    /// The number of attempts that count towards the most that there may be.
    pub counted: u32,
    /// How long it was due, and its key without success, while the destination was up.
    pub waited_ms: i64,
    /// The time of the next attempt.
    pub next_ms: Option<i64>,
    /// The error of the last send that was not accepted.
    pub error: Option<String>,
    /// The time of this note, by a clock that is not stepped while the process runs.
    pub at_ms: i64,
    /// An attempt had no answer, or failed: the message may have arrived.
    pub is_unanswered: bool,
    /// How often the process ended while the message may have been sent. Any answer makes it 0.
    pub strikes: u32,
    /// The number of its destination; 0 if it names none.
    pub share: i64,
}

/// The reason of a message that is given up because the process ended each time it was sent.
pub(crate) const CRASHED: &str = "the process ended each time this was sent";

impl Attempts {
    /// No attempt was made.
    pub(crate) fn none(seq: i64, share: i64) -> Self {
        Self { seq, share, ..Self::default() }
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

/// A named destination (D23).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredDestination {
    pub name: Arc<str>,
    /// It is never given again to another destination.
    pub share: i64,
    /// As JSON; empty if it was removed. Then it is here until its messages have become dead letters.
    pub settings: Arc<str>,
    /// Since when nothing is sent there.
    pub paused_ms: Option<i64>,
    /// Why, if it was paused because it failed for long.
    pub pause_reason: Option<Arc<str>>,
    /// Since when it fails without a success, if that is to end in a pause.
    pub failing_ms: Option<i64>,
}

impl StoredDestination {
    /// Paused from then on, unless it is already; `None`: not paused. Failures count anew.
    pub(crate) fn paused(self, from_ms: Option<i64>, reason: Option<&str>) -> Self {
        let paused_ms = from_ms.map(|from_ms| self.paused_ms.unwrap_or(from_ms));
        let pause_reason = from_ms.and(self.pause_reason.or(reason.map(Into::into)));
        Self { paused_ms, pause_reason, failing_ms: None, ..self }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(in crate::store) struct Destinations {
    shares: FxHashMap<Arc<str>, i64>,
    by_share: FxHashMap<i64, StoredDestination>,
}

impl Destinations {
    pub(in crate::store) fn add(&mut self, it: StoredDestination) {
        if !it.settings.is_empty() {
            self.shares.insert(it.name.clone(), it.share);
        } else if self.shares.get(&it.name) == Some(&it.share) {
            self.shares.remove(&it.name);
        }
        self.by_share.insert(it.share, it);
    }

    pub(in crate::store) fn is_empty(&self) -> bool {
        self.shares.is_empty()
    }

    pub(in crate::store) fn forget(&mut self, share: i64) {
        self.by_share.remove(&share);
    }

    pub(in crate::store) fn all(&self) -> impl Iterator<Item = &StoredDestination> {
        self.shares.values().map(|share| &self.by_share[share])
    }

    /// The first one that was removed.
    pub(in crate::store) fn removed(&self) -> Option<&StoredDestination> {
        self.by_share.values().filter(|it| it.settings.is_empty()).min_by_key(|it| it.share)
    }

    pub(in crate::store) fn named(&self, name: &str) -> Option<&StoredDestination> {
        self.by_share.get(self.shares.get(name)?)
    }

    pub(in crate::store) fn numbered(&self, share: i64) -> Option<&StoredDestination> {
        self.by_share.get(&share)
    }
}

/// The facts about the two tables that are in memory.
#[derive(Debug, Default)]
#[expect(clippy::struct_field_names, reason = "it has two tables")]
pub(in crate::store) struct Events {
    /// Whether there may be a row in `waits`, and one in `events`.
    pub(in crate::store) have_waits: bool,
    pub(in crate::store) have_events: bool,
    /// The upkeep has looked at the events up to this one.
    pub(in crate::store) looked_through: i64,
    /// The event whose data was read last, and the data.
    pub(in crate::store) last_data: RefCell<Option<(i64, Weak<str>)>>,
}

/// A tenant that was set, or paused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredTenant {
    pub number: i64,
    pub name: Arc<str>,
    /// As JSON; `None`: it was removed, and has the usual ones.
    pub settings: Option<Arc<str>>,
    /// Since when nothing of it is sent.
    pub paused_ms: Option<i64>,
}

#[derive(Debug, Default)]
pub(in crate::store) struct Tenants {
    /// The numbers of those that were named last.
    pub(in crate::store) numbers: FxHashMap<Arc<str>, i64>,
    pub(in crate::store) set: BTreeMap<Arc<str>, StoredTenant>,
    /// Whether the store has any.
    pub(in crate::store) has_any: bool,
}

/// The steps of the wall clock that were seen while the store was open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    /// How many they were. The ids of later occurrences have this number.
    pub count: i64,
    /// All of them together; negative if the clock went back.
    pub sum_ms: i64,
    /// The occurrences of the recurring messages up to this number have followed; `None`: all have.
    pub followed: Option<i64>,
}
