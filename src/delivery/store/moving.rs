//! A message that waits gets another due time (D16): it goes on under a new number, so that the old one has its outcome, and all
//! that is kept by number, position or chunk stays as it was written.
//!
//! The new one has the name, the content, the payload and the attempts of the old one. The name is known by the newest number.

#![forbid(unsafe_code)]

use rusqlite::{OptionalExtension, params};

use super::sql::{Broken, Result, cached};
use super::{Attempts, Known, Store, bodies};
use crate::delivery::incoming::Digest;
use crate::delivery::message::Message;

impl Store {
    /// Its number, and what it says. The old one is to be finished in the same transaction, after this.
    pub(super) fn write_move(
        &mut self,
        known: &Known,
        due_ms: i64,
        tried: Option<&Attempts>,
    ) -> Result<(i64, Message)> {
        let mut read = bodies::read(&self.db, &[known.seq])?;
        let message = Message { due_ms, ..read.remove(&known.seq).expect("it was read") };
        let body = &message.body;
        let name = (self.number)(Digest::of(body.key(), body.id()));
        let seq = self.next_seq;
        let text = "INSERT INTO messages (seq, name, due_ms, key, id, content) VALUES (?, ?, ?, ?, ?, ?)";
        cached(&self.db, text)?.execute(params![seq, name, due_ms, body.key(), body.id(), known.content.as_bytes()])?;
        cached(&self.db, "INSERT INTO bodies (seq, payload) SELECT ?, payload FROM bodies WHERE seq = ?")?
            .execute([seq, known.seq])?;
        self.next_seq += 1;
        self.names.add(name, seq);
        self.near.begin(seq, self.last_n);
        self.near.add(seq, body.payload().len());
        self.open += 1;
        if let Some(tried) = tried {
            self.write_attempts(&[Attempts { seq, next_ms: None, ..tried.clone() }])?;
        }
        Ok((seq, message))
    }

    /// What the store knows of a message that has a row in `waiting`: whether it may have arrived, and its attempts.
    pub(super) fn read_left(&self, (due_ms, seq): (i64, i64)) -> Result<(bool, Option<Attempts>)> {
        let text = "SELECT redelivered FROM waiting WHERE due_ms = ? AND seq = ?";
        let redelivered = cached(&self.db, text)?.query_row([due_ms, seq], |row| row.get(0)).optional()?;
        let redelivered = redelivered.ok_or_else(|| Broken::Contradiction(format!("message {seq} does not wait")))?;
        Ok((redelivered, self.read_attempts(seq)?))
    }
}
