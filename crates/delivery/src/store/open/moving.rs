//! Continues a message under a new number (D16), if its due time changes or its name comes again. The old message
//! gets its outcome, and its rows, positions and chunks stay as they were written. The name is known by the newest
//! number.

use rusqlite::{OptionalExtension, params};

use super::bodies;
use crate::message::Message;
use crate::message::incoming::{Content, Digest};
use crate::message::partition::partition_of_name;
use crate::message::recurrence::NEVER_MS;
use crate::store::sql::{Broken, Result, cached};
use crate::store::{Attempts, Known, Store};

impl Store {
    /// Continues a waiting message as a new message with another due time. Returns the number and the content of the new message. The caller
    /// must then finish the old one in the same transaction.
    pub(crate) fn move_to(&mut self, known: &Known, due_ms: i64, tried: Option<&Attempts>) -> Result<(i64, Message)> {
        let message = Message { due_ms, ..self.open_message(known.seq)? };
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
            self.note_attempts(&[Attempts { seq, next_ms: None, ..tried.clone() }])?;
        }
        Ok(seq)
    }

    /// The number by which destinations know the message, if an earlier message had the same name.
    pub(crate) fn again_of(&self, seq: i64) -> Result<Option<i64>> {
        Ok(cached(&self.db, "SELECT again FROM messages WHERE seq = ?")?.query_row([seq], |row| row.get(0))?)
    }

    /// For a message in `waiting`: whether it may have arrived, and its attempts.
    pub(crate) fn left(&self, (due_ms, seq): (i64, i64)) -> Result<(bool, Option<Attempts>)> {
        let text = "SELECT redelivered FROM waiting WHERE due_ms = ? AND seq = ?";
        let redelivered = cached(&self.db, text)?.query_row([due_ms, seq], |row| row.get(0)).optional()?;
        let redelivered = redelivered.ok_or_else(|| Broken::Contradiction(format!("message {seq} does not wait")))?;
        Ok((redelivered, self.attempts(seq)?))
    }
}
