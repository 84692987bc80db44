//! An event lets messages go (rule D22). Each is due from that moment, and keeps its number and its body.
//!
//! An event is too late for a message that is due, may have been sent, or was let go. The group's time decides, and not
//! whether it was sent. A message that is let go is taken out of memory, and admitted anew at its new place, as a new one is.
//! If memory has no room, it stays in the store, and its body is not read.

use std::sync::Arc;

use super::items::Answer;
use super::operations::MANY_WAIT;
use super::{Group, lane_of_body};
use crate::base::error::OTHER_CONTENT;
use crate::message::events::Event;
use crate::message::incoming::{Incoming, Origin};
use crate::message::record::record_of_incoming;
use crate::message::until::{Cause, Until};
use crate::message::{Body, Message, size_in_memory};
use crate::store::{Outcome, Position, Result, WaitingRow};

impl Group<'_> {
    /// Returns the answer, and how many messages the event has let go.
    pub(super) fn event(&mut self, event: &Event, origin: Option<&Origin>) -> Result<(Answer, Option<u32>)> {
        let Event { id, key, event: name, .. } = event;
        if let Some(known) = self.store.known_event(key, id)? {
            if known.content == event.content() {
                self.counts.duplicates += 1;
                return Ok((Answer::LetGo, Some(known.let_go)));
            }
            self.put_letter(origin, OTHER_CONTENT, |origin| origin.record().to_vec());
            self.counts.conflicts += 1;
            return Ok((Answer::Conflict, None));
        }
        let data = event.data();
        let waiting = self.store.waiting_for(key, name, self.now_ms)?;
        let n = self.store.put_event(event, &data)?;
        let mut let_go = 0;
        for position in waiting {
            let_go += u32::from(self.let_go(position, n, &data)?);
        }
        self.store.has_let_go(n, let_go)?;
        self.read_bodies()?;
        self.counts.events += 1;
        self.counts.let_go += u64::from(let_go);
        Ok((Answer::LetGo, Some(let_go)))
    }

    /// Returns whether the message was not too late.
    fn let_go(&mut self, position: Position, n: i64, data: &Arc<str>) -> Result<bool> {
        let seq = position.1;
        let in_store = self.store.untried(position)?;
        if in_store.is_none() && !self.store.is_open_at(position)? {
            return Ok(false);
        }
        let Ok(taken) = self.dispatcher.lock().take_out(seq) else { return Ok(false) };
        let body = taken.map(|body| caused(body, n, data));
        let row = match (in_store, &body) {
            (Some(row), _) => row,
            (None, Some(body)) => {
                let (share, lane) = lane_of_body(body);
                WaitingRow { share, ..WaitingRow::untried(0, seq, lane, 0) }
            }
            (None, None) => return Ok(false), // it was tried
        };
        let size = body.as_ref().map_or(row.size as usize + data.len(), |body| size_in_memory(body.size())) as u32;
        let row = WaitingRow { due_ms: self.now_ms, size, ..row };
        self.store.let_go(position, n, &row)?;
        self.admit(&[(row, 0, body)], true)?; // it has a row, so its partition is not used
        Ok(true)
    }

    /// A new message that waits for an event that is remembered is due at once.
    pub(super) fn let_go_at_once(&mut self, seq: i64, message: Message) -> Result<Message> {
        let is_open = |until: &&Until| until.cause == Cause::Open && message.due_ms > self.now_ms;
        let Some((until, key)) = message.body.until().filter(is_open).zip(message.key()) else { return Ok(message) };
        let Some((n, data)) = self.store.remembered(key, &until.names)? else { return Ok(message) };
        self.store.note_let_go(seq, n, self.now_ms)?;
        self.counts.let_go += 1;
        Ok(Message { body: caused(message.body, n, &data), due_ms: self.now_ms, ..message })
    }

    /// Whether the message may not wait for an event, because many of its key do. If they may be too many with the puts
    /// before it, these are accepted first. `replaces`: it takes the place of a message of its name, if that waits.
    pub(super) fn is_full(
        &mut self,
        put: &Incoming,
        puts: &mut Vec<Incoming>,
        answers: &mut Vec<Answer>,
        replaces: bool,
    ) -> Result<bool> {
        let Some(key) = put.message.key().filter(|_| put.message.body.until().is_some()) else { return Ok(false) };
        if !self.store.is_full_of_waits(key, puts.len())? {
            return Ok(false);
        }
        self.accept(std::mem::take(puts), answers)?;
        let needs_no_place = match self.store.find(Some(key), put.message.id())? {
            Some(known) if replaces => self.store.waits(known.seq)?,
            Some(known) => !known.outcome.is_some_and(Outcome::is_free), // it is a duplicate, or a conflict
            None => false,
        };
        if needs_no_place || !self.store.is_full_of_waits(key, 0)? {
            return Ok(false);
        }
        let why = (MANY_WAIT, "a message once others have ended");
        self.put_letter(put.origin.as_ref(), why, |_| record_of_incoming(put));
        Ok(true)
    }

    /// Reads the bodies of messages that came into memory without.
    fn read_bodies(&mut self) -> Result<()> {
        let without = std::mem::take(&mut self.without_body);
        let seqs: Vec<i64> = without.iter().map(|(_, seq)| *seq).collect();
        let mut messages = self.store.bodies(&seqs)?;
        let mut dispatcher = self.dispatcher.lock();
        for (slot, seq) in without {
            dispatcher.window.entry_mut(slot).body = messages.remove(&seq).map(|it| it.body);
        }
        Ok(())
    }
}

fn caused(body: Body, n: i64, data: &Arc<str>) -> Body {
    body.with(|extras| {
        if let Some(Until { cause, .. }) = extras.until.as_deref_mut() {
            *cause = Cause::Event(n, data.clone());
        }
    })
}
