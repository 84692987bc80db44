//! From version 2 to this version: the pages are copied as they are, and one table gets four columns and an index.

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::from_version_1::Ended;
use crate::store::file::schema::VERSION;

/// Pages that are copied between two calls of `go_on`.
const PAGES: i32 = 2_000;

/// The number of pages to copy.
pub(super) fn count(old: &Connection) -> rusqlite::Result<u64> {
    old.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
}

/// Copies all of `old` into the empty file of `new`. `go_on` gets the number of pages that are copied, and stops the work
/// with `false`.
pub(super) fn copy(old: &Connection, new: &mut Connection, go_on: &mut dyn FnMut(u64) -> bool) -> Result<(), Ended> {
    // The file counts only when it is complete and synced.
    new.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF").map_err(Ended::Failed)?;
    {
        let copying = Backup::new(old, new).map_err(Ended::Failed)?;
        while copying.step(PAGES).map_err(Ended::Failed)? != StepResult::Done {
            let at = copying.progress();
            if !go_on((at.pagecount - at.remaining).max(0) as u64) {
                return Err(Ended::Stopped);
            }
        }
    }
    // In version 2 each attempt counted, also one without an answer.
    new.execute_batch(&format!(
        "ALTER TABLE attempts ADD COLUMN strikes INTEGER NOT NULL DEFAULT 0;
         ALTER TABLE attempts ADD COLUMN waited_ms INTEGER NOT NULL DEFAULT 0;
         ALTER TABLE attempts ADD COLUMN at_ms INTEGER NOT NULL DEFAULT 0;
         ALTER TABLE attempts ADD COLUMN is_unanswered INTEGER NOT NULL DEFAULT 0;
         CREATE INDEX attempts_by_next ON attempts (next_ms);
         UPDATE attempts SET strikes = attempts;
         PRAGMA user_version = {VERSION}"
    ))
    .map_err(Ended::Failed)
}
