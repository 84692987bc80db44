//! Gives every free page of a store that no deliverer uses back to the disk (D20).
//!
//! A deliverer gives pages back too, but only a few at a time, and only if a quarter of the file is free. Here SQLite
//! writes the whole file anew, so each table is in one piece afterwards. SQLite does this in the log, so a crash at
//! any moment leaves the store unchanged.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use super::{Stop, because, close, open};
use crate::base::error::{DeliveryError, StoreError};
use crate::store::file::locked_file::beside;
use crate::store::file::owner::Ownership;
use crate::store::look::snapshot::Snapshot;
use crate::store::replica::is_replicated;

/// How long to wait for a reader that blocks the work.
const PATIENCE: Duration = Duration::from_secs(5);

/// The bytes of a store with its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub before: u64,
    pub after: u64,
}

/// Compacts the store at `path`. Until it is done, it needs as much free space again in the folder, and in the folder
/// for temporary files. Takes about 10 s for 1 GB.
///
/// # Errors
/// `Usage` if there is no store of this format, or it is in use; the store can't be written, and nothing is lost;
/// [`DeliveryError::Closed`] after a stop.
pub fn compact(path: &Path, stop: &Stop) -> Result<Sizes, DeliveryError> {
    Snapshot::open(path)?.close()?; // refuses what is no store, before a file is made
    let ownership = Ownership::try_take(path)?;
    let path = ownership.path(); // without symbolic links
    let db = open(path)?;
    if is_replicated(&db).map_err(|broken| broken.of(path))? {
        // Rows without a number of their own would get other ones than in the replicas.
        let text = "a replicated store can't be compacted: its deliverer gives pages back by itself";
        return Err(DeliveryError::Usage(text.to_owned()));
    }
    let before = size(path);
    stop.watch(&db)?;
    if vacuum(&db).map_err(|error| stop.or(because(path, &error)))? {
        let what = "another process reads it, so its room can't be given back yet";
        return Err(StoreError::new(path, what, "end that, and run again: nothing is lost").into());
    }
    let sizes = Sizes { before, after: size(path) };
    close(path, db)?;
    Ok(sizes)
}

/// Compacts the file. Returns whether a reader has kept the log from being moved to its place.
fn vacuum(db: &Connection) -> rusqlite::Result<bool> {
    db.busy_timeout(PATIENCE)?;
    db.execute_batch("PRAGMA temp_store = FILE; VACUUM")?;
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
}

fn size(path: &Path) -> u64 {
    let of = |file: &Path| fs::metadata(file).map_or(0, |found| found.len());
    of(path) + of(&beside(path, "-wal"))
}
