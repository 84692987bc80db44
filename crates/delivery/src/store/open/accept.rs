//! Accepts a message. It may be new, its name may be known (D5), or a cancel came before it (D7).
//!
//! A number only tells where to look; key and id decide. The newest message of a name decides whether the name is
//! known. If this message is a dead letter or was withdrawn, the name is not known any more. Each older message has
//! its outcome. Equal names within one call are found like any others, because each new name is in memory at once.

use rusqlite::{Connection, OptionalExtension, Params, Row};

use super::bodies;
use crate::message::hashes::Content;
use crate::message::incoming::{Digest, Incoming};
use crate::message::recurrence::NEVER_MS;
use crate::store::sql::{Broken, Result, cached, execute};
use crate::store::{Accepted, Done, Known, Outcome, Store};

impl Store {
    /// Accepts messages in this order, and returns an answer for each. New messages are near.
    pub(crate) fn accept(&mut self, incoming: &[Incoming], now_ms: i64) -> Result<Vec<Accepted>> {
        let numbers: Vec<i64> = incoming.iter().map(|item| (self.number)(item.digest)).collect();
        let known_by = |place: usize, seq: i64| {
            let body = &incoming[place].message.body;
            known(&self.db, seq, body.key(), body.id())
        };
        let mut before_this_call = self.names.find(&self.db, &numbers, known_by)?;
        let first_new = self.next_seq;
        let mut answers = Vec::with_capacity(incoming.len());
        let mut cancelled = Vec::new();
        {
            let mut insert = cached(
                &self.db,
                "INSERT INTO messages (seq, name, due_ms, key, id, content, outcome, again, first) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?;
            for (place, (item, name)) in incoming.iter().zip(&numbers).enumerate() {
                let body = &item.message.body;
                let mut known = before_this_call[place].take();
                if self.names.newest(*name).is_some_and(|seq| seq >= first_new) {
                    let in_memory = |seq| self::known(&self.db, seq, body.key(), body.id());
                    known = self.names.find_in_memory(*name, in_memory)?.or(known);
                }
                if let Some(known) = known.take_if(|known| !known.outcome.is_some_and(Outcome::is_free)) {
                    answers.push(Accepted::Known(known));
                    continue;
                }
                let was_cancelled = self.cancels > 0 && take_cancel(&self.db, *name, body.key(), body.id())?;
                let (seq, due_ms) = (self.next_seq, item.message.due_ms);
                // A dead letter with the same content is that message again, as if it was requeued.
                let is_dead = |it: &&Known| it.outcome.is_some_and(Outcome::is_dead) && it.content == item.content;
                let ((again, first), redelivered) = match known.as_ref().filter(is_dead) {
                    Some(dead) => (self.numbers_of(dead.seq)?, due_ms != NEVER_MS),
                    None => ((known.as_ref().map(|_| seq), None), false),
                };
                let first = if item.redelivered { Some(0) } else { first };
                let (content, outcome) = (item.content.as_bytes(), was_cancelled.then_some(Outcome::Cancelled));
                insert.execute((seq, name, due_ms, body.key(), body.id(), content, outcome, again, first))?;
                self.next_seq += 1;
                self.names.add(*name, seq, known.as_ref().map(|known| known.seq));
                self.near.begin(seq, self.last_n);
                if was_cancelled {
                    self.cancels -= 1;
                    cancelled.push(Done::unsent(seq, due_ms, Outcome::Cancelled, now_ms));
                    answers.push(Accepted::CancelledBefore(seq));
                } else {
                    self.near.add(seq, body.payload().len());
                    self.open += 1;
                    self.recurring += u64::from(due_ms == NEVER_MS);
                    answers.push(Accepted::New { seq, again, first, redelivered });
                }
            }
        }
        // Written after all rows of `messages`, because consecutive rows of the same table are cheaper.
        let bodies = incoming.iter().zip(&answers).filter_map(|(item, answer)| match answer {
            Accepted::New { seq, .. } => Some((*seq, &item.message.body)),
            _ => None,
        });
        self.events.have_waits |= bodies::write(&self.db, bodies)?;
        self.write_ledger(&cancelled)?;
        Ok(answers)
    }

    /// The message with this name. If none is known any more, the last one and its outcome.
    pub(crate) fn find(&self, key: Option<&str>, id: &str) -> Result<Option<Known>> {
        let name = (self.number)(Digest::of(key, id));
        let found = self.names.find(&self.db, &[name], |_, seq| known(&self.db, seq, key, id))?;
        Ok(found.into_iter().flatten().next())
    }
}

/// The stored facts of the message with this number.
pub(in crate::store) fn known_of(db: &Connection, seq: i64) -> Result<Option<Known>> {
    read(db, seq, "SELECT due_ms, content, outcome FROM messages WHERE seq = ?", [seq])
}

/// The stored facts of this message, if it has this name and is not forgotten.
fn known(db: &Connection, seq: i64, key: Option<&str>, id: &str) -> Result<Option<Known>> {
    let text = "SELECT due_ms, content, outcome FROM messages WHERE seq = ? AND id = ? AND key IS ?";
    read(db, seq, text, (seq, id, key))
}

fn read(db: &Connection, seq: i64, text: &str, values: impl Params) -> Result<Option<Known>> {
    let row = |row: &Row<'_>| Ok((row.get(0)?, Content::from_bytes(row.get_ref(1)?.as_blob()?), row.get(2)?));
    match cached(db, text)?.query_row(values, row).optional()? {
        None => Ok(None),
        Some((due_ms, Some(content), outcome)) => Ok(Some(Known { seq, due_ms, content, outcome })),
        Some((_, None, _)) => Err(Broken::Contradiction(format!("the content of message {seq} is no digest"))),
    }
}

fn take_cancel(db: &Connection, name: i64, key: Option<&str>, id: &str) -> Result<bool> {
    let text = "DELETE FROM cancels WHERE name = ? AND id = ? AND key IS ?";
    Ok(execute(db, text, (name, id, key))? > 0)
}
