//! Gives every free page of a store back to the disk (D20), while nothing delivers from it.
//!
//! A deliverer gives pages back too, a few at a time and only where a quarter of the file is free. Here the file is written anew,
//! so its tables are in one piece after it. SQLite does that in the log, so a crash at any moment leaves the store as it was.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::{Stop, because, close, open};
use crate::base::error::{DeliveryError, StoreError};
use crate::store::file::new_file::beside;
use crate::store::file::owner::Ownership;
use crate::store::look::snapshot::Snapshot;

/// How long a reader may be in the way.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of a store with its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub before: u64,
    pub after: u64,
}

/// Needs as much room again in the folder, and in the one for temporary files, until it is done. Some 10 s for 1 GB.
///
/// # Errors
/// `Usage` if there is no store of this version, or it is in use; the store can't be written, with nothing lost;
/// [`DeliveryError::Closed`] after a stop.
pub fn compact(path: &Path, stop: &Stop) -> Result<Sizes, DeliveryError> {
    Snapshot::open(path)?.close()?;
    let ownership = Ownership::try_take(path)?;
    let path = ownership.path();
    let before = size(path);
    let db = open(path)?;
    let done = stop.watch(&db).and_then(|()| {
        let is_in_the_way = vacuum(&db).map_err(|error| stop.or(because(path, &error)))?;
        if is_in_the_way {
            let what = "another process reads it, so its room can't be given back yet";
            return Err(StoreError::new(path, what, "end that, and run again: nothing is lost").into());
        }
        Ok(())
    });
    close(path, db)?;
    done?;
    Ok(Sizes { before, after: size(path) })
}

/// Whether a reader has kept the log from being moved to its place.
fn vacuum(db: &rusqlite::Connection) -> rusqlite::Result<bool> {
    db.busy_timeout(PATIENCE)?;
    db.execute_batch("PRAGMA temp_store = FILE; VACUUM")?;
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
}

fn size(path: &Path) -> u64 {
    let of = |file: &Path| fs::metadata(file).map_or(0, |found| found.len());
    of(path) + of(&beside(path, "-wal"))
}
