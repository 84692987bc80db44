//! Changes a store that no deliverer uses: gives every free page back to the disk (D20); pauses sending, or resumes it for the
//! next deliverer (D16).
//!
//! A deliverer gives pages back too, but only a few at a time, and only if a quarter of the file is free. Here SQLite
//! writes the whole file anew, so each table is in one piece afterwards. SQLite does this in the log, so a crash at
//! any moment leaves the store unchanged.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use super::{Stop, because, close, open};
use crate::base::display;
use crate::base::error::{DeliveryError, StoreError};
use crate::message::check_name;
use crate::message::incoming::lane_of;
use crate::store::file::locked_file::beside;
use crate::store::file::owner::Ownership;
use crate::store::look::snapshot::Snapshot;
use crate::store::sql::Result as SqlResult;
use crate::store::tables::{meta, requests};
use crate::store::{MOST_PAUSED_KEYS, PAUSED};

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
    on_closed(path, |db, path| {
        let before = size(path);
        stop.watch(db)?;
        if vacuum(db).map_err(|error| stop.or(because(path, &error)))? {
            let what = "another process reads it, so its room can't be given back yet";
            return Err(StoreError::new(path, what, "end that, and run again: nothing is lost").into());
        }
        Ok(Sizes { before, after: size(path) })
    })
}

/// Pauses all messages, or those of a key.
///
/// # Errors
/// `Usage` if there is no store of this format, it is in use, no message can have this key, or too many keys are
/// paused; the store can't be written.
pub fn pause(path: &Path, key: Option<&str>, is_paused: bool, now_ms: i64) -> Result<(), DeliveryError> {
    check_name(key, "any").map_err(|bad| DeliveryError::Usage(bad.to_string()))?;
    on_closed(path, |db, path| {
        let done = || -> SqlResult<bool> {
            match key.zip(lane_of(key)) {
                None => meta::put(db, PAUSED, is_paused.then_some(now_ms)).map(|()| true),
                Some((key, lane)) if is_paused => requests::pause_key(db, lane, key, now_ms),
                Some((_, lane)) => requests::resume_lane(db, lane).map(|()| true),
            }
        };
        if done().map_err(|broken| broken.of(path))? {
            return Ok(());
        }
        let most = display::with_commas(MOST_PAUSED_KEYS as usize);
        Err(DeliveryError::Usage(format!("{most} keys are paused in {}: resume one first", path.display())))
    })
}

/// Does the work while this process owns the store. `work` gets the store's path without symbolic links.
fn on_closed<T>(
    path: &Path,
    work: impl FnOnce(&Connection, &Path) -> Result<T, DeliveryError>,
) -> Result<T, DeliveryError> {
    Snapshot::open(path)?.close()?; // refuses what is no store, before a file is made
    let ownership = Ownership::try_take(path)?;
    let db = open(ownership.path())?;
    let done = work(&db, ownership.path());
    close(ownership.path(), db)?;
    done
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
