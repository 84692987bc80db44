//! Counts the messages that wait in the file. It has its own connection, so the writer goes on meanwhile.

use std::path::Path;

use rusqlite::params;

use crate::base::error::StoreError;
use crate::store::file::schema;
use crate::store::open::waiting;

/// The first due time, and the number of messages due by each given time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// `None` if nothing waits.
    pub first_due_ms: Option<i64>,
    /// The counts, in the order of the given times.
    pub due: Vec<u64>,
}

impl Census {
    /// Counts a message that has no row in `waiting`.
    pub(crate) fn add(&mut self, due_ms: i64, until_ms: &[i64]) {
        self.first_due_ms = Some(self.first_due_ms.map_or(due_ms, |first| first.min(due_ms)));
        for (due, until_ms) in self.due.iter_mut().zip(until_ms) {
            *due += u64::from(due_ms <= *until_ms);
        }
    }

    /// Counts the rows of `waiting`, at most `most` for each time.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) fn add_rows(&mut self, path: &Path, until_ms: &[i64], most: u64) -> Result<(), StoreError> {
        let mut count = || -> rusqlite::Result<()> {
            let db = schema::connect_to_look(path)?;
            let first_due_ms: Option<i64> = waiting::first_due_ms(&db)?;
            self.first_due_ms = self.first_due_ms.into_iter().chain(first_due_ms).min();
            let mut rows = db.prepare("SELECT count(*) FROM (SELECT 1 FROM waiting WHERE due_ms <= ? LIMIT ?)")?;
            for (due, until_ms) in self.due.iter_mut().zip(until_ms) {
                let count: i64 = rows.query_row(params![until_ms, most as i64], |row| row.get(0))?;
                *due = (*due + count as u64).min(most);
            }
            Ok(())
        };
        count().map_err(|error| StoreError::because(path, &error))
    }
}
