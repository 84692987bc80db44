//! What the loader asks about shares of which the store has messages that memory does not (rules D23, D24).

use rusqlite::OptionalExtension;

use crate::store::sql::{Result, cached};
use crate::store::{Position, Store};

impl Store {
    /// How many named destinations with nothing to do stay in memory.
    pub(crate) fn idle_shares(&self) -> usize {
        self.limits.idle_shares
    }

    /// Nothing of this destination that is in the store and not in memory is due before this.
    pub(crate) fn first_due_of(&self, share: i64) -> i64 {
        self.first_due.of(share)
    }

    /// Whether nothing of any named destination that memory does not have is due until then.
    pub(crate) fn has_none_due(&self, until_ms: i64) -> bool {
        (self.first_due.knows_until(until_ms) || !self.has_shares()) && self.first_due.has_none(until_ms)
    }

    /// Named destinations of which a message is due until then, at most `limit`. The caller looks for their messages, and
    /// calls [`Store::expect_next`] once it has all. `has`: how far memory has the messages of a destination.
    pub(crate) fn take_due(
        &mut self,
        until_ms: i64,
        limit: usize,
        has: impl Fn(i64) -> Option<Position>,
    ) -> Result<Vec<i64>> {
        if !self.first_due.knows_until(until_ms) && self.has_shares() {
            self.read_first_due(has)?;
        }
        Ok(std::iter::from_fn(|| self.first_due.take(until_ms)).take(limit).collect())
    }

    /// Memory has all messages of the destination up to this position.
    pub(crate) fn expect_next(&mut self, share: i64, (due_ms, seq): Position) -> Result<()> {
        let text = "SELECT due_ms FROM waiting WHERE share = ? AND (due_ms, seq) > (?, ?) ORDER BY due_ms, seq LIMIT 1";
        let next_ms = cached(&self.db, text)?.query_row([share, due_ms, seq], |row| row.get(0)).optional()?;
        if let Some(next_ms) = next_ms {
            self.first_due.note(share, next_ms);
        }
        Ok(())
    }

    fn read_first_due(&mut self, has: impl Fn(i64) -> Option<Position>) -> Result<()> {
        self.first_due.begin_again();
        let text = "SELECT share, due_ms FROM waiting WHERE share > ? ORDER BY share, due_ms LIMIT 1";
        let mut last = 0;
        loop {
            let found = cached(&self.db, text)?.query_row([last], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
            let Some((share, due_ms)) = found else { return Ok(()) };
            match has(share) {
                Some(position) => self.expect_next(share, position)?,
                None => self.first_due.note(share, due_ms),
            }
            last = share;
        }
    }
}
