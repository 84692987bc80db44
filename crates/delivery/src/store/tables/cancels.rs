//! Cancels whose message has not come (D7). Their times are from the store's own clock (`retention.rs`), so a step of
//! the wall clock does not remove any.

use rusqlite::params;

use crate::message::incoming::Digest;
use crate::store::Store;
use crate::store::sql::{Result, cached};

impl Store {
    pub(in crate::store) fn write_cancel(
        &mut self,
        key: Option<&str>,
        id: &str,
        now_ms: i64,
        until_ms: Option<i64>,
    ) -> Result<()> {
        let name = (self.number)(Digest::of(key, id));
        let known = "SELECT 1 FROM cancels WHERE name = ? AND id = ? AND key IS ?";
        if self.cancels > 0 && cached(&self.db, known)?.exists(params![name, id, key])? {
            return Ok(());
        }
        let at_ms = self.retention.now_ms();
        let until_ms = until_ms.map_or(0, |until_ms| at_ms.saturating_add(until_ms.saturating_sub(now_ms)));
        cached(&self.db, "INSERT INTO cancels (name, key, id, at_ms, until_ms) VALUES (?, ?, ?, ?, ?)")?
            .execute(params![name, key, id, at_ms, until_ms])?;
        self.cancels += 1;
        Ok(())
    }
}

#[cfg(test)]
impl Store {
    /// Whether a cancel of this name waits for its message.
    pub(crate) fn remembers_cancel(&self, key: Option<&str>, id: &str) -> rusqlite::Result<bool> {
        let text = "SELECT 1 FROM cancels WHERE id = ? AND key IS ?";
        cached(&self.db, text)?.exists(params![id, key])
    }
}
