//! The mark of a backup, which delivers nothing before it is restored (D20).
//!
//! Delivered as it is, it would give new messages the numbers that its store gave to others since, and a destination that
//! knows messages by `(store, seq)` would take the new ones for the old.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use crate::base::error::{DeliveryError, StoreError};

/// In `meta`: when it was made, by the wall clock.
const NAME: &str = "backup_ms";

/// Of a backup of a backup, the first one counts.
pub(in crate::store) fn put(db: &Connection, now_ms: i64) -> rusqlite::Result<()> {
    db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (NAME, now_ms)).map(|_| ())
}

/// It is a store now.
pub(in crate::store) fn remove(db: &Connection) -> rusqlite::Result<()> {
    db.execute("DELETE FROM meta WHERE name = ?", [NAME]).map(|_| ())
}

/// Errors: `Usage` if this store is a backup.
pub(in crate::store) fn refuse(db: &Connection, path: &Path) -> Result<(), DeliveryError> {
    let is_there = db.query_row("SELECT 1 FROM meta WHERE name = ?", [NAME], |_| Ok(())).optional();
    match is_there.map_err(|error| StoreError::because(path, &error))? {
        None => Ok(()),
        Some(()) => Err(DeliveryError::Usage(format!(
            "{path} is a backup, which delivers nothing: make a store of it with tickwheel store restore {path} STORE",
            path = path.display()
        ))),
    }
}
