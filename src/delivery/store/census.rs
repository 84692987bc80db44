//! How many messages wait in the file, counted by a connection of its own: the writer goes on meanwhile.

#![forbid(unsafe_code)]

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, params};

use crate::delivery::error::StoreError;

const PATIENCE: Duration = Duration::from_secs(5);

/// The first due time, and how many are due by each of the given times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// `None`: nothing waits.
    pub first_due_ms: Option<i64>,
    /// In the order of the times.
    pub due: Vec<u64>,
}

/// Counts rows of `waiting`, at most so many for each time. Messages that are only in memory have no row there.
///
/// # Errors
/// The store cannot be read.
pub fn census(path: &Path, until_ms: &[i64], most: u64) -> Result<Census, StoreError> {
    let count = || -> rusqlite::Result<Census> {
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        db.busy_timeout(PATIENCE)?;
        let first_due_ms = db.query_row("SELECT min(due_ms) FROM waiting", [], |row| row.get(0))?;
        let text = "SELECT count(*) FROM (SELECT 1 FROM waiting WHERE due_ms <= ? LIMIT ?)";
        let mut statement = db.prepare(text)?;
        let due = until_ms.iter().map(|until_ms| {
            statement.query_row(params![until_ms, most as i64], |row| row.get::<_, i64>(0).map(|count| count as u64))
        });
        let due = due.collect::<rusqlite::Result<_>>()?;
        Ok(Census { first_due_ms, due })
    };
    count().map_err(|error| StoreError::because(path, &error))
}
