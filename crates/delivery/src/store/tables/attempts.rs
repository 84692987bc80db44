//! The number of attempts of messages that failed at least once (D6). It is kept until the outcome. Otherwise a
//! message that ends the process each time would be tried for ever.

use rusqlite::{OptionalExtension, params};

use crate::store::sql::{Result, cached};
use crate::store::{Attempts, CRASHED, Done, Store};

const WAITS: &str = "SELECT 1 FROM messages m JOIN waiting w ON w.due_ms = m.due_ms AND w.seq = m.seq WHERE m.seq = ?";

impl Store {
    /// Keeps the number of attempts of these messages until they have their outcome. A note before a send, which has the
    /// error [`CRASHED`], leaves the error of the last failure.
    pub(crate) fn note_attempts(&mut self, attempts: &[Attempts]) -> Result<()> {
        let text = "INSERT INTO attempts (seq, attempts, strikes, waited_ms, next_ms, error, at_ms, is_unanswered) \
                    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) \
                    ON CONFLICT (seq) DO UPDATE SET attempts = excluded.attempts, strikes = excluded.strikes, \
                    waited_ms = excluded.waited_ms, next_ms = excluded.next_ms, \
                    error = iif(excluded.error = ?9, ifnull(attempts.error, ?9), excluded.error), \
                    at_ms = excluded.at_ms, is_unanswered = excluded.is_unanswered";
        for one in attempts {
            if !cached(&self.db, "SELECT 1 FROM attempts WHERE seq = ?")?.exists([one.seq])? {
                if !self.near.has(one.seq) && !cached(&self.db, WAITS)?.exists([one.seq])? {
                    continue; // it was cancelled after the attempt
                }
                self.with_attempts += 1;
            }
            cached(&self.db, text)?.execute(params![
                one.seq,
                one.attempts,
                one.strikes,
                one.waited_ms,
                one.next_ms,
                one.error,
                one.at_ms,
                one.is_unanswered,
                CRASHED
            ])?;
        }
        Ok(())
    }

    pub(in crate::store) fn forget_attempts(&mut self, done: &[Done]) -> Result<()> {
        if self.with_attempts == 0 {
            return Ok(());
        }
        let mut delete = cached(&self.db, "DELETE FROM attempts WHERE seq = ?")?;
        for one in done {
            self.with_attempts -= delete.execute([one.seq])? as u64;
        }
        Ok(())
    }

    /// The stored attempts of a message.
    pub(crate) fn attempts(&self, seq: i64) -> Result<Option<Attempts>> {
        if self.with_attempts == 0 {
            return Ok(None);
        }
        let text =
            "SELECT attempts, next_ms, error, strikes, waited_ms, at_ms, is_unanswered FROM attempts WHERE seq = ?";
        let mut select = cached(&self.db, text)?;
        let row = |row: &rusqlite::Row<'_>| {
            Ok(Attempts {
                seq,
                attempts: row.get(0)?,
                next_ms: row.get(1)?,
                error: row.get(2)?,
                strikes: row.get(3)?,
                waited_ms: row.get(4)?,
                at_ms: row.get(5)?,
                is_unanswered: row.get(6)?,
            })
        };
        Ok(select.query_row([seq], row).optional()?)
    }

    /// The number of messages with stored attempts.
    pub(crate) fn tried_count(&self) -> u64 {
        self.with_attempts
    }

    /// Sets the time of the next attempt to now, if it is later. Returns whether the message waits for a next attempt.
    pub(crate) fn try_now(&mut self, seq: i64, now_ms: i64) -> Result<bool> {
        let text = "UPDATE attempts SET next_ms = min(next_ms, ?) WHERE seq = ? AND next_ms IS NOT NULL";
        Ok(cached(&self.db, text)?.execute([now_ms, seq])? > 0)
    }

    /// The same for the messages of a key. It looks at all messages with stored attempts.
    pub(crate) fn try_key_now(&mut self, key: &str, now_ms: i64) -> Result<bool> {
        let text = "UPDATE attempts SET next_ms = min(next_ms, ?) WHERE next_ms IS NOT NULL \
                AND EXISTS (SELECT 1 FROM messages m WHERE m.seq = attempts.seq AND m.key = ?)";
        Ok(cached(&self.db, text)?.execute(params![now_ms, key])? > 0)
    }
}
