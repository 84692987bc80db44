//! Cancels whose message has not come (D7). Their times are from the store's own clock (`retention.rs`), so a step of
//! the wall clock does not remove any. A cancel of an occurrence that its rule has not made yet is not forgotten (D19).

use rusqlite::params;

use crate::message::incoming::Digest;
use crate::message::recurrence::occurrence_of;
use crate::store::sql::{Result, cached};
use crate::store::{Known, Store};

impl Store {
    /// Remembers a cancel for a message that is not known. When the message comes, it is cancelled (D7). The store
    /// keeps the cancel as long as names, and at least until `until_ms`.
    pub(crate) fn remember_cancel(
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

    /// Forgets old cancels, a few at a time.
    pub(in crate::store) fn forget_cancels(&mut self) -> Result<()> {
        for (row, key, id) in self.retention.old_cancels(&self.db)? {
            if !self.may_come(key.as_deref(), &id)? {
                cached(&self.db, "DELETE FROM cancels WHERE rowid = ?")?.execute([row])?;
                self.cancels -= 1;
            }
        }
        Ok(())
    }

    /// Whether a rule may still make the occurrence with this name. The rule decides, and not the clock: a rule may be late.
    fn may_come(&self, key: Option<&str>, id: &str) -> Result<bool> {
        if self.recurring == 0 {
            return Ok(false);
        }
        let Some((of, at_ms)) = occurrence_of(id) else { return Ok(false) };
        let Some(rule) = self.find(key, of)?.filter(Known::is_open_rule) else { return Ok(false) };
        Ok(self.occurrence_of(rule.seq)?.is_some_and(|(_, open)| open.at_ms <= at_ms))
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
