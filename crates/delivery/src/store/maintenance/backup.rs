//! Makes a backup: a copy of one moment in one file. Makes a store from such a copy (D20).
//!
//! The store may deliver while it is copied. The copy is marked as a backup (`file/schema.rs`), so it must be restored before
//! it delivers. A restore means:
//!
//! - **New numbers.** A destination may know messages by `(store, seq)`. Messages accepted after the backup are not
//!   in it, but no other message may get their numbers. For this reason the restored store goes on with numbers that
//!   follow the wall clock: 4,096 for each millisecond since 1970. No store accepts messages so fast, so two restores
//!   never give out the same number. The store keeps its id, and older messages keep their numbers, so a destination
//!   recognizes them when they come again. A source learns of the restore by the value `restored`: it must hand in
//!   again all messages since the backup.
//! - **Messages that may have been delivered since the backup** are all messages due by now. They are marked as after
//!   a crash. The destination is asked for them, and messages that it does not know are delivered again, as
//!   `redelivered`.
//! - **The replaced store stays**, as `STORE.replaced`.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode};

use super::check::{Checked, check_snapshot};
use super::{Stop, because, close, open};
use crate::base::error::{DeliveryError, StoreError};
use crate::base::open_stores::FileId;
use crate::store::RESTORED;
use crate::store::file::locked_file::beside;
use crate::store::file::new_file::{NewFile, link_beside, sync_folder};
use crate::store::file::one_name::{REPLACED, is_database, refuse_side_name};
use crate::store::file::owner::Ownership;
use crate::store::file::schema;
use crate::store::look::snapshot::Snapshot;
use crate::store::sql::cached;

/// Writes the copy to `to`, which must not exist. The copy is checked: a problem in it was in the store already, or
/// came from copying.
///
/// # Errors
/// `to` exists, or its folder does not; there is no store of this format at `path`; one of the two files can't be
/// read or written; [`DeliveryError::Closed`] after a stop. In each case, this leaves no copy at `to`.
pub fn backup(path: &Path, to: &Path, now_ms: i64, stop: &Stop) -> Result<Checked, DeliveryError> {
    refuse_existing(to)?;
    if let Some(folder) = to.parent().filter(|it| !it.as_os_str().is_empty() && !it.is_dir()) {
        let text = format!("there is no folder {}: make it, or name another file", folder.display());
        return Err(DeliveryError::Usage(text));
    }
    refuse_side_name(to)?;
    let source = Snapshot::open(path)?;
    let new = NewFile::begin(to, ".part")?;
    new.permit_as(path)?;
    let checked = copy_into(&new, source, stop, |db| schema::mark_backup(db, now_ms))?;
    refuse_existing(to)?;
    new.rename_to(to)?;
    let absolute = std::path::absolute(to).unwrap_or_else(|_| to.to_owned());
    sync_folder(&absolute)?;
    Ok(checked)
}

fn refuse_existing(to: &Path) -> Result<(), DeliveryError> {
    if to.symlink_metadata().is_ok() {
        let text = format!("{} exists: name a new file, as a backup is never written over anything", to.display());
        return Err(DeliveryError::Usage(text));
    }
    Ok(())
}

/// Numbers for each millisecond: 4 million messages a second. Until the year 2039 they are exact in JavaScript too.
const NUMBERS_PER_MS: i64 = 4_096;

/// Restores `backup` as `store`. Returns the new path of the replaced store, if there was one.
///
/// `is_forced` allows two things: to replace an existing store, and to use a backup that the check finds faulty.
///
/// # Errors
/// - `Usage`: `backup` is not a store of this format, or `store` is in use or exists and `is_forced` is false.
/// - `Store`: one of the two can't be read or written, or the check finds `backup` faulty and `is_forced` is false.
/// - [`DeliveryError::Closed`]: after a stop.
///
/// In each case `store` is unchanged.
pub fn restore(
    backup: &Path,
    store: &Path,
    is_forced: bool,
    now_ms: i64,
    stop: &Stop,
) -> Result<Option<PathBuf>, DeliveryError> {
    let source = Snapshot::open(backup)?;
    if FileId::at(store).is_some_and(|id| FileId::at(backup) == Some(id)) {
        return Err(DeliveryError::Usage(format!("{} is the backup itself: name another store", store.display())));
    }
    let ownership = Ownership::try_take(store)?;
    let path = ownership.path();
    let is_there = fs::metadata(path).is_ok_and(|found| found.len() > 0) || beside(path, "-wal").exists();
    if is_there && !is_forced {
        let text =
            format!("{} exists: name a new file, or give --force: then it stays as STORE.replaced", store.display());
        return Err(DeliveryError::Usage(text));
    }
    let owner = Snapshot::open(path).and_then(|it| it.last_owner()); // one that can't be read may be replaced
    if is_there && owner.is_ok_and(|it| it.is_some()) {
        let text =
            format!("{} is replicated: restore to a new file, and replicate that by another name", store.display());
        return Err(DeliveryError::Usage(text));
    }
    let new = NewFile::begin(path, ".restoring")?;
    if is_there {
        new.permit_as(path)?;
    }
    let checked = copy_into(&new, source, stop, |db| begin_epoch(db, now_ms))?;
    if let Some(problem) = checked.problems.first().filter(|_| !is_forced) {
        let advice = "restore another backup, or take it as it is with --force";
        return Err(StoreError::new(backup, problem.as_str(), advice).into());
    }
    let replaced = if is_there { Some(set_aside(path)?) } else { None };
    new.rename_to(path)?;
    sync_folder(path)?;
    Ok(replaced)
}

