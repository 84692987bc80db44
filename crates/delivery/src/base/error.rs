//! The errors of delivery, by the place that needs the correction: the record, the call, the store, or the
//! destination.
//!
//! Each message says three things: the given value, the allowed values, and the next step.

use std::fmt;
use std::path::{Path, PathBuf};

/// A message or a record can't be used. All others are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// What is wrong.
    pub reason: String,
    /// What would be right.
    pub allowed: String,
}

impl BadRecord {
    pub(crate) fn new(reason: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { reason: reason.into(), allowed: allowed.into() }
    }
}

/// The fault of a message whose name is known with other content, and the allowed form.
pub const OTHER_CONTENT: (&str, &str) =
    ("this key and id were accepted before with other content", "the same content again, or another id");

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (allowed: {})", self.reason, self.allowed)
    }
}

impl std::error::Error for BadRecord {}

/// The store cannot be read or written. All messages that were accepted before are still in the file.
#[derive(Clone, Debug)]
pub struct StoreError {
    path: PathBuf,
    what: String,
    advice: &'static str,
    /// It may be gone at the next attempt: a lock of another program, a full disk, a disk that failed once.
    passes: bool,
}

/// SQLite tells a page that the disk could not read as damage.
const DAMAGED: &str = "check the disk and run again, as a read that failed looks the same; if it comes again, it is not a \
                       store, or damaged: name another file, or restore it from a copy";
const NO_STORE: &str = "it is not a store, or damaged: name another file, or restore it from a copy";

impl StoreError {
    /// Whether SQLite could not make sense of the file.
    pub(crate) fn is_damage(&self) -> bool {
        [DAMAGED, NO_STORE].contains(&self.advice)
    }

    pub(crate) fn new(path: &Path, what: impl Into<String>, advice: &'static str) -> Self {
        Self { path: path.to_owned(), what: what.into(), advice, passes: false }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the store may be used again by itself. A failed *sync* does not pass: the next one may succeed although
    /// pages before it were lost.
    pub(crate) fn passes(&self) -> bool {
        self.passes
    }

    /// An error of SQLite in SQLite's own words, with advice.
    pub(crate) fn because(path: &Path, error: &rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{
            CannotOpen, DatabaseBusy, DatabaseCorrupt, DatabaseLocked, DiskFull, NotADatabase, PermissionDenied,
            ReadOnly, SystemIoFailure,
        };
        use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};
        let code = error.sqlite_error_code();
        let is_sync = error
            .sqlite_error()
            .is_some_and(|it| [SQLITE_IOERR_FSYNC, SQLITE_IOERR_DIR_FSYNC].contains(&it.extended_code));
        let passes = matches!(
            code,
            Some(DiskFull | ReadOnly | CannotOpen | PermissionDenied | DatabaseBusy | DatabaseLocked | SystemIoFailure)
        );
        let what = if is_sync { format!("a sync of the disk failed: {error}") } else { error.to_string() };
        let advice = match code {
            _ if is_sync => "check the disk, and run again: nothing that was accepted is lost",
            Some(DiskFull) => "make room on the disk and run again: nothing that was accepted is lost",
            Some(ReadOnly | CannotOpen | PermissionDenied) => "make it and its folder writable",
            Some(DatabaseCorrupt) => DAMAGED,
            Some(NotADatabase) => NO_STORE,
            Some(DatabaseBusy | DatabaseLocked) => {
                "another program has it open: end that one, and run again: nothing that was accepted is lost"
            }
            Some(SystemIoFailure) => {
                "check the disk, and how large a file may be (ulimit -f), and run again: nothing that was accepted is lost"
            }
            _ => "run again: nothing that was accepted is lost; if it comes again, report it",
        };
        Self { passes: passes && !is_sync, ..Self::new(path, what, advice) }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store {} can't be used: {}; {}", self.path.display(), self.what, self.advice)
    }
}

impl std::error::Error for StoreError {}

/// Why a call failed, or what ended the run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DeliveryError {
    /// The arguments are wrong; nothing was read or delivered.
    Usage(String),
    /// The store failed.
    Store(StoreError),
    /// The store can't be written now, and is tried again and again: another program holds a lock on it, or its disk is
    /// full. Nothing of the last part of the call was accepted: it can be given again.
    StoreWaits(StoreError),
    /// The destination failed for good, and the run ends. The store keeps all messages that are not delivered.
    Failed(String),
    /// The queue is closed and takes no more messages.
    Closed,
}

impl DeliveryError {
    /// The system does not give a thread.
    #[doc(hidden)]
    #[must_use]
    pub fn no_thread(error: &std::io::Error) -> Self {
        Self::Failed(format!("the system gives no thread: {error}: raise the limit (ulimit -u, TasksMax, pids.max)"))
    }
}

impl fmt::Display for DeliveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Failed(text) => f.write_str(text),
            Self::Store(error) => error.fmt(f),
            Self::StoreWaits(error) => {
                let what = &error.what;
                write!(
                    f,
                    "the store {} can't be written now: {what}; try again: it goes on by itself",
                    error.path.display()
                )
            }
            Self::Closed => f.write_str("the queue is closed: it takes no more messages"),
        }
    }
}

impl std::error::Error for DeliveryError {}

impl From<StoreError> for DeliveryError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_of_sqlite_says_what_to_do() {
        for code in 1..30 {
            let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
            let text = StoreError::because(Path::new("x.db"), &error).to_string();
            assert!(text.starts_with("the store x.db can't be used: "), "{text}");
            let advice = ["run again", "name another file", "writable"];
            assert!(advice.iter().any(|it| text.contains(it)), "{text}");
            assert_eq!(text.contains("check the disk"), [10, 11].contains(&code), "{text}"); // IOERR, CORRUPT
        }
    }
}
