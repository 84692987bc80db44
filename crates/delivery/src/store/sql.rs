//! How the parts of the store run their statements, and the errors inside the store.

use std::path::Path;

use rusqlite::{CachedStatement, Connection};

use crate::base::error::StoreError;
use crate::base::kill_point::kill_point;

/// Why a step of the store failed.
#[derive(Debug)]
pub(super) enum Broken {
    /// An error of SQLite.
    Sql(rusqlite::Error),
    /// The file or the caller contradicts itself. The text tells how.
    Contradiction(String),
}

impl Broken {
    /// Turns this into the error of the store at this path.
    pub(super) fn of(&self, path: &Path) -> StoreError {
        match self {
            Self::Sql(error) => StoreError::because(path, error),
            Self::Contradiction(what) => StoreError::new(
                path,
                what,
                "the file is damaged, or this is a mistake in tickwheel: report it, and restore the store from a copy",
            ),
        }
    }
}

impl From<rusqlite::Error> for Broken {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

pub(super) type Result<T> = std::result::Result<T, Broken>;

/// The prepared statement. It is prepared once for the connection.
pub(super) fn cached<'a>(db: &'a Connection, text: &str) -> rusqlite::Result<CachedStatement<'a>> {
    #[cfg(test)]
    seen::note(text);
    kill_point(text);
    db.prepare_cached(text)
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
