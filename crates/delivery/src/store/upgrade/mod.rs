//! Turns a store of version 1 or 2 into one of this version. The new file is made beside the old file, never in place. The
//! old file stays as a backup.
//!
//! The steps, in their order. The process may be killed between any two steps, or within one. The next start does the
//! remaining steps, with the same result.
//!
//! | step | files afterwards |
//! |---|---|
//! | lock `STORE.lock`, which a process of version 1 has; of version 2 there is none | |
//! | end the log of `STORE`: it is one complete file | `STORE` |
//! | copy into `STORE.stepping`, locked before it gets a name that anything else opens; sync it | both |
//! | link `STORE` as `STORE.version-N`, a name not yet taken; N is its version | three, two of them one file |
//! | rename `STORE.stepping` to `STORE`; sync the folder | `STORE` and `STORE.version-N` |
//! | remove `STORE.lock` | |
//!
//! - `STORE` exists at each moment, whole, in one version or the other, and locked by this process.
//! - After the rename, a log beside `STORE` would be taken for the new file's log. For this reason the old file
//!   leaves the mode with a log. This works only while no other process reads the file.
//! - A half-made `STORE.stepping` is begun anew. If `STORE.version-N` is the same file as `STORE`, the process that opens
//!   the store removes that name first (`file/one_name.rs`).

mod from_version_1;
mod from_version_2;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossbeam_utils::sync::Parker;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use self::from_version_1::Ended;
use crate::base::error::{DeliveryError, StoreError};
use crate::base::kill_point::kill_point;
use crate::store::file::locked_file::beside;
use crate::store::file::locked_file::unusable;
use crate::store::file::new_file::{NewFile, folder, link_beside, sync_folder};
use crate::store::file::one_name::STEPPED_UP;
use crate::store::file::owner::Ownership;
use crate::store::file::schema::{APPLICATION_ID, VERSION};

/// A finished step, so that the caller can show the progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// The old store is one complete file.
    LogEnded,
    /// Some rows are copied.
    Copied {
        /// The rows copied so far; of a store of version 2 its pages.
        rows: u64,
        /// All of them.
        of: u64,
    },
    /// The new file is complete.
    Synced,
    /// The old file has its second name.
    Linked,
    /// The new file is the store.
    Renamed,
}

const TRY_EVERY: Duration = Duration::from_millis(20);

/// Sizes. A test makes them small.
struct Limits {
    /// Rows between two calls of `go_on`.
    block: u64,
    /// How many times to try to end the log while another process reads the store.
    tries: u32,
    /// Free bytes on the disk; `None`: ask the system.
    free: Option<u64>,
    /// Pages of the new file.
    pages: Option<u32>,
}

const USUAL: Limits = Limits { block: 100_000, tries: 250, free: None, pages: None };

/// Turns a store of an older version into one of this version. Returns the path of the backup, or `None` if the store is
/// not of an older version. No connection to it may be open in this process. `go_on` is called after each step. If it returns
/// `false`, the work stops, and can be resumed later. Takes about 10 s for a million messages, most of it for the
/// disk.
///
/// # Errors
/// [`DeliveryError::Store`], with the old store unchanged; [`DeliveryError::Closed`] when `go_on` returned `false`.
pub fn step_up(
    ownership: &mut Ownership,
    now_ms: i64,
    go_on: &mut dyn FnMut(Step) -> bool,
) -> Result<Option<PathBuf>, DeliveryError> {
    step_up_by(ownership, now_ms, &USUAL, go_on)
}

fn step_up_by(
    ownership: &mut Ownership,
    now_ms: i64,
    limits: &Limits,
    go_on: &mut dyn FnMut(Step) -> bool,
) -> Result<Option<PathBuf>, DeliveryError> {
    let path = ownership.path().to_owned();
    let version = match found(ownership)? {
        Found::Old(version) => version,
        Found::Later => {
            ownership.remove_side(); // a step-up that was killed at its end left it
            return Ok(None);
        }
        Found::Other => return Ok(None),
    };
    if version == 1 && !ownership.take_side()? {
        return Err(StoreError::new(&path, "a process of version 1 works with it", "end that, and run again").into());
    }
    let mut step = |step| if go_on(step) { Ok(()) } else { Err(DeliveryError::Closed) };
    kill_point("step up: locked");
    end_log(&path, version, limits)?;
    kill_point("step up: log ended");
    step(Step::LogEnded)?;
    let new = NewFile::begin(&path, ".stepping")?;
    new.permit_as(&path)?;
    kill_point("step up: copy begun");
    copy_all(&path, &new, version, now_ms, limits, &mut step)?;
    kill_point("step up: copy closed");
    new.sync()?;
    kill_point("step up: copy synced");
    step(Step::Synced)?;
    let backup = link_beside(&path, &format!("{STEPPED_UP}{version}"))?;
    kill_point("step up: linked");
    sync_folder(&path)?;
    kill_point("step up: link synced");
    step(Step::Linked)?;
    if let Some(locked) = new.rename_to(&path)? {
        ownership.replace(locked);
    }
    kill_point("step up: renamed");
    sync_folder(&path)?;
    kill_point("step up: rename synced");
    step(Step::Renamed)?;
    ownership.remove_side();
    kill_point("step up: over");
    Ok(Some(backup))
}

