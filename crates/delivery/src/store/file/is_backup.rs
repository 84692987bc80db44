//! The mark of a backup, which delivers nothing until it is restored (D20).
//!
//! Without a restore, a backup would give new messages the same numbers that its store has given to others since. A
//! destination that knows messages by `(store, seq)` would then take a new message for an old one.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use crate::base::error::{DeliveryError, StoreError};

/// The name in `meta`. The value is when the backup was made, by the wall clock.
const NAME: &str = "backup_ms";

/// Marks the file. If a backup is made from a backup, the first mark stays.
pub(in crate::store) fn put(db: &Connection, now_ms: i64) -> rusqlite::Result<()> {
    db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (NAME, now_ms)).map(|_| ())
}

/// Removes the mark, so that the file is a store.
pub(in crate::store) fn remove(db: &Connection) -> rusqlite::Result<()> {
    db.execute("DELETE FROM meta WHERE name = ?", [NAME]).map(|_| ())
}

/// Whether this store is a backup.
pub(in crate::store) fn is_marked(db: &Connection) -> rusqlite::Result<bool> {
    db.query_row("SELECT 1 FROM meta WHERE name = ?", [NAME], |_| Ok(())).optional().map(|found| found.is_some())
}

/// Errors: `Usage` if this store is a backup.
pub(in crate::store) fn refuse(db: &Connection, path: &Path) -> Result<(), DeliveryError> {
    if is_marked(db).map_err(|error| StoreError::because(path, &error))? {
        return Err(DeliveryError::Usage(format!(
            "{path} is a backup, which delivers nothing: make a store of it with tickwheel store restore {path} STORE",
            path = path.display()
        )));
    }
    Ok(())
}
