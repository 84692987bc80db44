//! The figures of a report about a store (D11): what became of its messages, what is due next, and the busiest keys.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::snapshot::{Snapshot, rows, text};
use crate::base::error::DeliveryError;
use crate::store::sql::Result;
use crate::store::types::Outcome;

/// Counts of the messages in a store: `accepted = delivered + cancelled + undeliverable + waiting`. A message counts until
/// the store forgets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of them.
    pub accepted: i64,
    /// How many arrived.
    pub delivered: i64,
    /// How many were cancelled or withdrawn.
    pub cancelled: i64,
    /// How many were given up, or have expired.
    pub undeliverable: i64,
    /// Dead letters since the store was made, also those that it has forgotten.
    pub dead_letters: i64,
    /// Open messages.
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
    /// How many arrived.
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
    /// The key.
    pub key: String,
    /// How many messages it has.
    pub messages: i64,
    /// How many of them wait.
    pub waiting: i64,
}

impl Snapshot {
    /// The counts at this time. Messages with `most_attempts` and more are counted together. O(messages).
    ///
    /// # Errors
    /// The store can't be read.
    pub fn counts(&self, now_ms: i64, most_attempts: u32) -> std::result::Result<Counts, DeliveryError> {
        self.ask(|db| counts(db, now_ms, most_attempts))
    }

    /// What a forecast is about; `None` if nothing waits. O(open messages).
    ///
    /// # Errors
    /// The store can't be read.
    pub fn ahead(&self, now_ms: i64) -> std::result::Result<Option<Ahead>, DeliveryError> {
        self.ask(|db| ahead(db, now_ms))
    }

    /// How many open messages are due in each step from `from_ms` and before `end_ms`, by the start of the step. Steps
    /// without messages are left out.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn due_by_step(
        &self,
        from_ms: i64,
        end_ms: i64,
        step_ms: i64,
    ) -> std::result::Result<Vec<(i64, i64)>, DeliveryError> {
        let query =
            "SELECT due_ms / ?3 * ?3, count(*) FROM open_messages WHERE due_ms >= ?1 AND due_ms < ?2 GROUP BY 1";
        self.ask(|db| rows(db, query, [from_ms, end_ms, step_ms], |row| row.try_into()))
    }

    /// The keys with the most messages, the busiest first. O(messages).
    ///
    /// # Errors
    /// The store can't be read.
    pub fn busy_keys(&self, limit: usize) -> std::result::Result<Vec<BusyKey>, DeliveryError> {
        let query = "
            WITH most AS (
                SELECT key, count(*) AS messages FROM messages WHERE key IS NOT NULL AND outcome IS NOT 4 -- moved
                GROUP BY key ORDER BY 2 DESC, 1 LIMIT ?
            ), open AS (
                SELECT key, count(*) AS waiting FROM open_messages JOIN messages USING (seq)
                WHERE key IN (SELECT key FROM most) GROUP BY key
            )
            SELECT key, messages, ifnull(waiting, 0) FROM most LEFT JOIN open USING (key) ORDER BY 2 DESC, key";
        let key =
            |row: &rusqlite::Row<'_>| Ok(BusyKey { key: text(row, 0)?, messages: row.get(1)?, waiting: row.get(2)? });
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
    let letters = "SELECT ifnull(max(n), 0) FROM dead_letters";
    let (waiting, overdue, may_have_arrived) = db.query_row(open, [now_ms], |row| row.try_into())?;
    let dead_letters = db.query_row(letters, [], |row| row.get(0))?;
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
