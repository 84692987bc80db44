//! A store in figures (D14).

use rusqlite::Connection;

use super::snapshot::{Snapshot, rows, text};
use crate::base::error::DeliveryError;
use crate::message::recurrence::NEVER_MS;
use crate::store::sql::Result;
use crate::store::tables::meta::{self, PAUSED};
use crate::store::types::Outcome;

/// How many paused keys are named.
const NAMED: i64 = 20;

/// A requeue removes the dead letter, and the message goes on under another number: its name came again.
const REQUEUED: &str = "
    WITH gone AS MATERIALIZED (
        SELECT l.outcome, m.seq, m.name FROM ledger l JOIN messages m ON m.seq = l.seq
        WHERE l.outcome IN (3, 5)
            AND NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.source = 'delivery' AND d.line = l.seq)
    )
    SELECT gone.outcome, count(DISTINCT gone.seq)
    FROM messages m CROSS JOIN gone ON gone.name = m.name AND gone.seq < m.seq
    WHERE m.seq > (SELECT min(seq) FROM gone) GROUP BY 1";

/// How many messages there are of each kind. A message with an outcome counts until the store forgets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Open messages. A recurring message counts by its occurrence.
    pub waiting: u64,
    /// Recurring messages.
    pub recurring: u64,
    /// How many of those that wait are due before each of the given times.
    pub due_before: Vec<u64>,
    /// The first due time of those that wait.
    pub first_due_ms: Option<i64>,
    /// How many of those that wait have failed at least once.
    pub retrying: u64,
    /// How many of those that wait may have arrived.
    pub may_have_arrived: u64,
    /// Messages that arrived.
    pub delivered: u64,
    /// Messages that were cancelled or withdrawn.
    pub cancelled: u64,
    /// Messages that were given up, and not requeued since.
    pub dead: u64,
    /// Messages that expired, and were not requeued since.
    pub expired: u64,
    /// Dead letters that are kept.
    pub dead_letters: u64,
    /// The time of the last outcome.
    pub last_outcome_ms: Option<i64>,
    /// The time of the last commit.
    pub committed_ms: Option<i64>,
    /// Since when sending is paused.
    pub paused_ms: Option<i64>,
    /// Paused keys.
    pub paused_keys: u64,
    /// The first 200 characters of the twenty keys that were paused first.
    pub paused_key_names: Vec<String>,
    /// Since when the destination is down.
    pub down_since_ms: Option<i64>,
    /// Why it is down.
    pub down_reason: Option<String>,
}

impl Snapshot {
    /// The figures; those of `due_before` at these times. O(messages): about a second for ten million, and two where
    /// dead letters were requeued.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn status(&self, due_before_ms: &[i64]) -> std::result::Result<Status, DeliveryError> {
        self.ask(|db| status(db, due_before_ms))
    }

    /// The number of paused keys.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn paused_keys(&self) -> std::result::Result<u64, DeliveryError> {
        self.ask(|db| count(db, "SELECT count(*) FROM paused_keys"))
    }
}

fn status(db: &Connection, due_before_ms: &[i64]) -> Result<Status> {
    let open = "SELECT count(*), count(*) FILTER (WHERE may_have_arrived), min(due_ms) FROM open_messages";
    let (waiting, may_have_arrived, first_due_ms): (i64, i64, _) = db.query_row(open, [], |row| row.try_into())?;
    let mut due = db.prepare("SELECT count(*) FROM open_messages WHERE due_ms < ?")?;
    let due_before = due_before_ms.iter().map(|until_ms| Ok(due.query_row([until_ms], number)?));
    let mut ended = [0; 7];
    add(db, &mut ended, "SELECT outcome, count(*) FROM ledger GROUP BY 1", 1)?;
    if ended[Outcome::Dead as usize] + ended[Outcome::Expired as usize] > 0 {
        add(db, &mut ended, REQUEUED, -1)?;
    }
    let of = |outcome: Outcome| ended[outcome as usize] as u64;
    let named = "SELECT substr(key, 1, 200) FROM paused_keys ORDER BY since_ms, lane LIMIT ?";
    Ok(Status {
        waiting: waiting as u64,
        recurring: db.query_row("SELECT count(*) FROM waiting WHERE due_ms = ?", [NEVER_MS], number)?,
        due_before: due_before.collect::<Result<_>>()?,
        first_due_ms,
        retrying: count(db, "SELECT count(*) FROM attempts")?,
        may_have_arrived: may_have_arrived as u64,
        delivered: of(Outcome::Delivered),
        cancelled: of(Outcome::Cancelled) + of(Outcome::Withdrawn),
        dead: of(Outcome::Dead),
        expired: of(Outcome::Expired),
        dead_letters: count(db, "SELECT count(*) FROM dead_letters")?,
        last_outcome_ms: rows(db, "SELECT at_ms FROM ledger ORDER BY n DESC LIMIT 1", [], |row| row.get(0))?.pop(),
        committed_ms: meta::get(db, "committed_ms")?,
        paused_ms: meta::get(db, PAUSED)?,
        paused_keys: count(db, "SELECT count(*) FROM paused_keys")?,
        paused_key_names: rows(db, named, [NAMED], |row| text(row, 0))?,
        down_since_ms: meta::get(db, "down_since_ms")?,
        down_reason: meta::get(db, "down_reason")?,
    })
}

/// Adds counts of outcomes, `times` each, to `sums`.
fn add(db: &Connection, sums: &mut [i64; 7], counts: &str, times: i64) -> Result<()> {
    for (outcome, count) in rows(db, counts, [], |row| Ok((row.get::<_, Outcome>(0)?, row.get::<_, i64>(1)?)))? {
        sums[outcome as usize] += times * count;
    }
    Ok(())
}

fn count(db: &Connection, query: &str) -> Result<u64> {
    Ok(db.query_row(query, [], number)?)
}

fn number(row: &rusqlite::Row<'_>) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(0)? as u64)
}
