//! The further calls of the store: the plan, what may have been sent, and the small tables.

use std::collections::HashMap;
use std::path::Path;

use rusqlite::types::{FromSql, ToSql};
use rustc_hash::FxHashSet;

use super::{Action, Attempts, Done, Known, Letter, Occurrence, Position, Progress, Store, Waiting};
use crate::base::error::{DeliveryError, StoreError};
use crate::message::Message;
use crate::message::incoming::{Content, Digest};
use crate::message::recurrence::Recurrence;
use crate::store::file::options::Options;
use crate::store::file::schema;
use crate::store::open::{bodies, recover, waiting};
use crate::store::tables::{bulk_actions, inputs, letters, meta, paused_keys};

/// Opening, and what is open.
impl Store {
    /// Makes the store if the file is new or empty. Brings everything that is open into `waiting`, and marks what may have
    /// been sent before a crash.
    ///
    /// # Errors
    ///
    /// `Usage` if the file is no store of this version; `Store`.
    pub(crate) fn open(path: &Path, options: Options) -> Result<Self, DeliveryError> {
        Self::open_with(path, options, Digest::number, "FULL")
    }

    pub(super) fn open_with(
        path: &Path,
        options: Options,
        number: fn(Digest) -> i64,
        synchronous: &str,
    ) -> Result<Self, DeliveryError> {
        let db = schema::connect(path, synchronous)?;
        recover::open(db, path, options, number).map_err(|broken| broken.of(path).into())
    }

    /// Whether it has no outcome.
    pub(crate) fn is_open(&self, known: &Known) -> Result<bool, StoreError> {
        if known.outcome.is_some() {
            return Ok(false);
        }
        if self.near.has(known.seq) {
            return Ok(true);
        }
        self.told(waiting::is_waiting(&self.db, (known.due_ms, known.seq)))
    }
}

/// The plan, and what is known to have been in memory.
impl Store {
    /// The next that wait after this position and are due until then, in order.
    pub(crate) fn plan(&self, after: Position, until_ms: i64, limit: usize) -> Result<Vec<Waiting>, StoreError> {
        self.told(waiting::plan(&self.db, self.with_attempts > 0, after, until_ms, limit))
    }

    /// Those of these lanes among the next `limit` from `start` on, and how far that was; at most to `through`.
    pub(crate) fn plan_lanes(
        &self,
        lanes: &[i64],
        start: Position,
        through: Position,
        limit: usize,
    ) -> Result<(Vec<Waiting>, Position), StoreError> {
        self.told(waiting::plan_lanes(&self.db, self.with_attempts > 0, lanes, start, through, limit))
    }

    /// These messages, with their payloads. The caller bounds how many, and how large they are.
    pub(crate) fn bodies(&self, seqs: &[i64]) -> Result<HashMap<i64, Message>, StoreError> {
        self.told(bodies::read(&self.db, seqs))
    }

    /// Of what is in `waiting`.
    pub(crate) fn first_due_ms(&self) -> Result<Option<i64>, StoreError> {
        self.told(waiting::first_due_ms(&self.db).map_err(Into::into))
    }

    /// From now on everything in memory that is due until `sent_until_ms` may be sent at any moment; `None`: everything that
    /// was sent is committed. In memory are the near messages and, of those in `waiting`, all at or before `cursor`; of a
    /// lane that is held back only those before its position. `held_back_changes`: lanes that are held back from there on,
    /// or (`None`) no more.
    pub(crate) fn mark(
        &mut self,
        sent_until_ms: Option<i64>,
        cursor: Option<Position>,
        held_back_changes: &[(i64, Option<Position>)],
    ) -> Result<(), StoreError> {
        let done = self.write_mark(sent_until_ms, cursor, held_back_changes);
        self.told(done)
    }

    /// These have a row in `waiting`, were tried, and may have arrived.
    pub(crate) fn mark_redelivered(&mut self, positions: &[Position]) -> Result<(), StoreError> {
        let done = self.write_redelivered(positions);
        self.told(done)
    }

    /// Everything in `waiting` that may have been sent before.
    pub(crate) fn suspects(&self) -> Result<Vec<Waiting>, StoreError> {
        self.told(waiting::redelivered(&self.db, self.with_attempts > 0, self.redelivered_until_ms))
    }

    /// Keeps how often these were tried, until they have their outcome.
    pub(crate) fn note_attempts(&mut self, attempts: &[Attempts]) -> Result<(), StoreError> {
        let done = self.write_attempts(attempts);
        self.told(done)
    }

