//! A store in figures: how many messages there are of each kind now (D14), and for a report (D11) what became of them, what is
//! due next, and the busiest keys.

#![expect(clippy::missing_errors_doc, reason = "each fails if the store can't be read: see `Snapshot`")]

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::snapshot::{Snapshot, text};
use crate::base::error::DeliveryError;
use crate::message::recurrence::NEVER_MS;
use crate::store::replica;
use crate::store::sql::{Result, cached, rows};
use crate::store::tables::meta::{self, PAUSED};
use crate::store::types::Outcome;

/// How many paused keys are named.
const NAMED: i64 = 20;

/// Those that were not requeued, and are not too many.
const KEPT_LETTERS: &str = "SELECT count(*) FROM dead_letters";

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
    pub recurring: u64,
    /// How many of those that wait are due before each of the given times.
    pub due_before: Vec<u64>,
    /// The first due time of those that wait.
    pub first_due_ms: Option<i64>,
    /// How many of those that wait have failed at least once.
    pub retrying: u64,
    /// How many of those that wait may have arrived.
    pub may_have_arrived: u64,
    pub delivered: u64,
    /// Messages that were cancelled or withdrawn.
    pub cancelled: u64,
    /// Messages that were given up, and not requeued since.
    pub dead: u64,
    /// Messages that expired, and were not requeued since.
    pub expired: u64,
    /// Dead letters that are kept.
    pub dead_letters: u64,
    pub last_outcome_ms: Option<i64>,
    pub committed_ms: Option<i64>,
    pub paused_ms: Option<i64>,
    pub paused_until_ms: Option<i64>,
    pub paused_keys: u64,
    /// The first 200 characters of the twenty keys that were paused first.
    pub paused_key_names: Vec<String>,
    /// The twenty pauses that end first by themselves: of what, the first 200 characters of its name, and when.
    pub pause_ends: Vec<(String, String, i64)>,
    pub down_since_ms: Option<i64>,
    pub down_reason: Option<String>,
    /// How many of those that wait would be let go by an event.
    pub waiting_for_events: u64,
    pub remembered_events: u64,
}

impl Snapshot {
    /// The figures; those of `due_before` at these times. O(messages): about a second for ten million, and two where
    /// dead letters were requeued.
    pub fn status(&self, due_before_ms: &[i64]) -> Result<Status, DeliveryError> {
        self.ask(|db| status(db, due_before_ms))
    }

    /// When the pause of all messages ends by itself.
    pub fn paused_until_ms(&self) -> Result<Option<i64>, DeliveryError> {
        self.ask(|db| pause_end(db, "all", ""))
    }

    /// The last take-over that a replicated file has: its number, host and process id.
    pub fn last_owner(&self) -> Result<Option<(i64, String, u32)>, DeliveryError> {
        self.ask(replica::last_owner)
    }

    /// The number of paused keys.
    pub fn paused_keys(&self) -> Result<u64, DeliveryError> {
        self.ask(|db| count(db, "SELECT count(*) FROM paused_keys"))
    }

    /// The number of dead letters that are kept.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn dead_letters(&self) -> std::result::Result<u64, DeliveryError> {
        self.ask(|db| count(db, KEPT_LETTERS))
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
    let ends = "SELECT part, substr(name, 1, 200), until_ms FROM pause_ends ORDER BY until_ms, part, name LIMIT ?";
    Ok(Status {
        waiting: waiting as u64,
        recurring: db.query_row("SELECT count(*) FROM waiting WHERE due_ms = ?", [NEVER_MS], number)?,
        due_before: due_before.collect::<Result<_>>()?,
        first_due_ms,
        retrying: count(db, "SELECT count(*) FROM attempts WHERE attempts > 0")?,
        may_have_arrived: may_have_arrived as u64,
        delivered: of(Outcome::Delivered),
        cancelled: of(Outcome::Cancelled) + of(Outcome::Withdrawn),
        dead: of(Outcome::Dead),
        expired: of(Outcome::Expired),
        dead_letters: count(db, KEPT_LETTERS)?,
        last_outcome_ms: rows(db, "SELECT at_ms FROM ledger ORDER BY n DESC LIMIT 1", [], |row| row.get(0))?.pop(),
        committed_ms: meta::get(db, "committed_ms")?,
        paused_ms: meta::get(db, PAUSED)?,
        paused_until_ms: pause_end(db, "all", "")?,
        paused_keys: count(db, "SELECT count(*) FROM paused_keys")?,
        paused_key_names: rows(db, named, [NAMED], |row| text(row, 0))?,
        pause_ends: rows(db, ends, [NAMED], |row| Ok((text(row, 0)?, text(row, 1)?, row.get(2)?)))?,
        down_since_ms: meta::get(db, "down_since_ms")?,
        down_reason: meta::get(db, "down_reason")?,
        waiting_for_events: count(db, "SELECT count(*) FROM waits WHERE event IS NULL")?,
        remembered_events: count(db, "SELECT count(*) FROM events WHERE until_ms IS NOT NULL")?,
    })
}

