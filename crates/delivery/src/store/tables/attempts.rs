//! The attempts of messages that failed at least once, and their strikes: how often the process ended while the message
//! may have been sent (D6). Both are kept until the outcome. Otherwise a message that ends the process each time would be
//! tried for ever.

use rusqlite::{Connection, OptionalExtension};

use crate::store::sql::{Result, cached, execute};
use crate::store::{Attempts, Done, Position, Store};

const WAITS: &str = "SELECT 1 FROM messages m JOIN waiting w ON w.due_ms = m.due_ms AND w.seq = m.seq WHERE m.seq = ?";

impl Store {
    /// Keeps the number of attempts of these messages until they have their outcome.
    pub(crate) fn note_attempts(&mut self, attempts: &[Attempts]) -> Result<()> {
        let text = "INSERT OR REPLACE INTO attempts \
                    (seq, attempts, counted, waited_ms, next_ms, error, at_ms, is_unanswered, strikes, share) \
                    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        for one in attempts {
            let before = cached(&self.db, "SELECT attempts FROM attempts WHERE seq = ?")?
                .query_row([one.seq], |row| row.get::<_, u32>(0))
                .optional()?;
            if before.is_none() {
                if !self.near.has(one.seq) && !cached(&self.db, WAITS)?.exists([one.seq])? {
                    continue; // it was cancelled after the attempt
                }
                self.with_attempts += 1;
            }
            self.untried = self.untried + u64::from(one.attempts == 0) - u64::from(before == Some(0));
            let Attempts { seq, attempts, counted, waited_ms, next_ms, error, at_ms, is_unanswered, strikes, share } =
                one;
            let values = (seq, attempts, counted, waited_ms, next_ms, error, at_ms, is_unanswered, strikes, share);
            execute(&self.db, text, values)?;
        }
        Ok(())
    }

    /// Notes that these messages go out now, or do not. The others of them have their outcome.
    pub(crate) fn note_sends(&mut self, noted: &[(i64, bool)]) -> Result<()> {
        for (seq, is_noted) in noted {
            execute(&self.db, "UPDATE attempts SET noted = ? WHERE seq = ?", (is_noted, seq))?;
        }
        Ok(())
    }

    /// Notes that these messages in `waiting` may be sent, because the send limit does not tell it. Those with two strikes are
    /// noted by themselves.
    pub(crate) fn note_uncovered(&mut self, positions: &[Position]) -> Result<()> {
        let text = "INSERT INTO attempts (seq, attempts, noted, share) \
                    SELECT seq, 0, 1, ifnull(share, 0) FROM waiting WHERE due_ms = ? AND seq = ? \
                    ON CONFLICT (seq) DO UPDATE SET noted = 1 WHERE strikes < 2";
        for (due_ms, seq) in positions {
            let is_known = cached(&self.db, "SELECT 1 FROM attempts WHERE seq = ?")?.exists([seq])?;
            let changed = execute(&self.db, text, [due_ms, seq])?;
            if changed > 0 && !is_known {
                self.with_attempts += 1;
                self.untried += 1;
            }
        }
        Ok(())
    }

    /// Takes back all such notes: the process ends as it should.
    pub(crate) fn forget_sends(&mut self) -> Result<()> {
        forget_sends(&self.db)
    }

    pub(in crate::store) fn forget_attempts(&mut self, done: &[Done]) -> Result<()> {
        if self.with_attempts == 0 {
            return Ok(());
        }
        let mut delete = cached(&self.db, "DELETE FROM attempts WHERE seq = ? RETURNING attempts")?;
        for one in done {
            let attempts = delete.returned([one.seq], |row| row.get::<_, u32>(0))?.pop();
            self.with_attempts -= u64::from(attempts.is_some());
            self.untried -= u64::from(attempts == Some(0));
        }
        Ok(())
    }

    /// The stored attempts of a message.
    pub(crate) fn attempts(&self, seq: i64) -> Result<Option<Attempts>> {
        if self.with_attempts == 0 {
            return Ok(None);
        }
        let text = "SELECT attempts, next_ms, error, counted, waited_ms, at_ms, is_unanswered, strikes, share FROM attempts WHERE seq = ?";
        let mut select = cached(&self.db, text)?;
        let row = |row: &rusqlite::Row<'_>| {
            Ok(Attempts {
                seq,
                attempts: row.get(0)?,
                next_ms: row.get(1)?,
                error: row.get(2)?,
                counted: row.get(3)?,
                waited_ms: row.get(4)?,
                at_ms: row.get(5)?,
                is_unanswered: row.get(6)?,
                strikes: row.get(7)?,
                share: row.get(8)?,
            })
        };
        Ok(select.query_row([seq], row).optional()?)
    }

    /// The number of messages with stored attempts. Those that only have strikes do not count.
    pub(crate) fn tried_count(&self) -> u64 {
        self.with_attempts - self.untried
    }

    /// Sets the time of the next attempt to now, if it is later. Returns the number of the destination, if the message waits
    /// for a next attempt.
    pub(crate) fn try_now(&mut self, seq: i64, now_ms: i64) -> Result<Option<i64>> {
        let text =
            "UPDATE attempts SET next_ms = min(next_ms, ?) WHERE seq = ? AND next_ms IS NOT NULL RETURNING share";
        Ok(cached(&self.db, text)?.returned([now_ms, seq], |row| row.get(0))?.pop())
    }

    /// The same for the messages of a key. It looks at all messages with stored attempts.
    pub(crate) fn try_key_now(&mut self, key: &str, now_ms: i64) -> Result<bool> {
        let text = "UPDATE attempts SET next_ms = min(next_ms, ?) WHERE next_ms IS NOT NULL \
                AND EXISTS (SELECT 1 FROM messages m WHERE m.seq = attempts.seq AND m.key = ?)";
        Ok(execute(&self.db, text, (now_ms, key))? > 0)
    }
}

pub(in crate::store) fn forget_sends(db: &Connection) -> Result<()> {
    execute(db, "UPDATE attempts SET noted = 0 WHERE noted = 1", ()).map(drop)
}
