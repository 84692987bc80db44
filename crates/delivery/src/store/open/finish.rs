//! Gives a message its outcome: a row in the ledger (D5).

use rusqlite::params;

use crate::message::recurrence::NEVER_MS;
use crate::store::sql::{Broken, Result, cached};
use crate::store::{Done, Outcome, Position, Store};

impl Store {
    /// Writes the outcome of these messages.
    pub(crate) fn finish(&mut self, done: &[Done]) -> Result<()> {
        let mut waited: Vec<Position> = Vec::new();
        for (one, n) in done.iter().zip(self.last_n + 1..) {
            if !self.near.finish(one.seq) {
                waited.push((one.due_ms, one.seq));
                self.collector.add(n, one.seq);
            }
        }
        waited.sort_unstable(); // neighbours in the tree follow each other
        {
            let mut delete = cached(&self.db, "DELETE FROM waiting WHERE due_ms = ? AND seq = ?")?;
            for (due_ms, seq) in waited {
                delete.raw_bind_parameter(1, due_ms)?;
                delete.raw_bind_parameter(2, seq)?;
                if delete.raw_execute()? == 0 {
                    return Err(Broken::Contradiction(format!("message {seq} is not open, and has an outcome again")));
                }
            }
        }
        self.write_ledger(done)?;
        self.open -= done.len() as u64;
        self.recurring -= done.iter().filter(|one| one.due_ms == NEVER_MS).count() as u64;
        for one in done.iter().filter(|one| one.outcome != Outcome::Delivered) {
            cached(&self.db, "UPDATE messages SET outcome = ? WHERE seq = ?")?
                .execute(params![one.outcome, one.seq])?;
        }
        self.forget_moved(done)?;
        self.forget_attempts(done)
    }

    pub(in crate::store) fn write_ledger(&mut self, done: &[Done]) -> Result<()> {
        let mut insert = cached(
            &self.db,
            "INSERT INTO ledger (n, seq, outcome, at_ms, lateness_us, attempts, redelivered) VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?;
        for one in done {
            self.last_n += 1;
            insert.raw_bind_parameter(1, self.last_n)?;
            insert.raw_bind_parameter(2, one.seq)?;
            insert.raw_bind_parameter(3, one.outcome as i64)?;
            insert.raw_bind_parameter(4, one.at_ms)?;
            insert.raw_bind_parameter(5, one.lateness_us)?;
            insert.raw_bind_parameter(6, one.attempts)?;
            insert.raw_bind_parameter(7, one.redelivered)?;
            insert.raw_execute()?;
        }
        Ok(())
    }
}
