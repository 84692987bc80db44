//! How the parts of the store run their statements, and the errors inside the store.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use rusqlite::types::ToSql;
use rusqlite::{CachedStatement, Connection, Params, Row};

use super::log;
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
    /// Another process owns the chain, or the chain has lost rows.
    Fenced,
    /// The chain of a replicated store can't be used: the reason, and what to do.
    Chain(String, &'static str),
    /// The program has ended the opening.
    Closed,
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
            Self::Fenced => StoreError::new(
                path,
                "another process has taken the store over, or PostgreSQL has lost its last rows",
                "nothing was accepted or sent since; start again, and it waits as a standby",
            ),
            Self::Chain(what, advice) => StoreError::new(path, what, advice),
            Self::Closed => StoreError::new(path, "its opening was ended", "open it again"),
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
pub(super) fn cached<'a>(db: &'a Connection, text: &str) -> rusqlite::Result<Statement<'a>> {
    #[cfg(test)]
    {
        seen::note(text);
        failing::pass()?;
    }
    kill_point(text);
    let it = db.prepare_cached(text)?;
    let noted = (log::is_open() && !it.readonly() && !text.starts_with("PRAGMA")).then(|| text.to_owned());
    Ok(Statement { it, db, noted })
}

/// A prepared statement. If the transaction has a log, what it writes is noted there.
pub(super) struct Statement<'a> {
    it: CachedStatement<'a>,
    db: &'a Connection,
    /// The text, if it is noted.
    noted: Option<String>,
}

impl<'a> Deref for Statement<'a> {
    type Target = CachedStatement<'a>;

    fn deref(&self) -> &Self::Target {
        &self.it
    }
}

/// For what reads; what writes has the methods below.
impl DerefMut for Statement<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        debug_assert!(self.noted.is_none(), "{:?} would not be noted", self.noted);
        &mut self.it
    }
}

impl Statement<'_> {
    /// Runs it once. Returns how many rows it has changed.
    pub(super) fn execute(&mut self, values: impl Values) -> rusqlite::Result<usize> {
        if self.noted.is_none() {
            return self.it.execute(values); // as fast as without a log
        }
        self.bind(&values)?;
        let changed = self.it.raw_execute()?;
        self.note_changed();
        Ok(changed)
    }

    /// Runs it once. Returns the rows that it gives.
    pub(super) fn returned<T>(
        &mut self,
        values: impl Values,
        made: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        if self.noted.is_none() {
            return self.it.query_map(values, made)?.collect();
        }
        self.bind(&values)?;
        let found = self.it.raw_query().mapped(made).collect();
        self.note_changed();
        found
    }

    fn bind(&mut self, values: &impl Values) -> rusqlite::Result<()> {
        if let Some(text) = &self.noted {
            log::note_text(text);
        }
        let mut count = 0;
        values.each(&mut |value| {
            count += 1;
            log::note_value(value)?;
            self.it.raw_bind_parameter(count, value)
        })?;
        let all = self.it.parameter_count();
        if count == all { Ok(()) } else { Err(rusqlite::Error::InvalidParameterCount(count, all)) }
    }

    fn note_changed(&self) {
        if let Some(text) = &self.noted {
            log::note_changed(log::changed(self.db, text));
        }
    }
}

/// The values of a statement that writes: a tuple, an array, or `params![]`.
pub(super) trait Values: Params {
    fn each(&self, take: &mut dyn FnMut(&dyn ToSql) -> rusqlite::Result<()>) -> rusqlite::Result<()>;
}

impl Values for &[&dyn ToSql] {
    fn each(&self, take: &mut dyn FnMut(&dyn ToSql) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
        self.iter().try_for_each(|value| take(*value))
    }
}

macro_rules! values {
    ($($count:literal)+) => {
        $(impl<T: ToSql> Values for [T; $count] {
            fn each(&self, take: &mut dyn FnMut(&dyn ToSql) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
                self.iter().try_for_each(|value| take(value))
            }
        })+
    };
    ($($name:ident)*) => {
        #[allow(non_snake_case, unused_variables)]
        impl<$($name: ToSql),*> Values for ($($name,)*) {
            fn each(&self, take: &mut dyn FnMut(&dyn ToSql) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
                let ($($name,)*) = self;
                $(take($name)?;)*
                Ok(())
            }
        }
        values!(@ $($name)*);
    };
    (@) => {};
    (@ $first:ident $($name:ident)*) => { values!($($name)*); };
}
values!(A B C D E F G H I J K L);
values!(1 2 3 4 5 6);

/// Runs a statement that gives no rows. Returns how many rows it has changed.
pub(super) fn execute(db: &Connection, text: &str, values: impl Values) -> Result<usize> {
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
