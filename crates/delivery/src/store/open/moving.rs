//! A message whose name is known goes on, or comes again (D16): under a new number, so that the old one has its outcome, and all
//! that is kept by number, position or chunk stays as it was written. The name is known by the newest number.

use rusqlite::{OptionalExtension, params};

use super::bodies;
use crate::message::Message;
use crate::message::incoming::{Content, Digest};
use crate::message::partition::partition_of_name;
use crate::message::recurrence::NEVER_MS;
use crate::store::sql::{Broken, Result, cached};
use crate::store::{Attempts, Known, Store};

impl Store {
    /// It waits, and has another due time now: its number, and what it says. The old one is to be finished in the same transaction,
    /// after this.
    pub(in crate::store) fn write_move(
        &mut self,
        known: &Known,
        due_ms: i64,
        tried: Option<&Attempts>,
    ) -> Result<(i64, Message)> {
        let message = Message { due_ms, ..self.read_open(known.seq)? };
        let seq = self.write_one(&message, known.content, Some(known.seq), tried)?;
        self.write_moved(known, seq, partition_of_name(message.key(), message.id()))?;
        Ok((seq, message))
    }

    /// What an open message says.
    pub(in crate::store) fn read_open(&self, seq: i64) -> Result<Message> {
        let mut read = bodies::read(&self.db, &[seq])?;
        Ok(read.remove(&seq).expect("it was read"))
    }

    /// A message, near, whatever is known of its name: its number. `before`: the message that its name was known by.
    pub(in crate::store) fn write_one(
        &mut self,
        message: &Message,
        content: Content,
        before: Option<i64>,
        tried: Option<&Attempts>,
    ) -> Result<i64> {
        let body = &message.body;
        let name = (self.number)(Digest::of(body.key(), body.id()));
        let seq = self.next_seq;
        let text = "INSERT INTO messages (seq, name, due_ms, key, id, content, again) VALUES (?, ?, ?, ?, ?, ?, ?)";
        let again = body.extras().and_then(|extras| extras.again);
        let values = params![seq, name, message.due_ms, body.key(), body.id(), content.as_bytes(), again];
        cached(&self.db, text)?.execute(values)?;
        bodies::write(&self.db, [(seq, body)])?;
        self.next_seq += 1;
        self.names.add(name, seq, before);
        self.near.begin(seq, self.last_n);
        self.near.add(seq, body.payload().len());
        self.open += 1;
        self.recurring += u64::from(message.due_ms == NEVER_MS);
        if let Some(tried) = tried {
            self.write_attempts(&[Attempts { seq, next_ms: None, ..tried.clone() }])?;
        }
        Ok(seq)
    }

    /// By which number destinations know a message whose name came again.
    pub(in crate::store) fn read_again(&self, seq: i64) -> Result<Option<i64>> {
        Ok(cached(&self.db, "SELECT again FROM messages WHERE seq = ?")?.query_row([seq], |row| row.get(0))?)
    }

    /// What the store knows of a message that has a row in `waiting`: whether it may have arrived, and its attempts.
    pub(in crate::store) fn read_left(&self, (due_ms, seq): (i64, i64)) -> Result<(bool, Option<Attempts>)> {
        let text = "SELECT redelivered FROM waiting WHERE due_ms = ? AND seq = ?";
        let redelivered = cached(&self.db, text)?.query_row([due_ms, seq], |row| row.get(0)).optional()?;
        let redelivered = redelivered.ok_or_else(|| Broken::Contradiction(format!("message {seq} does not wait")))?;
        Ok((redelivered, self.read_attempts(seq)?))
    }
}
