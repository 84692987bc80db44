//! A store as reports and analyses see it. The store may be in use, even in this process. It is not changed.
//!
//! A reader of a SQLite file takes part in its locks, which are in a `-wal` and a `-shm` file beside it. There are
//! three cases:
//!
//! - There is a log (`-wal`): the store is in use, or its last user crashed. It is opened only for reading, so that
//!   traces of a crash stay unchanged. The reader and a deliverer do not wait for each other.
//! - There is no log, and we may write there: nothing uses the store, and all data is in the one file. SQLite makes
//!   both files for us, but only a connection that may write can remove them. For this reason it is opened for
//!   writing, with queries limited to reading.
//! - There is no log, and we may not write there: the file is read without locks, as if it never changes. If the file
//!   changes after all, the data is useless, and the caller gets an error.
//!
//! A query sees the tables of `file/schema.rs` and two views. `near_messages (due_ms, seq)` has the near messages,
//! which have no row in `waiting`. `open_messages (due_ms, seq, may_have_arrived)` has all open messages but the recurring
//! ones, which are never due themselves.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags, Row};

use crate::base::display::write_percent;
use crate::base::error::{DeliveryError, StoreError};
use crate::base::open_stores::{self, FileId};
use crate::store::file::locked_file::beside;
use crate::store::file::{network, one_name, schema};
use crate::store::sql::Broken;

const SET_UP: &str = "
PRAGMA temp_store = FILE; -- sorting takes disk, not memory
CREATE TEMP VIEW near_messages AS
    SELECT due_ms, seq FROM main.messages
    WHERE seq >= (SELECT value FROM main.meta WHERE name = 'near_floor_seq')
        AND seq NOT IN (
            SELECT seq FROM main.ledger WHERE n > (SELECT value FROM main.meta WHERE name = 'near_floor_n')
        )
        AND NOT EXISTS (
            SELECT 1 FROM main.waiting WHERE waiting.due_ms = messages.due_ms AND waiting.seq = messages.seq
        );
CREATE TEMP VIEW unanswered AS SELECT seq FROM main.attempts WHERE is_unanswered;
CREATE TEMP VIEW open_messages AS
    SELECT due_ms, seq, redelivered OR seq IN unanswered AS may_have_arrived
    FROM main.waiting WHERE due_ms <= 253402300799999
    UNION ALL SELECT due_ms, seq, seq IN unanswered FROM near_messages;
PRAGMA query_only = 1;
BEGIN;
";

/// A store at one moment, until it is closed. Every question fails if the store can't be read.
pub struct Snapshot {
    /// The path as the caller gave it, for errors.
    path: PathBuf,
    file: PathBuf,
    db: Connection,
    /// The state of the file at the start, if the file cannot be locked.
    alone: Option<Stamp>,
}

/// Identifies the state of a file. It differs after a change.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified_ns: (i64, i64),
}

impl Stamp {
    fn of(file: &Path) -> Option<Self> {
        let found = fs::metadata(file).ok()?;
        Some(Self { inode: found.ino(), size: found.size(), modified_ns: (found.mtime(), found.mtime_nsec()) })
    }
}

impl Snapshot {
    /// Opens a store for reading.
    ///
    /// # Errors
    /// `Usage` if there is no store of this format, or the file is not on a local disk; the store can't be read.
    pub fn open(path: &Path) -> Result<Self, DeliveryError> {
        if !path.is_file() {
            let text = format!("there is no store {}: name the file that was given to --store", path.display());
            return Err(DeliveryError::Usage(text));
        }
        let file = path.canonicalize().map_err(|error| StoreError::new(path, error.to_string(), "make it readable"))?;
        network::refuse_network(file.parent().unwrap_or(&file))?;
        let names = one_name::refuse_second_name(&file);
        let names = if names.is_err() && has_its_log_here(&file) { Ok(()) } else { names };
        let Err(refused) = names else {
            let (flags, alone) = how(&file);
            return Self::open_as(path, file, flags, alone);
        };
        let opened = Self::open_unshared(&file)?; // a backup has no log, so it may have names
        if opened.ask(schema::is_backup)? { Ok(opened) } else { Err(refused) }
    }

    /// Opens a complete file that only this thread knows. It needs no locks, so it works on any file system.
    pub(in crate::store) fn open_unshared(path: &Path) -> Result<Self, DeliveryError> {
        let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_READ_ONLY;
        Self::open_as(path, path.to_owned(), flags, Stamp::of(path))
    }

