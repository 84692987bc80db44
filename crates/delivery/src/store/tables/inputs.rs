//! How far each input was read (D5, D11). This is committed together with the messages from the input.
//!
//! An input is known by its name. It counts as the same input as before if it still begins with the same bytes.

use std::collections::HashMap;

use rusqlite::params;

use crate::store::sql::{Result, cached};
use crate::store::{Progress, Store};

impl Store {
    /// The progress of each input, by name.
    pub(crate) fn inputs(&self) -> Result<HashMap<String, Progress>> {
        let mut select = cached(&self.db, "SELECT source, line, size, digest FROM inputs")?;
        let progress = |row: &rusqlite::Row<'_>| {
            let (source, line, size): (String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok((source.clone(), Progress { source, line, size, digest: row.get(3)? }))
        };
        Ok(select.query_map([], progress)?.collect::<rusqlite::Result<_>>()?)
    }

    /// Replaces the stored progress of this input.
    pub(crate) fn put_input(&mut self, progress: &Progress) -> Result<()> {
        let Progress { source, line, size, digest } = progress;
        cached(&self.db, "INSERT OR REPLACE INTO inputs (source, line, size, digest) VALUES (?, ?, ?, ?)")?
            .execute(params![source, line, size, digest])?;
        Ok(())
    }
}