enum Found {
    /// Of this version, 1 or 2.
    Old(i64),
    /// Of the version that this code writes, or later.
    Later,
    /// A new store, or no store.
    Other,
}

/// Looks at the head of the file, if that is enough. Then SQLite opens a store of this version only once, later.
fn found(ownership: &Ownership) -> Result<Found, DeliveryError> {
    let path = ownership.path();
    let mut head = [0; 72];
    let file = ownership.file().map_err(|error| unusable(path, &error))?;
    let has_head = file.read_exact_at(&mut head, 0).is_ok();
    drop(file); // SQLite has no connection yet
    let word = |at: usize| i64::from(u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    if has_head && word(68) == APPLICATION_ID && word(60) > 1 {
        return Ok(if word(60) < VERSION { Found::Old(word(60)) } else { Found::Later });
    }
    if !has_head && !beside(path, "-wal").exists() {
        return Ok(Found::Other);
    }
    // The log counts too, so SQLite must open the file.
    let old = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let pragma = |name: &str| old.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
    let found = pragma("application_id").and_then(|application| Ok((application, pragma("user_version")?)));
    let found = found.map_err(|error| because(path, &error))?;
    close(path, old)?;
    Ok(match found {
        (APPLICATION_ID, version @ 1..VERSION) => Found::Old(version),
        _ => Found::Other,
    })
}

/// Moves all of the old store into its one file.
fn end_log(path: &Path, version: i64, limits: &Limits) -> Result<(), DeliveryError> {
    let pause = Parker::new();
    for _ in 0..limits.tries {
        let old = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let mode = old.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get::<_, String>(0));
        close(path, old)?;
        match mode {
            Ok(mode) if mode == "delete" && !["-wal", "-journal"].iter().any(|log| beside(path, log).exists()) => {
                return Ok(());
            }
            Err(error) if error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy) => {
                return Err(because(path, &error));
            }
            _ => pause.park_timeout(TRY_EVERY), // another process reads it
        }
    }
    let what = format!("it is of version {version}, and another process reads it while it is to be brought up to date");
    Err(StoreError::new(path, what, "end that, and run again: the store is as it was").into())
}

fn copy_all(
    path: &Path,
    new: &NewFile,
    version: i64,
    now_ms: i64,
    limits: &Limits,
    step: &mut dyn FnMut(Step) -> Result<(), DeliveryError>,
) -> Result<(), DeliveryError> {
    let old = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let count = |old: &Connection| if version == 1 { from_version_1::count(old) } else { from_version_2::count(old) };
    let asked = from_version_1::size(&old).and_then(|size| Ok((size, count(&old)?)));
    let (size, of) = asked.map_err(|error| because(path, &error))?;
    refuse_full_disk(path, version, size, limits)?;
    let mut database = open(&new.path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    if let Some(pages) = limits.pages {
        let _ = database.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()));
    }
    let mut stopped = DeliveryError::Closed;
    let mut go_on = |rows| match step(Step::Copied { rows, of }) {
        Ok(()) => true,
        Err(error) => {
            stopped = error;
            false
        }
    };
    let copied = if version == 1 {
        from_version_1::copy(&old, &database, now_ms, limits.block, &mut go_on)
    } else {
        from_version_2::copy(&old, &mut database, &mut go_on)
    };
    let closed = close(&new.path, database);
    close(path, old)?;
    match copied {
        Ok(()) => closed,
        Err(Ended::Failed(error)) => Err(because(path, &error)),
        Err(Ended::Stopped) => Err(stopped),
    }
}

fn refuse_full_disk(path: &Path, version: i64, size: u64, limits: &Limits) -> Result<(), DeliveryError> {
    let free = limits.free.or_else(|| {
        let found = rustix::fs::statvfs(folder(path)).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    });
    let needed = size.saturating_add(size / 16).saturating_add(1 << 20);
    match free {
        Some(free) if free < needed => {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            let what = format!(
                "it is of version {version}, and its copy of this version needs {} MiB in {}, where {} MiB are free",
                mib(needed),
                folder(path).display(),
                free >> 20
            );
            Err(StoreError::new(path, what, "make room on the disk and run again: the store is as it was").into())
        }
        _ => Ok(()),
    }
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, DeliveryError> {
    Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(|error| because(path, &error))
}

fn close(path: &Path, connection: Connection) -> Result<(), DeliveryError> {
    connection.close().map_err(|(_, error)| because(path, &error))
}

fn because(path: &Path, error: &rusqlite::Error) -> DeliveryError {
    StoreError::because(path, error).into()
}

#[cfg(test)]
mod tests;