fn begin_epoch(db: &Connection, now_ms: i64) -> rusqlite::Result<()> {
    let put = "INSERT OR REPLACE INTO meta VALUES (?, max(?, ifnull((SELECT value FROM meta WHERE name = ?1), ?2)))";
    db.execute_batch("BEGIN")?;
    schema::unmark_backup(db)?;
    for (name, value) in [("last_seq", now_ms.saturating_mul(NUMBERS_PER_MS)), ("sent_until_ms", now_ms)] {
        cached(db, put)?.execute((name, value))?;
    }
    // Occurrences that are not made yet may have been sent too.
    let text = "UPDATE bodies SET recurrence = json_set(recurrence, '$.sent_ms', ?1) \
                WHERE recurrence IS NOT NULL AND ifnull(json_extract(recurrence, '$.sent_ms'), 0) < ?1";
    db.execute(text, [now_ms])?;
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, lower(hex(randomblob(8))))", [RESTORED])?;
    let text = "INSERT OR REPLACE INTO cursors SELECT 0, ?1, ?2 UNION SELECT DISTINCT share, ?1, ?2 FROM waiting \
                WHERE share IS NOT NULL";
    db.execute(text, [now_ms, i64::MAX])?;
    // What is restored is alone: it has not what was written after the backup.
    db.execute_batch("DELETE FROM held_back; DELETE FROM meta WHERE name GLOB 'chain*'; COMMIT")
}

/// Gives the store its other name, together with the contents of its log. Nothing else has the store open. A store
/// that SQLite can't read any more is renamed too.
fn set_aside(path: &Path) -> Result<PathBuf, DeliveryError> {
    if is_database(path) {
        end_log(path)?;
    }
    let name = link_beside(path, REPLACED)?;
    for suffix in ["-wal", "-journal"] {
        match fs::rename(beside(path, suffix), beside(&name, suffix)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::new(path, error.to_string(), "make its folder writable").into());
            }
            _ => {}
        }
    }
    let _ = fs::remove_file(beside(path, "-shm")); // SQLite makes it anew
    Ok(name)
}

/// Moves the log of a readable store into its one file. Otherwise a log beside it would be taken for the log of the
/// next store.
fn end_log(path: &Path) -> Result<(), DeliveryError> {
    let db = open(path)?;
    let mode = db.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get::<_, String>(0));
    close(path, db)?;
    match mode {
        Ok(mode) if mode == "delete" => Ok(()),
        Err(error)
            if matches!(error.sqlite_error_code(), Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt)) =>
        {
            Ok(())
        }
        _ => {
            let what = "another process reads it";
            Err(StoreError::new(path, what, "end that, and run again: the store is as it was").into())
        }
    }
}

/// Pages copied between two checks for a stop.
const STEP: i32 = 2_000;

/// Copies page by page, makes the change, and checks the copy. When it returns, the copy is complete and on the disk.
fn copy_into(
    new: &NewFile,
    source: Snapshot,
    stop: &Stop,
    change: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<Checked, DeliveryError> {
    copy(new, source, stop, change)?;
    let copy = Snapshot::open_unshared(&new.path)?;
    let checked = check_snapshot(&copy, stop)?;
    copy.close()?;
    new.sync()?;
    Ok(checked)
}

/// The same, without the check: the copy is complete, and perhaps not on the disk.
pub(in crate::store) fn copy(
    new: &NewFile,
    source: Snapshot,
    stop: &Stop,
    change: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<(), DeliveryError> {
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
    close(&new.path, db)
}
