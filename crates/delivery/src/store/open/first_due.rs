//! The first due times of waiting messages that got another due time (rule S4). The source of a message knows only
//! the first due time. A mark stays before this time until the message has its outcome. Few messages have a row.

use rusqlite::{OptionalExtension, params};

use crate::store::sql::{Result, cached};
use crate::store::{Done, Known, Store};

impl Store {
    /// Notes that a message goes on under another number, with another due time.
    pub(in crate::store) fn write_moved(&mut self, known: &Known, seq: i64, partition: u8) -> Result<()> {
        let mut select = cached(&self.db, "SELECT first_due_ms FROM moved WHERE seq = ?")?;
        let before_ms: Option<i64> = select.query_row([known.seq], |row| row.get(0)).optional()?;
        let text = "INSERT INTO moved (seq, first_due_ms, partition) VALUES (?, ?, ?)";
        cached(&self.db, text)?.execute(params![seq, before_ms.unwrap_or(known.due_ms), partition])?;
        self.moved += 1;
        Ok(())
    }

    pub(in crate::store) fn forget_moved(&mut self, done: &[Done]) -> Result<()> {
        if self.moved == 0 {
            return Ok(());
        }
        let mut delete = cached(&self.db, "DELETE FROM moved WHERE seq = ?")?;
        for one in done {
            self.moved -= delete.execute([one.seq])? as u64;
        }
        Ok(())
    }
}
