//! The store's housekeeping, a little in each transaction (D8): names, payloads, old messages, and free pages.
//!
//! Each part bounds its own step, so no group of commits waits long.

use rusqlite::Connection;

use super::Store;
use super::retention::Ends;
use super::sql::{Result, cached};
use crate::store::open::near::Floor;
use crate::store::tables::meta;

impl Store {
    /// Does a small part of the store's housekeeping. Returns whether there is more to do. `is_idle`: this
    /// transaction does nothing else.
    pub(crate) fn upkeep(&mut self, is_idle: bool) -> Result<bool> {
        let mut more = self.collector.step(&self.db, &mut self.near, self.last_n, is_idle)?;
        let floor = self.near.floor(self.next_seq, self.last_n);
        if floor != self.floor {
            self.floor = floor;
            let Floor { seq, n } = floor;
            meta::put(&self.db, "near_floor_seq", seq)?;
            meta::put(&self.db, "near_floor_n", n)?;
        }
        let collected_n = self.collector.collected_n().min(floor.n);
        let ends = Ends { last_seq: self.next_seq - 1, last_n: self.last_n, collected_n };
        self.forget_cancels()?;
        self.forget_events()?;
        more |= self.retention.step(&self.db, &mut self.names, ends)?;
        more |= self.names.step(&self.db, self.retention.day())?; // after the parts that may free runs
        more |= give_back(&self.db, self.limits.vacuum_pages, self.limits.free_pages)?;
        Ok(more)
    }
}

/// Gives free pages back to the disk, if there are many. Returns whether there are more.
fn give_back(db: &Connection, pages: u32, keep: u32) -> Result<bool> {
    let free: i64 = cached(db, "PRAGMA freelist_count")?.query_row([], |row| row.get(0))?;
    if free <= i64::from(keep) {
        return Ok(false);
    }
    let all: i64 = cached(db, "PRAGMA page_count")?.query_row([], |row| row.get(0))?;
    if free * 4 <= all {
        return Ok(false);
    }
    let mut vacuum = cached(db, &format!("PRAGMA incremental_vacuum({pages})"))?;
    let mut rows = vacuum.query([])?;
    while rows.next()?.is_some() {}
    Ok(true)
}
