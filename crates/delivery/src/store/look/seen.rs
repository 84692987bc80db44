//! A message as lists and analyses show it.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::snapshot::{optional_text, text};
use crate::message::recurrence::NEVER_MS;
use crate::store::sql::Result;
use crate::store::types::Outcome;

/// A message, open or with its outcome. Times are milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its number.
    pub seq: i64,
    /// Its key.
    pub key: Option<String>,
    /// Its id.
    pub id: String,
    /// When it is due. Of a recurring message: when its open occurrence is due; `None` after its end.
    pub due_ms: Option<i64>,
    /// `None`: it is open.
    pub outcome: Option<Outcome>,
    /// The time of its outcome.
    pub ended_ms: Option<i64>,
    /// How late it arrived.
    pub lateness_us: Option<i64>,
    /// How often it was sent.
    pub attempts: u32,
    /// The last error of an open message that failed; why a message was given up, as long as its dead letter is kept.
    pub last_error: Option<String>,
    /// The time of the next attempt.
    pub next_try_ms: Option<i64>,
    /// Of an open message: whether it may have arrived. Of another: whether it may have arrived before its outcome.
    pub may_have_arrived: bool,
    /// Of an open recurring message: its rule, as JSON.
    pub rule: Option<String>,
}

impl Seen {
    /// The bytes of its id and its key.
    pub(super) fn name_bytes(&self) -> usize {
        self.id.len() + self.key.as_ref().map_or(0, String::len)
    }
}

/// The columns of an open message for [`open`], from `OF_OPEN`.
pub(super) const OPEN: &str = "m.seq, m.key, m.id, m.due_ms, ifnull(a.attempts, 0), a.error, a.next_ms, \
     ifnull(w.redelivered, 0) OR ifnull(a.is_unanswered, 0)";
/// A message with what is known of its attempts. A near message has no row in `waiting`.
pub(super) const OF_OPEN: &str = "FROM messages m LEFT JOIN attempts a ON a.seq = m.seq \
     LEFT JOIN waiting w ON w.due_ms = m.due_ms AND w.seq = m.seq";

/// An open message, of a row that begins with `OPEN`.
pub(super) fn open(row: &Row<'_>) -> rusqlite::Result<Seen> {
    Ok(Seen {
        seq: row.get(0)?,
        key: optional_text(row, 1)?,
        id: text(row, 2)?,
        due_ms: row.get(3)?,
        attempts: row.get(4)?,
        last_error: optional_text(row, 5)?,
        next_try_ms: row.get(6)?,
        may_have_arrived: row.get(7)?,
        ..Seen::default()
    })
}

/// The columns for [`ended`], of `ledger l` and `messages m`.
pub(super) const ENDED: &str =
    "m.seq, m.key, m.id, m.due_ms, l.outcome, l.at_ms, l.lateness_us, l.attempts, l.redelivered";

/// A message with its outcome and without its reason, of a row that begins with `ENDED`.
pub(super) fn ended(row: &Row<'_>) -> rusqlite::Result<Seen> {
    Ok(Seen {
        seq: row.get(0)?,
        key: optional_text(row, 1)?,
        id: text(row, 2)?,
        due_ms: row.get(3).map(Some)?.filter(|due_ms| *due_ms != NEVER_MS),
        outcome: row.get(4)?,
        ended_ms: row.get(5)?,
        lateness_us: row.get(6)?,
        attempts: row.get(7)?,
        may_have_arrived: row.get(8)?,
        ..Seen::default()
    })
}

/// Why this message was given up, if the store has kept its dead letter.
pub(super) fn reason(db: &Connection, seq: i64) -> Result<Option<String>> {
    let mut select = db.prepare_cached("SELECT reason FROM dead_letters WHERE source = 'delivery' AND line = ?")?;
    Ok(select.query_row(params![seq], |row| text(row, 0)).optional()?)
}
