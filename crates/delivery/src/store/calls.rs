//! More calls of the store: open messages, the plan, marks of sent messages, and the small tables.

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
use crate::store::tables::{attempts, bulk_actions, inputs, letters, meta, paused_keys};

/// Opening a store, and its open messages.
impl Store {
    /// Opens the store at `path`, and makes one if the file is new or empty. Each open message gets a row in
    /// `waiting`. The store marks the messages that may have been sent before a crash.
    ///
    /// # Errors
    ///
    /// `Usage` if the file is not a store of this version; `Store` if it cannot be read or written.
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

    /// Whether the message has no outcome.
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

/// The plan, marks of sent messages, moved messages, and occurrences.
impl Store {
    /// The next messages in `waiting` after this position and due until `until_ms`, in order.
    pub(crate) fn plan(&self, after: Position, until_ms: i64, limit: usize) -> Result<Vec<Waiting>, StoreError> {
        self.told(waiting::plan(&self.db, self.with_attempts > 0, after, until_ms, limit))
    }

    /// Looks at the next `limit` rows from `start` on, but not past `through`. Returns the rows in these lanes, and
    /// the position of the last row it looked at.
    pub(crate) fn plan_lanes(
        &self,
        lanes: &[i64],
        start: Position,
        through: Position,
        limit: usize,
    ) -> Result<(Vec<Waiting>, Position), StoreError> {
        self.told(waiting::plan_lanes(&self.db, self.with_attempts > 0, lanes, start, through, limit))
    }

    /// The next `limit` messages that wait for an attempt until `until_ms`, after this position `(next_ms, seq)`.
    pub(crate) fn plan_tried(
        &self,
        after: (i64, i64),
        until_ms: i64,
        limit: usize,
    ) -> Result<Vec<Waiting>, StoreError> {
        if self.with_attempts == 0 {
            return Ok(Vec::new());
        }
        self.told(waiting::plan_tried(&self.db, after, until_ms, limit))
    }

    /// The time of the first next attempt after this time.
    pub(crate) fn next_tried_ms(&self, after_ms: i64) -> Result<Option<i64>, StoreError> {
        if self.with_attempts == 0 {
            return Ok(None);
        }
        self.told(waiting::next_tried_ms(&self.db, after_ms))
    }

    /// The message with this number, if it waits and was tried.
    pub(crate) fn find_tried(&self, seq: i64) -> Result<Option<Waiting>, StoreError> {
        self.told(waiting::find_tried(&self.db, seq))
    }

    /// Reads these messages with their payloads. The caller limits their number and size.
    pub(crate) fn bodies(&self, seqs: &[i64]) -> Result<HashMap<i64, Message>, StoreError> {
        self.told(bodies::read(&self.db, seqs))
    }

    /// The first due time in `waiting`.
    pub(crate) fn first_due_ms(&self) -> Result<Option<i64>, StoreError> {
        self.told(waiting::first_due_ms(&self.db).map_err(Into::into))
    }

    /// Notes that all messages in memory due until `sent_until_ms` may be sent at any moment from now on. `None`:
    /// everything that was sent is committed.
    ///
    /// In memory are the near messages, and the rows of `waiting` up to `cursor`. A lane that is held back has only
    /// its messages before a certain position in memory. `held_back_changes` lists changed lanes: each with its new
    /// position, or `None` if it is not held back any more.
    pub(crate) fn mark(
        &mut self,
        sent_until_ms: Option<i64>,
        cursor: Option<Position>,
        held_back_changes: &[(i64, Option<Position>)],
    ) -> Result<(), StoreError> {
        let done = self.write_mark(sent_until_ms, cursor, held_back_changes);
        self.told(done)
    }

    /// Marks messages with a row in `waiting` that were tried and may have arrived.
    pub(crate) fn mark_redelivered(&mut self, positions: &[Position]) -> Result<(), StoreError> {
        let done = self.write_redelivered(positions);
        self.told(done)
    }

    /// All messages in `waiting` that may have been sent before.
    pub(crate) fn suspects(&self) -> Result<Vec<Waiting>, StoreError> {
        self.told(waiting::redelivered(&self.db, self.with_attempts > 0, self.redelivered_until_ms))
    }

    /// Keeps the number of attempts of these messages until they have their outcome.
    pub(crate) fn note_attempts(&mut self, attempts: &[Attempts]) -> Result<(), StoreError> {
        let done = self.write_attempts(attempts);
        self.told(done)
    }

    /// The stored attempts of a message.
    pub(crate) fn attempts(&self, seq: i64) -> Result<Option<Attempts>, StoreError> {
        self.told(self.read_attempts(seq))
    }

