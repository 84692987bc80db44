//! What reports and analyses read of many messages (D11, S6): how late they arrived, and all messages in slices.
//!
//! - A message that was found at its destination after a crash has no lateness.
//! - Each slice is read in a short transaction of its own. The slices show one state: that of the last outcome when the
//!   reading began. A message that has ended since still counts as open. A message that is forgotten meanwhile is missed.

#![expect(clippy::missing_errors_doc, reason = "each fails if the store can't be read: see `Snapshot`")]

use rusqlite::{Row, params};

use super::message::{ENDED, Seen, ended};
use super::snapshot::{Snapshot, optional_text, text};
use crate::base::error::{DeliveryError, OTHER_CONTENT};
use crate::message::recurrence::NEVER_MS;
use crate::store::sql::rows;
use crate::store::types::Position;

/// Messages that arrived, and their lateness: percentiles by nearest rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    /// The start of the step in which they arrived.
    pub start_ms: i64,
    pub messages: i64,
    /// At p50, p99, p999, and the most.
    pub lateness_us: [i64; 4],
}

impl Snapshot {
    /// How many messages with a lateness arrived, the first time and the last time; `None` if there are none.
    pub fn arrivals(&self) -> Result<Option<(i64, i64, i64)>, DeliveryError> {
        let query = "SELECT count(*), min(at_ms), max(at_ms) FROM ledger WHERE outcome = 1 AND lateness_us IS NOT NULL \
                     HAVING count(*) > 0";
        Ok(self.ask(|db| rows(db, query, [], |row| row.try_into()))?.pop())
    }

    /// The lateness of the messages that arrived in each step; steps without messages are left out. SQLite sorts and
    /// ranks, on disk where it is much, so that memory does not grow with the ledger. O(rows log rows).
    pub fn lateness_by_step(&self, step_ms: i64) -> Result<Vec<Late>, DeliveryError> {
        let query = "
            SELECT step * ?1, count, max(lateness_us) FILTER (WHERE place = (count * 50 + 99) / 100),
                max(lateness_us) FILTER (WHERE place = (count * 99 + 99) / 100),
                max(lateness_us) FILTER (WHERE place = (count * 999 + 999) / 1000), max(lateness_us)
            FROM (
                SELECT at_ms / ?1 AS step, lateness_us,
                    row_number() OVER (PARTITION BY at_ms / ?1 ORDER BY lateness_us) AS place,
                    count(*) OVER (PARTITION BY at_ms / ?1) AS count
                FROM ledger WHERE outcome = 1 AND lateness_us IS NOT NULL
            ) GROUP BY step ORDER BY step";
        let late = |row: &Row<'_>| {
            let lateness_us = [row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?];
            Ok(Late { start_ms: row.get(0)?, messages: row.get(1)?, lateness_us })
        };
        self.ask(|db| rows(db, query, [step_ms], late))
    }

    /// How many messages arrived at most this late and later than the bound before, for each of these bounds, which
    /// ascend. O(rows).
    pub fn lateness_by_size(&self, bounds_us: &[i64]) -> Result<Vec<u64>, DeliveryError> {
        self.ask(|db| {
            let mut counts = vec![0; bounds_us.len()];
            let mut select =
                db.prepare("SELECT lateness_us FROM ledger WHERE outcome = 1 AND lateness_us IS NOT NULL")?;
            let mut found = select.query([])?;
            while let Some(row) = found.next()? {
                let late_us: i64 = row.get(0)?;
                if let Some(count) = counts.get_mut(bounds_us.partition_point(|bound_us| *bound_us < late_us)) {
                    *count += 1;
                }
            }
            Ok::<_, rusqlite::Error>(counts)
        })
    }
}

/// The state of a store at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The store's unique name.
    pub store_id: String,
    /// The first row of the ledger; 1 if there is none.
    pub first_n: i64,
    /// Its last row; 0 if there is none.
    pub last_n: i64,
    /// The message that was accepted last; 0 if there is none.
    pub last_seq: i64,
    /// Dead letters since the store was made.
    pub dead_letters: i64,
    /// How many of the kept ones have a name that was known with other content.
    pub conflicts: i64,
}

impl Snapshot {
    /// The state now.
    pub fn extent(&self) -> Result<Extent, DeliveryError> {
        let query = "
            SELECT (SELECT value FROM meta WHERE name = 'store_id'),
                ifnull((SELECT min(n) FROM ledger), 1), ifnull((SELECT max(n) FROM ledger), 0),
                ifnull((SELECT max(seq) FROM messages), 0), ifnull((SELECT max(n) FROM dead_letters), 0),
                (SELECT count(*) FROM dead_letters WHERE reason = ?)";
        let extent = |row: &Row<'_>| {
            Ok(Extent {
                store_id: text(row, 0)?,
                first_n: row.get(1)?,
                last_n: row.get(2)?,
                last_seq: row.get(3)?,
                dead_letters: row.get(4)?,
                conflicts: row.get(5)?,
            })
        };
        self.ask(|db| db.query_row(query, [OTHER_CONTENT.0], extent))
    }

    /// The position of the open message that is this many messages after a position; `None` if there are fewer.
    pub fn open_after(&self, after: Position, messages: usize) -> Result<Option<Position>, DeliveryError> {
        let query =
            "SELECT due_ms, seq FROM open_messages WHERE (due_ms, seq) > (?, ?) ORDER BY due_ms, seq LIMIT 1 OFFSET ?";
        let values = params![after.0, after.1, messages as i64 - 1];
        Ok(self.ask(|db| rows(db, query, values, |row| row.try_into()))?.pop())
    }

    /// The messages of the rows of the ledger after this one and up to the other. Left out are recurring messages, and
    /// those that went on under another number.
    pub fn ended_slice(&self, after_n: i64, through_n: i64) -> Result<Vec<Seen>, DeliveryError> {
        let query = format!(
            "SELECT {ENDED} FROM ledger l JOIN messages m ON m.seq = l.seq \
             WHERE n > ? AND n <= ? AND l.outcome <> 4 AND due_ms < ?"
        );
        self.ask(|db| rows(db, &query, [after_n, through_n, NEVER_MS], ended))
    }

    /// The messages after one position and up to the other that were open when the store had this last row of
    /// the ledger and this last message.
    pub fn open_slice(
        &self,
        after: Position,
        through: Position,
        (last_n, last_seq): (i64, i64),
    ) -> Result<Vec<Seen>, DeliveryError> {
        let query = "
            SELECT seq, key, id, it.due_ms, may_have_arrived FROM open_messages AS it JOIN messages USING (seq)
            WHERE (it.due_ms, seq) > (?1, ?2) AND (it.due_ms, seq) <= (?3, ?4) AND seq <= ?6
            UNION ALL
            SELECT seq, key, id, due_ms, redelivered FROM ledger JOIN messages USING (seq)
            WHERE n > ?5 AND (due_ms, seq) > (?1, ?2) AND (due_ms, seq) <= (?3, ?4) AND seq <= ?6";
        let open = |row: &Row<'_>| {
            let (seq, due_ms, may_have_arrived) = (row.get(0)?, row.get(3)?, row.get(4)?);
            Ok(Seen {
                seq,
                key: optional_text(row, 1)?,
                id: text(row, 2)?,
                due_ms,
                may_have_arrived,
                ..Seen::default()
            })
        };
        let values = params![after.0, after.1, through.0, through.1, last_n, last_seq];
        self.ask(|db| rows(db, query, values, open))
    }
}
