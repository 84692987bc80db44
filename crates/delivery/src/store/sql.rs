//! How the parts of the store run their statements, and the errors inside the store.

use std::path::Path;

use rusqlite::{CachedStatement, Connection, Params, Row};

use crate::base::error::StoreError;
use crate::base::kill_point::kill_point;

/// Why a step of the store failed. It becomes an error with [`Broken::of`], which adds the path.
#[derive(Debug)]
pub(crate) enum Broken {
    /// An error of SQLite.
    Sql(rusqlite::Error),
    /// The file or the caller contradicts itself. The text tells how.
    Contradiction(String),
    /// The store must not be used any more: the reason, and what to do.
    Unusable(&'static str, &'static str),
}

impl Broken {
    /// A thread of the engine panicked, so memory may be in the middle of a change. The panic is a bug in tickwheel.
    pub(crate) const PANICKED: Self = Self::Unusable(
        "a thread that uses it panicked",
        "see the output of the panic hook, report it, and run again: nothing that was accepted is lost",
    );

    /// Turns this into the error of the store at this path.
    pub(crate) fn of(&self, path: &Path) -> StoreError {
        match self {
            Self::Sql(error) => StoreError::because(path, error),
            Self::Contradiction(what) => StoreError::new(
                path,
                what,
                "the file is damaged, or this is a mistake in tickwheel: report it, and restore the store from a copy",
            ),
            Self::Unusable(what, advice) => StoreError::new(path, *what, advice),
        }
    }
}

impl From<rusqlite::Error> for Broken {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

pub(crate) type Result<T, E = Broken> = std::result::Result<T, E>;

/// The prepared statement. It is prepared once for the connection.
pub(super) fn cached<'a>(db: &'a Connection, text: &str) -> rusqlite::Result<CachedStatement<'a>> {
    #[cfg(test)]
    {
        seen::note(text);
        failing::pass()?;
    }
    kill_point(text);
    db.prepare_cached(text)
}

/// Runs a statement that gives no rows. Returns how many rows it has changed.
pub(super) fn execute(db: &Connection, text: &str, values: impl Params) -> Result<usize> {
    Ok(cached(db, text)?.execute(values)?)
}

/// All rows of a query, each made by `made`.
pub(super) fn rows<T>(
    db: &Connection,
    text: &str,
    values: impl Params,
    made: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    cached(db, text)?.query_map(values, made)?.collect()
}

/// Lets a statement of this thread fail, as on a full disk.
#[cfg(test)]
pub(crate) mod failing {
    use std::cell::Cell;

    std::thread_local! {
        static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// The statement after so many others fails.
    pub(crate) fn after(statements: u32) {
        LEFT.set(Some(statements));
    }

    /// Whether none has failed. From now on none does.
    pub(crate) fn end() -> bool {
        LEFT.take().is_some()
    }

    pub(super) fn pass() -> rusqlite::Result<()> {
        let Some(left) = LEFT.get() else { return Ok(()) };
        LEFT.set(left.checked_sub(1));
        match left {
            0 => Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL), None)),
            _ => Ok(()),
        }
    }
}

/// The statements that ran on this thread, for the tests of their plans.
#[cfg(test)]
pub(super) mod seen {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    std::thread_local! {
        static SEEN: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
    }

    pub(super) fn note(text: &str) {
        SEEN.with_borrow_mut(|seen| {
            if !seen.contains(text) {
                seen.insert(text.to_owned());
            }
        });
    }

    /// All statements since the last call.
    pub(in super::super) fn take() -> BTreeSet<String> {
        SEEN.take()
    }
}