    fn open_as(path: &Path, file: PathBuf, flags: OpenFlags, alone: Option<Stamp>) -> Result<Self, DeliveryError> {
        let opened = match alone {
            Some(_) => Connection::open_with_flags(never_changing(&file), flags | OpenFlags::SQLITE_OPEN_URI),
            None => Connection::open_with_flags(&file, flags),
        };
        let failed = |error: rusqlite::Error| failure(path, &file, alone, &error);
        let db = opened.map_err(failed)?;
        if !schema::is_store(&db, path, failed)? {
            return Err(no_store(path));
        }
        db.execute_batch(SET_UP).map_err(failed)?;
        db.query_row("SELECT count(*) FROM meta", [], |_| Ok(())).map_err(failed)?; // the first read sets the moment
        Ok(Self { path: path.to_owned(), file, db, alone })
    }

    /// The answer to a question about this moment.
    pub(in crate::store) fn ask<T, E: Into<Broken>>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, DeliveryError> {
        question(&self.db).map_err(|error| self.failed(error))
    }

    /// The connection, in a transaction for reading.
    pub(in crate::store) fn db(&self) -> &Connection {
        &self.db
    }

    /// Turns an error of SQLite into an error of this store.
    pub(in crate::store) fn failed(&self, error: impl Into<Broken>) -> DeliveryError {
        match error.into() {
            Broken::Sql(error) => failure(&self.path, &self.file, self.alone, &error),
            broken => broken.of(&self.path).into(),
        }
    }

    /// Closes the store. If the file could not be locked, checks that it has not changed.
    ///
    /// # Errors
    /// The file changed meanwhile, so the data may not be of one moment.
    pub fn close(self) -> Result<(), DeliveryError> {
        let Self { path, file, db, alone } = self;
        let closed = db.close().map_err(|(_, error)| failure(&path, &file, alone, &error));
        match alone {
            Some(before) if Stamp::of(&file) != Some(before) => Err(changed(&path)),
            _ => closed,
        }
    }
}

/// Whether this process has the store open, and the log beside this name too. A copy of a log is not open.
fn has_its_log_here(file: &Path) -> bool {
    let Some(log) = FileId::at(&beside(file, "-wal")) else { return false };
    let descriptors = || fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    FileId::at(file).is_some_and(open_stores::has) && descriptors().any(|it| FileId::at(&it.path()) == Some(log))
}

fn how(file: &Path) -> (OpenFlags, Option<Stamp>) {
    let is_there = |suffix: &str| beside(file, suffix).exists();
    let mutex = OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if is_there("-wal") || is_there("-journal") {
        return (mutex | OpenFlags::SQLITE_OPEN_READ_ONLY, None); // a -journal file is not ours
    }
    let may_write = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    if may_write(file) && file.parent().is_some_and(may_write) {
        return (mutex | OpenFlags::SQLITE_OPEN_READ_WRITE, None);
    }
    (mutex | OpenFlags::SQLITE_OPEN_READ_ONLY, Stamp::of(file))
}

/// A URI that tells SQLite not to lock the file and to expect no change.
fn never_changing(file: &Path) -> String {
    let mut address = String::from("file:");
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'-' | b'_');
    write_percent(&mut address, file.as_os_str().as_bytes(), is_plain);
    address + "?immutable=1"
}

/// The text in this column. Bytes that are not UTF-8 become U+FFFD.
pub(super) fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    Ok(optional_text(row, column)?.unwrap_or_default())
}

/// The same; `None` for null.
pub(super) fn optional_text(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    let found = row.get_ref(column)?.as_bytes_or_null()?;
    Ok(found.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

fn failure(path: &Path, file: &Path, alone: Option<Stamp>, error: &rusqlite::Error) -> DeliveryError {
    if alone.is_some() && Stamp::of(file) != alone {
        return changed(path);
    }
    if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) {
        return no_store(path);
    }
    StoreError::because(path, error).into()
}

fn no_store(path: &Path) -> DeliveryError {
    let text = format!("{} is not a store of tickwheel: name the file that was given to --store", path.display());
    DeliveryError::Usage(text)
}

fn changed(path: &Path) -> DeliveryError {
    StoreError::new(path, "it was changed while it was read, where it can't be locked", "run again").into()
}