    /// What is kept of a message's attempts.
    pub(crate) fn attempts(&self, seq: i64) -> Result<Option<Attempts>, StoreError> {
        self.told(self.read_attempts(seq))
    }

    /// Of how many messages attempts are kept.
    #[cfg(test)]
    pub(crate) fn tried_count(&self) -> u64 {
        self.with_attempts
    }

    /// A message that waits goes on as a new one that is due then: its number, and what it says. The old one is to be finished
    /// after this, in the same transaction.
    pub(crate) fn move_to(
        &mut self,
        known: &Known,
        due_ms: i64,
        tried: Option<&Attempts>,
    ) -> Result<(i64, Message), StoreError> {
        let moved = self.write_move(known, due_ms, tried);
        self.told(moved)
    }

    /// What an open message says.
    pub(crate) fn open_message(&self, seq: i64) -> Result<Message, StoreError> {
        self.told(self.read_open(seq))
    }

    /// A message whose name is known, and is over: its number.
    pub(crate) fn write_again(&mut self, message: &Message, content: Content) -> Result<i64, StoreError> {
        let before = self.find(message.key(), message.id())?.map(|known| known.seq);
        let written = self.write_one(message, content, before, None);
        self.told(written)
    }

    /// By which number destinations know it, if its name came again.
    pub(crate) fn again_of(&self, seq: i64) -> Result<Option<i64>, StoreError> {
        self.told(self.read_again(seq))
    }

    /// This open message is the occurrence of a recurring one.
    pub(crate) fn put_occurrence(&mut self, seq: i64, occurrence: Occurrence) -> Result<(), StoreError> {
        let done = self.write_occurrence(seq, occurrence);
        self.told(done)
    }

    /// Which of these were occurrences: they are none any more.
    pub(crate) fn take_occurrences(&mut self, done: &[Done]) -> Result<Vec<Occurrence>, StoreError> {
        let taken = self.remove_occurrences(done);
        self.told(taken)
    }

    /// A message goes on under another number: if it is an occurrence, that is one.
    pub(crate) fn move_occurrence(&mut self, from_seq: i64, to_seq: i64) -> Result<(), StoreError> {
        let done = if self.recurring > 0 { self.write_occurrence_moved(from_seq, to_seq) } else { Ok(()) };
        self.told(done)
    }

    /// The occurrence of a recurring message is that of another one from now on.
    pub(crate) fn give_occurrence(&mut self, from_seq: i64, to_seq: i64) -> Result<(), StoreError> {
        let done = self.write_occurrence_given(from_seq, to_seq);
        self.told(done)
    }

    /// Its rule, as it is from now on.
    pub(crate) fn put_rule(&mut self, seq: i64, rule: &Recurrence) -> Result<(), StoreError> {
        let done = bodies::write_rule(&self.db, seq, rule);
        self.told(done)
    }

    /// The open occurrence of a recurring message.
    pub(crate) fn occurrence_of(&self, of_seq: i64) -> Result<Option<(Known, Occurrence)>, StoreError> {
        self.told(self.read_occurrence(of_seq))
    }

    /// Which of these are occurrences.
    pub(crate) fn occurrences_among(&self, found: &[Position]) -> Result<FxHashSet<i64>, StoreError> {
        self.told(self.read_occurrences_among(found))
    }

    /// It is a message as any other from now on.
    pub(crate) fn drop_occurrence(&mut self, seq: i64) -> Result<(), StoreError> {
        let done = self.delete_occurrence(seq);
        self.told(done)
    }

    /// Whether a message that has a row in `waiting` may have arrived, and its attempts.
    pub(crate) fn left(&self, position: Position) -> Result<(bool, Option<Attempts>), StoreError> {
        self.told(self.read_left(position))
    }
}

/// The small tables.
impl Store {
    /// For a message that is not known: when it comes it is cancelled (D7). It is remembered as long as names are, and until
    /// `until_ms` at least.
    pub(crate) fn remember_cancel(
        &mut self,
        key: Option<&str>,
        id: &str,
        now_ms: i64,
        until_ms: Option<i64>,
    ) -> Result<(), StoreError> {
        let done = self.write_cancel(key, id, now_ms, until_ms);
        self.told(done)
    }

    /// The lanes of the keys that are paused.
    pub(crate) fn paused_lanes(&self) -> Result<Vec<i64>, StoreError> {
        self.told(paused_keys::lanes(&self.db))
    }

    /// Notes that this key is paused; `false` if too many are.
    pub(crate) fn pause_key(&mut self, lane: i64, key: &str, now_ms: i64) -> Result<bool, StoreError> {
        self.told(paused_keys::add(&self.db, lane, key, now_ms))
    }

