//! Gives a message its outcome: a row in the ledger (D5). Or continues it under a new number (D16), if its due time changes or its
//! name comes again.
//!
//! A message that goes on gets its outcome too, and its rows, positions and chunks stay as they were written. The name is
//! known by the newest number. The source of a message knows only the first due time (S4). So the table `moved` keeps that of a
//! message that got another one, and a mark stays before it until the message has its outcome. Few messages have a row.

use rusqlite::OptionalExtension;

use super::bodies;
use crate::message::Message;
use crate::message::hashes::Content;
use crate::message::incoming::Digest;
use crate::message::partition::partition_of_name;
use crate::message::recurrence::NEVER_MS;
use crate::message::until::Cause;
use crate::store::sql::{Broken, Result, cached, execute};
use crate::store::{Attempts, Done, Known, Outcome, Position, Store};

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
                if delete.execute((due_ms, seq))? == 0 {
                    return Err(Broken::Contradiction(format!("message {seq} is not open, and has an outcome again")));
                }
            }
        }
        self.write_ledger(done)?;
        self.open -= done.len() as u64;
        self.recurring -= done.iter().filter(|one| one.due_ms == NEVER_MS).count() as u64;
        for one in done.iter().filter(|one| one.outcome != Outcome::Delivered) {
            execute(&self.db, "UPDATE messages SET outcome = ? WHERE seq = ?", (one.outcome, one.seq))?;
        }
        self.forget_moved(done)?;
        self.forget_waits(done)?;
        self.forget_attempts(done)
    }

    pub(in crate::store) fn write_ledger(&mut self, done: &[Done]) -> Result<()> {
        let mut insert = cached(
            &self.db,
            "INSERT INTO ledger (n, seq, outcome, at_ms, lateness_us, attempts, redelivered) VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?;
        for Done { seq, outcome, at_ms, lateness_us, attempts, redelivered, .. } in done {
            self.last_n += 1;
            insert.execute((self.last_n, seq, outcome, at_ms, lateness_us, attempts, redelivered))?;
        }
        Ok(())
    }
}

impl Store {
    /// Continues a waiting message as a new message with another due time. Returns the number and the content of the new message. The caller
    /// must then finish the old one in the same transaction.
    /// `is_decided`: an event comes too late for it.
    pub(crate) fn move_to(
        &mut self,
        known: &Known,
        due_ms: i64,
        tried: Option<&Attempts>,
        is_decided: bool,
    ) -> Result<(i64, Message)> {
        let mut message = Message { due_ms, ..self.open_message(known.seq)? };
        message.body = message.body.with(|extras| {
            extras.first = extras.first.or(Some(known.seq));
            if let Some(until) = extras.until.as_mut().filter(|it| is_decided && it.cause == Cause::Open) {
                until.cause = Cause::Deadline;
            }
        });
        let seq = self.write_one(&message, known.content, Some(known.seq), tried)?;
        self.write_moved(known, seq, partition_of_name(message.key(), message.id()))?;
        Ok((seq, message))
    }

    /// Accepts a message under a name that is known already. Returns the number of the message.
    pub(crate) fn write_again(&mut self, message: &Message, content: Content) -> Result<i64> {
        let before = self.find(message.key(), message.id())?.map(|known| known.seq);
        self.write_one(message, content, before, None)
    }

    /// Writes a near message, even if its name is known. Returns its number. `before`: the earlier message of the
    /// same name.
    fn write_one(
        &mut self,
        message: &Message,
        content: Content,
        before: Option<i64>,
        tried: Option<&Attempts>,
    ) -> Result<i64> {
        let body = &message.body;
        let name = (self.number)(Digest::of(body.key(), body.id()));
        let seq = self.next_seq;
        let text =
            "INSERT INTO messages (seq, name, due_ms, key, id, content, again, first) VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
        let (again, first) = body.extras().map_or((None, None), |extras| (extras.again, extras.first));
        let values = (seq, name, message.due_ms, body.key(), body.id(), content.as_bytes(), again, first);
        execute(&self.db, text, values)?;
        self.events.have_waits |= bodies::write(&self.db, [(seq, body)])?;
        self.next_seq += 1;
        self.names.add(name, seq, before);
        self.near.begin(seq, self.last_n);
        self.near.add(seq, body.payload().len());
        self.open += 1;
        self.recurring += u64::from(message.due_ms == NEVER_MS);
        if let Some(tried) = tried {
            self.note_attempts(&[Attempts { seq, next_ms: None, ..tried.clone() }])?;
        }
        Ok(seq)
    }

    /// The numbers by which destinations know a message that is this one again: `again` and `first` of its extras.
    pub(crate) fn numbers_of(&self, seq: i64) -> Result<(Option<i64>, Option<i64>)> {
        let text = "SELECT again, ifnull(first, seq) FROM messages WHERE seq = ?";
        Ok(cached(&self.db, text)?.query_row([seq], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }

    /// For a message in `waiting`: whether it may have arrived, and its attempts.
    pub(crate) fn left(&self, (due_ms, seq): (i64, i64)) -> Result<(bool, Option<Attempts>)> {
        let text = "SELECT redelivered FROM waiting WHERE due_ms = ? AND seq = ?";
        let redelivered = cached(&self.db, text)?.query_row([due_ms, seq], |row| row.get(0)).optional()?;
        let redelivered = redelivered.ok_or_else(|| Broken::Contradiction(format!("message {seq} does not wait")))?;
        Ok((redelivered, self.attempts(seq)?))
    }
}

impl Store {
    /// Notes that a message goes on under another number, with another due time.
    pub(in crate::store) fn write_moved(&mut self, known: &Known, seq: i64, partition: u8) -> Result<()> {
        let mut select = cached(&self.db, "SELECT first_due_ms FROM moved WHERE seq = ?")?;
        let before_ms: Option<i64> = select.query_row([known.seq], |row| row.get(0)).optional()?;
        let text = "INSERT INTO moved (seq, first_due_ms, partition) VALUES (?, ?, ?)";
        execute(&self.db, text, (seq, before_ms.unwrap_or(known.due_ms), partition))?;
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