/// When the pause of a part ends by itself.
pub(super) fn pause_end(db: &Connection, part: &str, name: &str) -> rusqlite::Result<Option<i64>> {
    let find = "SELECT until_ms FROM pause_ends WHERE part = ? AND name = ?";
    cached(db, find)?.query_row([part, name], |row| row.get(0)).optional()
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

fn number(row: &Row<'_>) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(0)? as u64)
}

/// Counts of the messages in a store: `accepted = delivered + cancelled + undeliverable + waiting`. A message counts until
/// the store forgets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of them.
    pub accepted: i64,
    pub delivered: i64,
    /// How many were cancelled or withdrawn.
    pub cancelled: i64,
    /// How many were given up, or have expired.
    pub undeliverable: i64,
    /// Dead letters that are kept.
    pub dead_letters: i64,
    pub waiting: i64,
    /// How many of these are due.
    pub overdue: i64,
    /// How many arrived, and may have arrived before.
    pub redelivered: i64,
    /// How many of those that wait may have arrived.
    pub may_have_arrived: i64,
    /// The time of the first known outcome.
    pub since_ms: Option<i64>,
    /// Messages by their number of attempts.
    pub tried: Vec<Tried>,
}

/// Messages with this number of attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The last number stands for more attempts, too.
    pub attempts: u32,
    pub delivered: i64,
    /// How many were given up, or have expired.
    pub given_up: i64,
}

/// The open messages that a forecast is about: those due from now on; or all, if all are overdue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// When the first of them may be due.
    pub from_ms: i64,
    /// Nine of ten are due by then.
    pub most_ms: i64,
    /// All are due by then.
    pub last_ms: i64,
    /// How many there are.
    pub messages: i64,
    /// Whether all are overdue.
    pub is_past: bool,
}

/// A key, and its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyKey {
    pub key: String,
    /// How many messages it has.
    pub messages: i64,
    /// How many of them wait.
    pub waiting: i64,
}

impl Snapshot {
    /// The counts at this time. Messages with `most_attempts` and more are counted together. O(messages).
    pub fn counts(&self, now_ms: i64, most_attempts: u32) -> Result<Counts, DeliveryError> {
        self.ask(|db| counts(db, now_ms, most_attempts))
    }

    /// What a forecast is about; `None` if nothing waits. O(open messages).
    pub fn ahead(&self, now_ms: i64) -> Result<Option<Ahead>, DeliveryError> {
        self.ask(|db| ahead(db, now_ms))
    }

    /// How many open messages are due in each step from `from_ms` and before `end_ms`, by the start of the step. Steps
    /// without messages are left out.
    pub fn due_by_step(&self, from_ms: i64, end_ms: i64, step_ms: i64) -> Result<Vec<(i64, i64)>, DeliveryError> {
        let query =
            "SELECT due_ms / ?3 * ?3, count(*) FROM open_messages WHERE due_ms >= ?1 AND due_ms < ?2 GROUP BY 1";
        self.ask(|db| rows(db, query, [from_ms, end_ms, step_ms], |row| row.try_into()))
    }

