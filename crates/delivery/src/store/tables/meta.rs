//! Single values by name, and among them the openings of the store.
//!
//! The openings tell whether a store went back to an older copy of itself, such as a copied file or a snapshot of its disk
//! (S4). Each opening gets a random name, and notes how many groups were committed before it. A program that
//! keeps messages asks for the openings, and for the number of commits. Later it asks again. The store went back in two
//! cases: the opening that the program knows is unknown now, or fewer commits belong to it than it had. The number alone
//! does not tell: a store that went back commits new groups, and may be past the number before the program asks.

use rusqlite::types::{FromSql, ToSql};
use rusqlite::{Connection, OptionalExtension, params};

use crate::store::sql::{Result, cached, execute};

/// The name of the time since which sending is paused. If its value is null or missing, sending is not paused.
pub(crate) const PAUSED: &str = "paused_ms";

/// The name of a text that each restore from a backup changes.
pub(crate) const RESTORED: &str = "restored";

/// `None` if the value was never stored, or was deleted.
pub(in crate::store) fn get<T: FromSql>(db: &Connection, name: &str) -> Result<Option<T>> {
    let mut select = cached(db, "SELECT value FROM meta WHERE name = ?")?;
    let found: Option<Option<T>> = select.query_row([name], |row| row.get(0)).optional()?;
    Ok(found.flatten())
}

/// 0 if the value was never stored.
pub(in crate::store) fn get_int(db: &Connection, name: &str) -> Result<i64> {
    Ok(get(db, name)?.unwrap_or(0))
}

/// Stores a value, in place of an older one.
pub(in crate::store) fn put(db: &Connection, name: &str, value: impl ToSql) -> Result<()> {
    execute(db, "INSERT OR REPLACE INTO meta VALUES (?, ?)", params![name, value]).map(drop)
}

/// Deletes a value, as if it was never stored.
pub(in crate::store) fn delete(db: &Connection, name: &str) -> Result<()> {
    execute(db, "DELETE FROM meta WHERE name = ?", [name]).map(drop)
}

const OPENINGS: &str = "openings";
/// The name of the number of groups that were ever committed.
pub(in crate::store) const COMMITS: &str = "commits";

/// How many openings are kept. A program that saw none of them takes the store for one that went back.
const KEPT: usize = 16;

/// The name of an opening, and the number of groups that were committed before it.
pub(crate) type Opening = (String, i64);

/// The last openings, and the number of commits.
pub(in crate::store) fn last_openings(db: &Connection) -> Result<(Vec<Opening>, i64)> {
    Ok((parse(&get::<String>(db, OPENINGS)?.unwrap_or_default()), get_int(db, COMMITS)?))
}

/// Notes a new opening. Returns the last openings with this one, and the number of commits.
pub(in crate::store) fn note_opening(db: &Connection) -> Result<(Vec<Opening>, i64)> {
    let (mut openings, commits) = last_openings(db)?;
    let name = cached(db, "SELECT lower(hex(randomblob(6)))")?.query_row([], |row| row.get(0))?;
    openings.push((name, commits));
    openings.drain(..openings.len().saturating_sub(KEPT));
    let lines: Vec<String> = openings.iter().map(|(name, before)| format!("{name} {before}")).collect();
    put(db, OPENINGS, lines.join("\n"))?;
    Ok((openings, commits))
}

fn parse(text: &str) -> Vec<Opening> {
    let opening = |line: &str| {
        let (name, before) = line.split_once(' ')?;
        Some((name.to_owned(), before.parse().ok()?))
    };
    text.lines().filter_map(opening).collect()
}
