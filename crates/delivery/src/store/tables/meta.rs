//! Single values by name.

use rusqlite::types::{FromSql, ToSql};
use rusqlite::{Connection, OptionalExtension, params};

use crate::store::sql::{Result, cached};

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
    cached(db, "INSERT OR REPLACE INTO meta VALUES (?, ?)")?.execute(params![name, value])?;
    Ok(())
}

/// Deletes a value, as if it was never stored.
pub(in crate::store) fn delete(db: &Connection, name: &str) -> Result<()> {
    cached(db, "DELETE FROM meta WHERE name = ?")?.execute([name])?;
    Ok(())
}
