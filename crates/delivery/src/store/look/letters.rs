//! The dead letters that the store has kept.

use rusqlite::params;

use super::snapshot::{Snapshot, rows, text};
use crate::base::error::DeliveryError;
use crate::store::types::Letter;

/// A dead letter, with its number and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its number. The first letter of a store has 1.
    pub n: i64,
    /// When it was written.
    pub at_ms: i64,
    /// The letter. Its record is cut.
    pub letter: Letter,
}

impl Snapshot {
    /// Dead letters with numbers before this one, the last one first, with this many bytes of their records.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn letters(&self, before_n: i64, limit: usize, bytes: usize) -> Result<Vec<Kept>, DeliveryError> {
        let query = "SELECT n, at_ms, source, line, reason, allowed, substr(CAST(record AS BLOB), 1, ?) \
                     FROM dead_letters WHERE n < ? ORDER BY n DESC LIMIT ?";
        let kept = |row: &rusqlite::Row<'_>| {
            let letter = Letter {
                source: text(row, 2)?,
                line: row.get(3)?,
                reason: text(row, 4)?,
                allowed: text(row, 5)?,
                record: row.get::<_, Option<_>>(6)?.unwrap_or_default(), // SQLite has no part of an empty record
            };
            Ok(Kept { n: row.get(0)?, at_ms: row.get(1)?, letter })
        };
        self.ask(|db| rows(db, query, params![bytes as i64, before_n, limit as i64], kept))
    }

    /// The number of dead letters that are not written out yet. A deliverer does that when it opens the store.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn unwritten_letters(&self) -> Result<u64, DeliveryError> {
        let query = "SELECT count(*) FROM dead_letters \
                     WHERE n > ifnull((SELECT value FROM meta WHERE name = 'letters_written'), 0)";
        self.ask(|db| db.query_row(query, [], |row| Ok(row.get::<_, i64>(0)? as u64)))
    }
}
