//! Makes a store from a backup (D20).
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

use rusqlite::{Connection, ErrorCode};

use super::copying::copy_into;
use super::{Stop, close, open};
use crate::base::error::{DeliveryError, StoreError};
use crate::base::open_stores::FileId;
use crate::store::RESTORED;
use crate::store::file::is_backup;
use crate::store::file::locked_file::beside;
use crate::store::file::new_file::{NewFile, link_beside, sync_folder};
use crate::store::file::one_name::{REPLACED, is_database};
use crate::store::file::owner::Ownership;
use crate::store::look::snapshot::Snapshot;
use crate::store::sql::cached;

/// Numbers for each millisecond: 4 million messages a second. Until the year 2039 they are exact in JavaScript too.
const NUMBERS_PER_MS: i64 = 4_096;

/// Restores `backup` as `store`. Returns the new path of the replaced store, if there was one.
///
/// `is_forced` allows two things: to replace an existing store, and to use a backup that the check finds faulty.
///
/// # Errors
/// - `Usage`: `backup` is not a store of this version, or `store` is in use or exists and `is_forced` is false.
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
    is_backup::remove(db)?;
    for (name, value) in [
        ("last_seq", now_ms.saturating_mul(NUMBERS_PER_MS)),
        ("sent_until_ms", now_ms),
        ("cursor_due_ms", now_ms),
        ("cursor_seq", i64::MAX),
    ] {
        cached(db, put)?.execute((name, value))?;
    }
    // Occurrences that are not made yet may have been sent too.
    let text = "UPDATE bodies SET recurrence = json_set(recurrence, '$.before', \
                json_set(ifnull(json_extract(recurrence, '$.before'), '{}'), '$.sent_ms', ?1)) \
                WHERE recurrence IS NOT NULL AND ifnull(json_extract(recurrence, '$.before.sent_ms'), 0) < ?1";
    db.execute(text, [now_ms])?;
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, lower(hex(randomblob(8))))", [RESTORED])?;
    db.execute_batch("DELETE FROM held_back; COMMIT")
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
