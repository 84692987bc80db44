//! Makes a store of a backup (D20).
//!
//! - **New numbers.** A destination may know messages by `(store, seq)`. What the store accepted after the backup is not in it, and
//!   its numbers must not come again for other messages. So the restored store goes on with numbers that follow the wall clock: 4,096
//!   for each millisecond since 1970. No store accepts that many, so no two restores ever give out one number. The id of the store
//!   stays, and what was accepted before keeps its number: a destination knows it as the same message when it comes again. What hands
//!   messages in knows that it was restored, by `restored`: what it handed in since the backup it has to hand in again.
//! - **What may have been delivered since** is all that is due by now. It is marked as after a crash: the destination is asked for
//!   it, and what it does not know is delivered again, as `redelivered`.
//! - **What is replaced stays**, as `STORE.replaced`.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode};

use super::copying::copy_into;
use super::{Stop, close, open};
use crate::base::error::{DeliveryError, StoreError};
use crate::base::open_stores::FileId;
use crate::store::RESTORED;
use crate::store::file::backup_mark;
use crate::store::file::new_file::{NewFile, beside, link_beside, sync_folder};
use crate::store::file::owner::Ownership;
use crate::store::look::snapshot::Snapshot;
use crate::store::sql::cached;

/// Numbers for each millisecond: 4 million messages a second. Up to the year 2039 they are exact in JavaScript too.
const NUMBERS_PER_MS: i64 = 4_096;

/// Where the store is that was replaced, if there was one.
///
/// `is_forced`: also where there is a store, and also a backup in which the check finds something wrong.
///
/// # Errors
/// `Usage` if there is no store of this version to restore, or the other one is in use, or there and not to be replaced; one of
/// both can't be read or written; [`DeliveryError::Closed`] after a stop. Then the other one is as it was.
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
    new.permit_as(if is_there { path } else { backup })?;
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
    backup_mark::remove(db)?;
    for (name, value) in [
        ("last_seq", now_ms.saturating_mul(NUMBERS_PER_MS)),
        ("sent_until_ms", now_ms),
        ("cursor_due_ms", now_ms),
        ("cursor_seq", i64::MAX),
    ] {
        cached(db, put)?.execute((name, value))?;
    }
    // So may occurrences that are not made yet.
    let text = "UPDATE bodies SET recurrence = json_set(recurrence, '$.before', \
                json_set(ifnull(json_extract(recurrence, '$.before'), '{}'), '$.sent_ms', ?1)) \
                WHERE recurrence IS NOT NULL AND ifnull(json_extract(recurrence, '$.before.sent_ms'), 0) < ?1";
    db.execute(text, [now_ms])?;
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, lower(hex(randomblob(8))))", [RESTORED])?;
    db.execute_batch("DELETE FROM held_back; COMMIT")
}

/// The store, which nothing else has open, gets its other name, with what its log has. One that SQLite can't read any more gets
/// it too.
fn set_aside(path: &Path) -> Result<PathBuf, DeliveryError> {
    if is_database(path) {
        end_log(path)?;
    }
    let name = link_beside(path, ".replaced")?;
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

/// By its head: SQLite would remove the log of any other file.
fn is_database(path: &Path) -> bool {
    let mut head = [0; 16];
    File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == *b"SQLite format 3\0"
}

/// After it, all of a readable store is in its one file: a log beside it would be taken for that of the next one.
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
