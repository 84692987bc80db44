//! A store as those see it who only look at it: reports and analyses. It may be in use, also in this process, and is left
//! as it was.
//!
//! Who looks at a SQLite file takes part in its locks, in a `-wal` and a `-shm` file beside it. So it depends:
//!
//! - There is a log (`-wal`): the store is in use, or its last user crashed. It is opened for reading alone, so that what a
//!   crash left stays as it is. A deliverer neither waits nor is waited for.
//! - There is none: nobody uses it, and all is in the one file. SQLite makes both files for us, but only who may write
//!   takes them away again. So it is opened for writing and told not to write.
//! - There is none, and we may not write there: it is read as a file that never changes, which needs no locks. If somebody
//!   changes it after all, what was read is of no use, and that is an error.
//!
//! A query finds the tables of `file/schema.rs`, `near_messages (due_ms, seq)`: what is near, which has no row in `waiting`; and
//! `open_messages (due_ms, seq, redelivered)`: both together, without those that recur, which are never due.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::base::error::{DeliveryError, StoreError};
pub use crate::message::hashes::lane_of;
use crate::store::file::{network, schema};
use crate::store::sql::Broken;

mod find;

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
CREATE TEMP VIEW open_messages AS
    SELECT due_ms, seq, redelivered FROM main.waiting WHERE due_ms <= 253402300799999
    UNION ALL SELECT due_ms, seq, 0 FROM near_messages;
PRAGMA query_only = 1;
BEGIN;
";

/// One moment of a store, until it is closed.
pub struct Snapshot {
    /// As given, for the errors.
    path: PathBuf,
    file: PathBuf,
    db: Connection,
    /// The file as it was, where it cannot be locked.
    alone: Option<Stamp>,
}

/// Another one after a change.
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
    /// Errors: there is no store that this version knows, it is not on a local disk, or it can't be read.
    ///
    /// # Errors
    /// `Usage` if there is no store of this version; the store can't be read.
    pub fn open(path: &Path) -> Result<Self, DeliveryError> {
        if !path.is_file() {
            let text = format!("there is no store {}: name the file that was given to --store", path.display());
            return Err(DeliveryError::Usage(text));
        }
        let file = path.canonicalize().map_err(|error| StoreError::new(path, error.to_string(), "make it readable"))?;
        network::refuse_network(file.parent().unwrap_or(&file))?;
        let (flags, alone) = how(&file);
        Self::open_as(path, file, flags, alone)
    }

    /// Of a complete file that only this thread knows: without locks, so on any file system.
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
        let ask = |text: &str| db.query_row(text, [], |row| row.get::<_, i64>(0));
        if ask("PRAGMA application_id").map_err(failed)? != schema::APPLICATION_ID {
            return Err(no_store(path));
        }
        schema::check_version(ask("PRAGMA user_version").map_err(failed)?, path)?;
        db.execute_batch(SET_UP).map_err(failed)?;
        ask("SELECT count(*) FROM meta").map_err(failed)?; // the moment is that of the first read
        Ok(Self { path: path.to_owned(), file, db, alone })
    }

    /// All rows of a query, whose values are given by name. Errors: the store can't be read.
    ///
    /// # Errors
    /// The query is wrong, or the store can't be read.
    pub fn rows(&self, query: &str, values: &[(String, Value)]) -> Result<Vec<Vec<Value>>, DeliveryError> {
        let read = || -> rusqlite::Result<Vec<Vec<Value>>> {
            let mut statement = self.db.prepare_cached(query)?;
            for (name, value) in values {
                if let Some(place) = statement.parameter_index(&format!(":{name}"))? {
                    statement.raw_bind_parameter(place, value)?;
                }
            }
            let columns = statement.column_count();
            let (mut rows, mut found) = (statement.raw_query(), Vec::new());
            while let Some(row) = rows.next()? {
                let values = (0..columns).map(|column| row.get_ref(column).map(readable));
                found.push(values.collect::<rusqlite::Result<_>>()?);
            }
            Ok(found)
        };
        read().map_err(|error| self.failed(error))
    }

    /// Its connection, in a transaction that reads.
    pub(in crate::store) fn db(&self) -> &Connection {
        &self.db
    }

    /// An error of SQLite as one of this store.
    pub(in crate::store) fn failed(&self, error: impl Into<Broken>) -> DeliveryError {
        match error.into() {
            Broken::Sql(error) => failure(&self.path, &self.file, self.alone, &error),
            broken @ Broken::Contradiction(_) => broken.of(&self.path).into(),
        }
    }

    /// Errors: it was changed where it can't be locked, so what was read may not be of one moment.
    ///
    /// # Errors
    /// The file changed meanwhile, although it cannot be locked.
    pub fn close(self) -> Result<(), DeliveryError> {
        let Self { path, file, db, alone } = self;
        let closed = db.close().map_err(|(_, error)| failure(&path, &file, alone, &error));
        match alone {
            Some(before) if Stamp::of(&file) != Some(before) => Err(changed(&path)),
            _ => closed,
        }
    }
}

fn how(file: &Path) -> (OpenFlags, Option<Stamp>) {
    let is_there = |suffix: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(suffix);
        Path::new(&name).exists()
    };
    let mutex = OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if is_there("-wal") || is_there("-journal") {
        return (mutex | OpenFlags::SQLITE_OPEN_READ_ONLY, None); // -journal: not ours
    }
    let may_write = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    if may_write(file) && file.parent().is_some_and(may_write) {
        return (mutex | OpenFlags::SQLITE_OPEN_READ_WRITE, None);
    }
    (mutex | OpenFlags::SQLITE_OPEN_READ_ONLY, Stamp::of(file))
}

/// The address of a file that SQLite neither locks nor expects to change.
fn never_changing(file: &Path) -> String {
    let mut address = String::from("file:");
    for byte in file.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => address.push(char::from(*byte)),
            _ => {
                let _ = write!(address, "%{byte:02X}"); // a string takes everything
            }
        }
    }
    address + "?immutable=1"
}

fn readable(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(it) => Value::Integer(it),
        ValueRef::Real(it) => Value::Real(it),
        ValueRef::Text(it) => Value::Text(String::from_utf8_lossy(it).into_owned()),
        ValueRef::Blob(it) => Value::Blob(it.to_vec()),
    }
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
