//! Accepts a message. It may be new, its name may be known (D5), or a cancel came before it (D7).
//!
//! A number only tells where to look; key and id decide. The newest message of a name decides whether the name is
//! known. If this message is a dead letter or was withdrawn, the name is not known any more. Each older message has
//! its outcome. Equal names within one call are found like any others, because each new name is in memory at once.

use rusqlite::{Connection, OptionalExtension, params};

use super::bodies;
use crate::message::incoming::{Content, Digest, Incoming};
use crate::message::recurrence::NEVER_MS;
use crate::store::sql::{Broken, Result, cached};
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
                "INSERT INTO messages (seq, name, due_ms, key, id, content, outcome, again) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
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
                let (again, redelivered) = match known.as_ref().filter(is_dead) {
                    Some(dead) => (self.again_of(dead.seq)?, due_ms != NEVER_MS),
                    None => (known.as_ref().map(|_| seq), false),
                };
                insert.raw_bind_parameter(1, seq)?;
                insert.raw_bind_parameter(2, name)?;
                insert.raw_bind_parameter(3, due_ms)?;
                insert.raw_bind_parameter(4, body.key())?;
                insert.raw_bind_parameter(5, body.id())?;
                insert.raw_bind_parameter(6, item.content.as_bytes())?;
                insert.raw_bind_parameter(7, was_cancelled.then_some(Outcome::Cancelled))?;
                insert.raw_bind_parameter(8, again)?;
                insert.raw_execute()?;
                self.next_seq += 1;
                self.names.add(*name, seq, known.as_ref().map(|known| known.seq));
                self.near.begin(seq, self.last_n);
                if was_cancelled {
                    self.cancels -= 1;
                    cancelled.push(cancelled_before(seq, due_ms, now_ms));
                    answers.push(Accepted::CancelledBefore(seq));
                } else {
                    self.near.add(seq, body.payload().len());
                    self.open += 1;
                    self.recurring += u64::from(due_ms == NEVER_MS);
                    let new_again = Accepted::NewAgain { seq, again, redelivered };
                    answers.push(if known.is_some() { new_again } else { Accepted::New(seq) });
                }
            }
        }
        // Written after all rows of `messages`, because consecutive rows of the same table are cheaper.
        let bodies = incoming.iter().zip(&answers).filter_map(|(item, answer)| match answer {
            Accepted::New(seq) | Accepted::NewAgain { seq, .. } => Some((*seq, &item.message.body)),
            _ => None,
        });
        bodies::write(&self.db, bodies)?;
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
    let mut select = cached(db, "SELECT due_ms, content, outcome FROM messages WHERE seq = ?")?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, content(row.get_ref(1)?.as_blob()?), row.get(2)?));
    Ok(match select.query_row([seq], row).optional()? {
        Some((due_ms, Some(content), outcome)) => Some(Known { seq, due_ms, content, outcome }),
        _ => None,
    })
}

/// The stored facts of this message, if it has this name and is not forgotten.
fn known(db: &Connection, seq: i64, key: Option<&str>, id: &str) -> Result<Option<Known>> {
    let text = "SELECT due_ms, content, outcome FROM messages WHERE seq = ? AND id = ? AND key IS ?";
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, content(row.get_ref(1)?.as_blob()?), row.get(2)?));
    match cached(db, text)?.query_row(params![seq, id, key], row).optional()? {
        None => Ok(None),
        Some((due_ms, Some(content), outcome)) => Ok(Some(Known { seq, due_ms, content, outcome })),
        Some((_, None, _)) => Err(Broken::Contradiction(format!("the content of message {seq} is no digest"))),
    }
}

/// Reads the stored digest: 15 bytes for JSON, 16 for other bytes.
fn content(kept: &[u8]) -> Option<Content> {
    if !matches!(kept.len(), 15 | 16) {
        return None;
    }
    let mut bytes = [0; 16];
    bytes[..kept.len()].copy_from_slice(kept);
    Some(Content { bytes, len: kept.len() as u8 })
}

fn take_cancel(db: &Connection, name: i64, key: Option<&str>, id: &str) -> Result<bool> {
    let text = "DELETE FROM cancels WHERE name = ? AND id = ? AND key IS ?";
    Ok(cached(db, text)?.execute(params![name, id, key])? > 0)
}

fn cancelled_before(seq: i64, due_ms: i64, at_ms: i64) -> Done {
    Done { seq, due_ms, outcome: Outcome::Cancelled, at_ms, lateness_us: None, attempts: 0, redelivered: false }
}
