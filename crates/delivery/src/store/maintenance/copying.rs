//! Copies one moment of a store into a new file.

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::check::{Checked, check_snapshot};
use super::{Stop, because, close, open};
use crate::base::error::DeliveryError;
use crate::store::file::new_file::NewFile;
use crate::store::look::snapshot::Snapshot;

/// Pages copied between two checks for a stop.
const STEP: i32 = 2_000;

/// Copies page by page, makes the change, and checks the copy. When it returns, the copy is complete and on the disk.
pub(super) fn copy_into(
    new: &NewFile,
    source: Snapshot,
    stop: &Stop,
    change: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<Checked, DeliveryError> {
    let mut db = open(&new.path)?;
    stop.watch(&db)?;
    let failed = |error: rusqlite::Error| stop.or(because(&new.path, &error));
    // The file counts only when it is complete and synced, so the copying itself neither syncs nor undoes anything.
    db.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF").map_err(failed)?;
    {
        let copying = Backup::new(source.db(), &mut db).map_err(failed)?;
        while copying.step(STEP).map_err(failed)? != StepResult::Done {
            stop.check()?;
        }
    }
    source.close()?;
    // Like its source, the copy would have a log beside it. This turns it into a single file.
    db.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(())).and_then(|()| change(&db)).map_err(failed)?;
    close(&new.path, db)?;
    let copy = Snapshot::open_unshared(&new.path)?;
    let checked = check_snapshot(&copy, stop)?;
    copy.close()?;
    new.sync()?;
    Ok(checked)
}