    /// The message waits no more for its next attempt. Returns whether it has waited for one.
    pub(crate) fn try_now(&mut self, seq: i64, now_ms: i64) -> Result<bool, StoreError> {
        self.told(attempts::try_now(&self.db, seq, now_ms))
    }

    /// The same for the messages of a key. It looks at all messages with stored attempts.
    pub(crate) fn try_key_now(&mut self, key: &str, now_ms: i64) -> Result<bool, StoreError> {
        self.told(attempts::try_key_now(&self.db, key, now_ms))
    }

    /// The number of messages with stored attempts.
    pub(crate) fn tried_count(&self) -> u64 {
        self.with_attempts
    }

    /// Continues a waiting message as a new message with another due time. Returns the number and the content of the
    /// new message. The caller must then finish the old one in the same transaction.
    pub(crate) fn move_to(
        &mut self,
        known: &Known,
        due_ms: i64,
        tried: Option<&Attempts>,
    ) -> Result<(i64, Message), StoreError> {
        let moved = self.write_move(known, due_ms, tried);
        self.told(moved)
    }

    /// The content of an open message.
    pub(crate) fn open_message(&self, seq: i64) -> Result<Message, StoreError> {
        self.told(self.read_open(seq))
    }

    /// Accepts a message under a name that is known already. Returns the number of the message.
    pub(crate) fn write_again(&mut self, message: &Message, content: Content) -> Result<i64, StoreError> {
        let before = self.find(message.key(), message.id())?.map(|known| known.seq);
        let written = self.write_one(message, content, before, None);
        self.told(written)
    }

    /// The number by which destinations know the message, if an earlier message had the same name.
    pub(crate) fn again_of(&self, seq: i64) -> Result<Option<i64>, StoreError> {
        self.told(self.read_again(seq))
    }

    /// Notes that this open message is an occurrence of a recurring message.
    pub(crate) fn put_occurrence(&mut self, seq: i64, occurrence: Occurrence) -> Result<(), StoreError> {
        let done = self.write_occurrence(seq, occurrence);
        self.told(done)
    }

    /// Removes finished messages from the occurrences. Returns the removed occurrences.
    pub(crate) fn take_occurrences(&mut self, done: &[Done]) -> Result<Vec<Occurrence>, StoreError> {
        let taken = self.remove_occurrences(done);
        self.told(taken)
    }

    /// Moves an occurrence to a new number, if the message is one.
    pub(crate) fn move_occurrence(&mut self, from_seq: i64, to_seq: i64) -> Result<(), StoreError> {
        let done = if self.recurring > 0 { self.write_occurrence_moved(from_seq, to_seq) } else { Ok(()) };
        self.told(done)
    }

    /// Gives the occurrence of a recurring message to another recurring message.
    pub(crate) fn give_occurrence(&mut self, from_seq: i64, to_seq: i64) -> Result<(), StoreError> {
        let done = self.write_occurrence_given(from_seq, to_seq);
        self.told(done)
    }

    /// Replaces the rule of a recurring message.
    pub(crate) fn put_rule(&mut self, seq: i64, rule: &Recurrence) -> Result<(), StoreError> {
        let done = bodies::write_rule(&self.db, seq, rule);
        self.told(done)
    }

    /// The open occurrence of a recurring message.
    pub(crate) fn occurrence_of(&self, of_seq: i64) -> Result<Option<(Known, Occurrence)>, StoreError> {
        self.told(self.read_occurrence(of_seq))
    }

    /// The occurrences among these messages.
    pub(crate) fn occurrences_among(&self, found: &[Position]) -> Result<FxHashSet<i64>, StoreError> {
        self.told(self.read_occurrences_among(found))
    }

    /// Turns an occurrence into an ordinary message.
    pub(crate) fn drop_occurrence(&mut self, seq: i64) -> Result<(), StoreError> {
        let done = self.delete_occurrence(seq);
        self.told(done)
    }

    /// For a message in `waiting`: whether it may have arrived, and its attempts.
    pub(crate) fn left(&self, position: Position) -> Result<(bool, Option<Attempts>), StoreError> {
        self.told(self.read_left(position))
    }
}

/// The small tables.
impl Store {
    /// Remembers a cancel for a message that is not known. When the message comes, it is cancelled (D7). The store
    /// keeps the cancel as long as names, and at least until `until_ms`.
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

    /// Notes that this key is paused. `false`: too many keys are paused.
    pub(crate) fn pause_key(&mut self, lane: i64, key: &str, now_ms: i64) -> Result<bool, StoreError> {
        self.told(paused_keys::add(&self.db, lane, key, now_ms))
    }

