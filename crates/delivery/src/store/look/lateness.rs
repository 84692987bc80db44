//! How late messages arrived, by the ledger (D11). A message found at its destination after a crash has no lateness.

use super::snapshot::{Snapshot, rows};
use crate::base::error::DeliveryError;

/// Messages that arrived, and their lateness: percentiles by nearest rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    /// The start of the step in which they arrived.
    pub start_ms: i64,
    /// How many they are.
    pub messages: i64,
    /// At p50, p99, p999, and the most.
    pub lateness_us: [i64; 4],
}

impl Snapshot {
    /// How many messages with a lateness arrived, the first time and the last time; `None` if there are none.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn arrivals(&self) -> Result<Option<(i64, i64, i64)>, DeliveryError> {
        let query = "SELECT count(*), min(at_ms), max(at_ms) FROM ledger WHERE outcome = 1 AND lateness_us IS NOT NULL \
                     HAVING count(*) > 0";
        Ok(self.ask(|db| rows(db, query, [], |row| row.try_into()))?.pop())
    }

    /// The lateness of the messages that arrived in each step; steps without messages are left out. SQLite sorts and
    /// ranks, on disk where it is much, so that memory does not grow with the ledger. O(rows log rows).
    ///
    /// # Errors
    /// The store can't be read.
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
        let late = |row: &rusqlite::Row<'_>| {
            let lateness_us = [row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?];
            Ok(Late { start_ms: row.get(0)?, messages: row.get(1)?, lateness_us })
        };
        self.ask(|db| rows(db, query, [step_ms], late))
    }

    /// How many messages arrived at most this late and later than the bound before, for each of these bounds, which
    /// ascend. O(rows).
    ///
    /// # Errors
    /// The store can't be read.
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
