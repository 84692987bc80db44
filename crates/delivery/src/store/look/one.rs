//! Finds a message by its name, with its state and content (D14).

use rusqlite::{Connection, OptionalExtension, params};

use super::find::find;
use super::seen::{ENDED, OF_OPEN, OPEN, Seen, ended, open, reason};
use super::snapshot::{Snapshot, optional_text};
use crate::base::error::DeliveryError;
use crate::message::hashes::lane_of;
use crate::message::recurrence::NEVER_MS;
use crate::store::open::waiting::is_waiting;
use crate::store::sql::Result;
use crate::store::types::Outcome;

/// The rows of the ledger that are searched for an outcome: some 30 ms.
const SEARCHED: i64 = 300_000;

/// A message with its content, as long as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its state.
    pub seen: Seen,
    /// Of an open recurring message: the id of its open occurrence.
    pub next_id: Option<String>,
    /// Of an open message: since when its key is paused.
    pub key_paused_ms: Option<i64>,
    /// Its payload, and whether it is JSON.
    pub payload: Option<(Vec<u8>, bool)>,
    /// When it expires.
    pub expires_ms: Option<i64>,
    /// Its trace.
    pub traceparent: Option<String>,
}

impl Snapshot {
    /// The newest message with this name; `None`: it has not come, or is forgotten.
    ///
    /// The time and the lateness of an outcome come from a part of the ledger: for a delivered message, the 300,000 rows
    /// from its due time on; for other outcomes, the last 300,000 rows. If the outcome is not there, they are missing.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn show(&self, key: Option<&str>, id: &str) -> std::result::Result<Option<Shown>, DeliveryError> {
        self.ask(|db| find(db, key, id)?.map(|seq| show(db, seq)).transpose())
    }
}

fn show(db: &Connection, seq: i64) -> Result<Shown> {
    let query = format!(
        "SELECT {OPEN}, m.outcome, m.due_ms, CAST(b.payload AS BLOB), typeof(b.payload) = 'text', b.expires_ms, \
         b.traceparent {OF_OPEN} LEFT JOIN bodies b ON b.seq = m.seq WHERE m.seq = ?"
    );
    let (mut shown, outcome, due_ms) = db.query_row(&query, [seq], |row| {
        let (payload, is_json): (Option<Vec<u8>>, bool) = (row.get(10)?, row.get(11)?);
        let shown = Shown {
            seen: open(row)?,
            next_id: None,
            key_paused_ms: None,
            payload: payload.map(|payload| (payload, is_json)),
            expires_ms: row.get(12)?,
            traceparent: optional_text(row, 13)?,
        };
        Ok((shown, row.get::<_, Option<Outcome>>(8)?, row.get::<_, i64>(9)?))
    })?;
    let is_held = is_waiting(db, (due_ms, seq))?;
    let near = "SELECT 1 FROM near_messages WHERE due_ms = ? AND seq = ?";
    if !is_held && !db.prepare(near)?.exists([due_ms, seq])? {
        shown.seen = with_outcome(db, shown.seen, outcome.unwrap_or(Outcome::Delivered))?;
        return Ok(shown);
    }
    if due_ms == NEVER_MS {
        let next = "SELECT b.recurrence, m.due_ms, m.id FROM bodies b JOIN occurrences o ON o.of_seq = b.seq \
                    JOIN messages m ON m.seq = o.seq WHERE b.seq = ?";
        (shown.seen.rule, shown.seen.due_ms, shown.next_id) =
            db.query_row(next, [seq], |row| Ok((optional_text(row, 0)?, row.get(1)?, optional_text(row, 2)?)))?;
    }
    if let Some(key) = &shown.seen.key {
        let paused = "SELECT since_ms FROM paused_keys WHERE lane = ?";
        shown.key_paused_ms = db.query_row(paused, [lane_of(key)], |row| row.get(0)).optional()?;
    }
    Ok(shown)
}

/// The message with this outcome, and with what the searched part of the ledger says of it.
fn with_outcome(db: &Connection, open: Seen, outcome: Outcome) -> Result<Seen> {
    let (order, first_n) = match outcome {
        Outcome::Delivered => ("", row_at(db, open.due_ms.unwrap_or(i64::MIN))?),
        _ => ("DESC", i64::MIN),
    };
    let query = format!(
        "SELECT {ENDED} FROM (SELECT * FROM ledger WHERE n >= ? ORDER BY n {order} LIMIT ?) AS l \
         JOIN messages m ON m.seq = l.seq WHERE l.seq = ? LIMIT 1"
    );
    let found = db.query_row(&query, params![first_n, SEARCHED, open.seq], ended).optional()?;
    let mut seen = found.unwrap_or(Seen { outcome: Some(outcome), attempts: 0, may_have_arrived: false, ..open });
    seen.due_ms = seen.due_ms.filter(|due_ms| *due_ms != NEVER_MS);
    if outcome.is_dead() && seen.ended_ms.is_some() {
        seen.last_error = reason(db, seen.seq)?;
    }
    Ok(seen)
}

/// The number of the first row of the ledger that was written at that time or later, as far as its times ascend.
fn row_at(db: &Connection, at_ms: i64) -> Result<i64> {
    let ends = "SELECT ifnull(min(n), 0), ifnull(max(n), 0) FROM ledger";
    let (mut low, mut high): (i64, i64) = db.query_row(ends, [], |row| row.try_into())?;
    let mut select = db.prepare("SELECT at_ms FROM ledger WHERE n >= ? ORDER BY n LIMIT 1")?;
    while low < high {
        let middle = low + (high - low) / 2;
        let row_ms: i64 = select.query_row([middle], |row| row.get(0))?;
        if row_ms < at_ms {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
