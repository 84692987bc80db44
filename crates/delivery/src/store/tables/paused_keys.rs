//! Paused keys (D16), by the number of their lane. If two keys share a lane, they count as one.

use rusqlite::{Connection, params};

use crate::store::Store;
use crate::store::sql::{Result, cached};

/// The most keys that may be paused. Each takes some memory while its messages wait.
pub const MOST_PAUSED_KEYS: i64 = 10_000;

impl Store {
    /// The lanes of the keys that are paused.
    pub(crate) fn paused_lanes(&self) -> Result<Vec<i64>> {
        let mut select = cached(&self.db, "SELECT lane FROM paused_keys")?;
        Ok(select.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
    }

    /// Notes that this key is paused. `false`: too many keys are paused.
    pub(crate) fn pause_key(&mut self, lane: i64, key: &str, now_ms: i64) -> Result<bool> {
        add(&self.db, lane, key, now_ms)
    }

    /// Notes that the keys of this lane are not paused any more.
    pub(crate) fn resume_lane(&mut self, lane: i64) -> Result<()> {
        remove(&self.db, lane)
    }
}

/// Adds a paused key. `false`: too many keys are paused. If the key is paused already, its old time stays.
pub(in crate::store) fn add(db: &Connection, lane: i64, key: &str, now_ms: i64) -> Result<bool> {
    if cached(db, "SELECT 1 FROM paused_keys WHERE lane = ?")?.exists([lane])? {
        return Ok(true);
    }
    let count: i64 = cached(db, "SELECT count(*) FROM paused_keys")?.query_row([], |row| row.get(0))?;
    if count >= MOST_PAUSED_KEYS {
        return Ok(false);
    }
    cached(db, "INSERT INTO paused_keys VALUES (?, ?, ?)")?.execute(params![lane, key, now_ms])?;
    Ok(true)
}

pub(in crate::store) fn remove(db: &Connection, lane: i64) -> Result<()> {
    cached(db, "DELETE FROM paused_keys WHERE lane = ?")?.execute([lane])?;
    Ok(())
}