    /// The keys with the most messages, the busiest first. O(messages).
    pub fn busy_keys(&self, limit: usize) -> Result<Vec<BusyKey>, DeliveryError> {
        let query = "
            WITH most AS (
                SELECT key, count(*) AS messages FROM messages WHERE key IS NOT NULL AND outcome IS NOT 4 -- moved
                GROUP BY key ORDER BY 2 DESC, 1 LIMIT ?
            ), open AS (
                SELECT key, count(*) AS waiting FROM open_messages JOIN messages USING (seq)
                WHERE key IN (SELECT key FROM most) GROUP BY key
            )
            SELECT key, messages, ifnull(waiting, 0) FROM most LEFT JOIN open USING (key) ORDER BY 2 DESC, key";
        let key = |row: &Row<'_>| Ok(BusyKey { key: text(row, 0)?, messages: row.get(1)?, waiting: row.get(2)? });
        self.ask(|db| rows(db, query, [limit as i64], key))
    }
}

fn counts(db: &Connection, now_ms: i64, most_attempts: u32) -> Result<Counts> {
    // Most messages are usual, and need no sorting.
    let usual = "outcome = 1 AND attempts = 1 AND NOT redelivered";
    let what = "outcome, min(attempts, ?1), redelivered, count(*), min(at_ms)";
    let query = format!(
        "SELECT {what} FROM ledger WHERE NOT ({usual}) GROUP BY 1, 2, 3 \
         UNION ALL SELECT {what} FROM ledger WHERE {usual} HAVING count(*) > 0"
    );
    let open = "SELECT count(*), count(*) FILTER (WHERE due_ms < ?), count(*) FILTER (WHERE may_have_arrived) FROM open_messages";
    let (waiting, overdue, may_have_arrived) = db.query_row(open, [now_ms], |row| row.try_into())?;
    let dead_letters = count(db, KEPT_LETTERS)?.cast_signed();
    let mut counts =
        Counts { accepted: waiting, dead_letters, waiting, overdue, may_have_arrived, ..Counts::default() };
    let mut tried = BTreeMap::<u32, (i64, i64)>::new();
    let groups: Vec<(Outcome, u32, bool, i64, i64)> = rows(db, &query, [most_attempts], |row| row.try_into())?;
    for (outcome, attempts, redelivered, messages, first_ms) in groups {
        let of_attempts = tried.entry(attempts).or_default();
        match outcome {
            Outcome::Moved => continue, // it goes on under another number
            Outcome::Cancelled | Outcome::Withdrawn => counts.cancelled += messages,
            Outcome::Dead | Outcome::Expired => {
                counts.undeliverable += messages;
                of_attempts.1 += messages;
            }
            Outcome::Delivered => {
                counts.delivered += messages;
                of_attempts.0 += messages;
                counts.redelivered += if redelivered { messages } else { 0 };
            }
        }
        counts.accepted += messages;
        counts.since_ms = Some(counts.since_ms.map_or(first_ms, |since_ms| since_ms.min(first_ms)));
    }
    tried.retain(|attempts, (delivered, given_up)| *attempts > 0 && *delivered + *given_up > 0);
    let of = |(attempts, (delivered, given_up))| Tried { attempts, delivered, given_up };
    counts.tried = tried.into_iter().map(of).collect();
    Ok(counts)
}

fn ahead(db: &Connection, now_ms: i64) -> Result<Option<Ahead>> {
    let open = "SELECT count(*), count(*) FILTER (WHERE due_ms < ?), min(due_ms), max(due_ms) FROM open_messages";
    let (waiting, overdue, first_ms, last_ms): (i64, i64, Option<i64>, Option<i64>) =
        db.query_row(open, [now_ms], |row| row.try_into())?;
    let (Some(first_ms), Some(last_ms)) = (first_ms, last_ms) else { return Ok(None) };
    let is_past = overdue == waiting;
    let (from_ms, messages) = if is_past { (first_ms, waiting) } else { (now_ms, waiting - overdue) };
    let place = ((messages - 1) * 9 / 10).max(1).min(messages - 1);
    let query = "SELECT due_ms FROM open_messages WHERE due_ms >= ? ORDER BY due_ms LIMIT 1 OFFSET ?";
    let most_ms = db.query_row(query, params![from_ms, place], |row| row.get(0))?;
    Ok(Some(Ahead { from_ms, most_ms, last_ms, messages, is_past }))
}
