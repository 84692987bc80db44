//! Single values by name.

use rusqlite::types::{FromSql, ToSql};
use rusqlite::{Connection, OptionalExtension, params};

use crate::store::sql::{Result, cached};

/// The name of the time since which sending is paused; null, or nothing: it is not.
pub(crate) const PAUSED: &str = "paused_ms";

/// The name of a text that is another one after each restore from a backup.
pub(crate) const RESTORED: &str = "restored";

/// `None` if it was never put, or deleted.
pub(in crate::store) fn get<T: FromSql>(db: &Connection, name: &str) -> Result<Option<T>> {
    let mut select = cached(db, "SELECT value FROM meta WHERE name = ?")?;
    let found: Option<Option<T>> = select.query_row([name], |row| row.get(0)).optional()?;
    Ok(found.flatten())
}

/// 0 if it was never put.
pub(in crate::store) fn get_int(db: &Connection, name: &str) -> Result<i64> {
    Ok(get(db, name)?.unwrap_or(0))
}

/// Takes the place of what was there.
pub(in crate::store) fn put(db: &Connection, name: &str, value: impl ToSql) -> Result<()> {
    cached(db, "INSERT OR REPLACE INTO meta VALUES (?, ?)")?.execute(params![name, value])?;
    Ok(())
}

/// As if it was never put.
pub(in crate::store) fn delete(db: &Connection, name: &str) -> Result<()> {
    cached(db, "DELETE FROM meta WHERE name = ?")?.execute([name])?;
    Ok(())
}