    /// Notes that the keys of this lane are not paused.
    pub(crate) fn resume_lane(&mut self, lane: i64) -> Result<(), StoreError> {
        self.told(paused_keys::remove(&self.db, lane))
    }

    /// Dead letters, to be written out after the commit.
    pub(crate) fn put_letters(&mut self, letters: &[Letter], at_ms: i64) -> Result<(), StoreError> {
        let done = self.letters.put(&self.db, letters, at_ms);
        self.told(done)
    }

    /// The record of the letter of a message. `None`: it is not there any more.
    pub(crate) fn letter(&self, seq: i64) -> Result<Option<Vec<u8>>, StoreError> {
        self.told(letters::find(&self.db, seq).map(|found| found.map(|(_, record)| record)))
    }

    /// That letter is kept no longer.
    pub(crate) fn drop_letter(&mut self, seq: i64) -> Result<(), StoreError> {
        let done = self.letters.drop_one(&self.db, seq);
        self.told(done)
    }

    /// The number of the last letter.
    pub(crate) fn last_letter(&self) -> i64 {
        self.letters.last()
    }

    /// Letters of messages after this one, up to that one: number, and the number of the message.
    pub(crate) fn letters_of_messages(
        &self,
        after: i64,
        through: i64,
        limit: usize,
    ) -> Result<Vec<(i64, i64)>, StoreError> {
        self.told(bulk_actions::letters(&self.db, after, through, limit))
    }

    /// An action on many messages: `None` if it is new; else whether the one with its id is the same.
    pub(crate) fn put_action(&mut self, action: &Action, now_ms: i64) -> Result<Option<bool>, StoreError> {
        let done = self.write_action(action, now_ms);
        self.told(done)
    }

    /// How far an action is, and when it ended, if it has.
    pub(crate) fn put_progress(&mut self, action: &Action, ended_ms: Option<i64>) -> Result<(), StoreError> {
        let done = self.write_progress(action, ended_ms);
        self.told(done)
    }

    /// Actions that have not ended.
    pub(crate) fn running_actions(&self) -> Result<Vec<Action>, StoreError> {
        self.told(bulk_actions::running(&self.db))
    }

    /// How many an action has changed, and for how many it came too late.
    #[cfg(test)]
    pub(crate) fn progress_of(&self, id: &str) -> Result<(u64, u64), StoreError> {
        let text = "SELECT changed, too_late FROM actions WHERE id = ?";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64));
        self.told(self.db.query_row(text, [id], row).map_err(Into::into))
    }

    /// The next messages with a row in `waiting` that an action is about, of those in this lane if one is given; and how far that is,
    /// if there may be more. It looks at so many, and finds so many.
    pub(crate) fn matches(
        &self,
        action: &Action,
        lane: Option<i64>,
        limits: (usize, usize),
    ) -> Result<(Vec<Position>, Option<Position>), StoreError> {
        self.told(self.read_matches(action, lane, limits))
    }

    /// The next to be written out, bounded by count and bytes, and the number to give to `letters_written` then.
    pub(crate) fn unwritten_letters(&self) -> Result<(Vec<Letter>, i64), StoreError> {
        self.told(self.letters.unwritten(&self.db))
    }

    /// Whether there is one that is not known to be written out.
    pub(crate) fn has_unwritten_letters(&self) -> bool {
        self.letters.has_unwritten()
    }

    /// All up to this one are written out; old ones go.
    pub(crate) fn letters_written(&mut self, through: i64) -> Result<(), StoreError> {
        let done = self.letters.written(&self.db, through);
        self.told(done)
    }

    /// How far each input was read, by name.
    pub(crate) fn inputs(&self) -> Result<HashMap<String, Progress>, StoreError> {
        self.told(inputs::every(&self.db))
    }

    /// Takes the place of what was kept for this input.
    pub(crate) fn put_input(&mut self, progress: &Progress) -> Result<(), StoreError> {
        self.told(inputs::put(&self.db, progress))
    }

    /// A value by name, as the position of a sink; `None` if it was never put.
    pub(crate) fn get_meta<T: FromSql>(&self, name: &str) -> Result<Option<T>, StoreError> {
        self.told(meta::get(&self.db, name))
    }

    /// Takes the place of what was there. The names that the store uses itself are listed in `open/recover.rs`.
    pub(crate) fn put_meta(&mut self, name: &str, value: impl ToSql) -> Result<(), StoreError> {
        self.told(meta::put(&self.db, name, value))
    }
}