    /// Notes that the keys of this lane are not paused any more.
    pub(crate) fn resume_lane(&mut self, lane: i64) -> Result<(), StoreError> {
        self.told(paused_keys::remove(&self.db, lane))
    }

    /// Keeps dead letters. They are written out after the commit.
    pub(crate) fn put_letters(&mut self, letters: &[Letter], at_ms: i64) -> Result<(), StoreError> {
        let done = self.letters.put(&self.db, letters, at_ms);
        self.told(done)
    }

    /// The record in the dead letter of a message. `None`: the letter is gone.
    pub(crate) fn letter(&self, seq: i64) -> Result<Option<Vec<u8>>, StoreError> {
        self.told(letters::find(&self.db, seq).map(|found| found.map(|(_, record)| record)))
    }

    /// Removes the dead letter of a message.
    pub(crate) fn drop_letter(&mut self, seq: i64) -> Result<(), StoreError> {
        let done = self.letters.drop_one(&self.db, seq);
        self.told(done)
    }

    /// The number of the last letter.
    pub(crate) fn last_letter(&self) -> i64 {
        self.letters.last()
    }

    /// The dead letters of messages, with letter numbers after `after` and up to `through`. Each item has the
    /// letter's number and the message's number.
    pub(crate) fn letters_of_messages(
        &self,
        after: i64,
        through: i64,
        limit: usize,
    ) -> Result<Vec<(i64, i64)>, StoreError> {
        self.told(bulk_actions::letters(&self.db, after, through, limit))
    }

    /// Stores an action on many messages. `None`: it is new. Otherwise, whether the known action with this id is the
    /// same.
    pub(crate) fn put_action(&mut self, action: &Action, now_ms: i64) -> Result<Option<bool>, StoreError> {
        let done = self.write_action(action, now_ms);
        self.told(done)
    }

    /// Stores the progress of an action, and its end if it has ended.
    pub(crate) fn put_progress(&mut self, action: &Action, ended_ms: Option<i64>) -> Result<(), StoreError> {
        let done = self.write_progress(action, ended_ms);
        self.told(done)
    }

    /// Actions that have not ended.
    pub(crate) fn running_actions(&self) -> Result<Vec<Action>, StoreError> {
        self.told(bulk_actions::running(&self.db))
    }

    /// The number of messages that an action has changed, and the number for which it came too late.
    #[cfg(test)]
    pub(crate) fn progress_of(&self, id: &str) -> Result<(u64, u64), StoreError> {
        let text = "SELECT changed, too_late FROM actions WHERE id = ?";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64));
        self.told(self.db.query_row(text, [id], row).map_err(Into::into))
    }

    /// The next messages in `waiting` that match an action, only from this lane if one is given. Also returns the
    /// position to go on from, if there may be more. `limits`: how many rows to look at, and how many messages to
    /// find.
    pub(crate) fn matches(
        &self,
        action: &Action,
        lane: Option<i64>,
        limits: (usize, usize),
    ) -> Result<(Vec<Position>, Option<Position>), StoreError> {
        self.told(self.read_matches(action, lane, limits))
    }

    /// The next dead letters to write out, bounded by count and bytes. Pass the returned number to `letters_written`
    /// afterwards.
    pub(crate) fn unwritten_letters(&self) -> Result<(Vec<Letter>, i64), StoreError> {
        self.told(self.letters.unwritten(&self.db))
    }

    /// Whether a dead letter may not be written out yet.
    pub(crate) fn has_unwritten_letters(&self) -> bool {
        self.letters.has_unwritten()
    }

    /// Notes that all letters up to this one are written out. Old letters are removed.
    pub(crate) fn letters_written(&mut self, through: i64) -> Result<(), StoreError> {
        let done = self.letters.written(&self.db, through);
        self.told(done)
    }

    /// The progress of each input, by name.
    pub(crate) fn inputs(&self) -> Result<HashMap<String, Progress>, StoreError> {
        self.told(inputs::every(&self.db))
    }

    /// Replaces the stored progress of this input.
    pub(crate) fn put_input(&mut self, progress: &Progress) -> Result<(), StoreError> {
        self.told(inputs::put(&self.db, progress))
    }

    /// A value by name, such as the position of a sink. `None` if it was never stored.
    pub(crate) fn get_meta<T: FromSql>(&self, name: &str) -> Result<Option<T>, StoreError> {
        self.told(meta::get(&self.db, name))
    }

    /// Stores a value by name, in place of an older one. The names that the store uses itself are listed in
    /// `open/recover.rs`.
    pub(crate) fn put_meta(&mut self, name: &str, value: impl ToSql) -> Result<(), StoreError> {
        self.told(meta::put(&self.db, name, value))
    }
}
