//! Actions on many messages (D16). Each group does a part of an action, so other items and sends do not wait for all of
//! it.
//!
//! A cancel first goes through the messages in memory that have no row in the store, by their slots. Then it goes through
//! the rows, in the order of their due times; of a destination or a tenant, share by share. A message that leaves memory
//! meanwhile gets a row, and is found there. After a restart every open message has a row. Messages that came after the
//! action began are left alone, and so are messages in the moment of sending.

use super::Group;
use crate::due::dispatcher::TakenBack;
use crate::due::window::Entry;
use crate::group::items::Answer;
use crate::message::incoming::lane_of;
use crate::store::{Action, ActionKind, Filter, Outcome, Position, Result};

/// How many messages one group looks at, and how many it changes. Outcomes that come meanwhile wait for its commit.
const LOOK: usize = 8_000;
pub(super) const CHANGE: usize = 1_000;
/// How many messages are taken back under one hold of the dispatcher's lock. Senders wait meanwhile.
const TAKE_BACK: usize = 256;

impl Group<'_> {
    /// Begins an action: `Accepted`, or `Refused` if its destination is not set. If the id is known: `Duplicate`, or `Conflict` if that action asked for something
    /// else.
    pub(super) fn begin_action(&mut self, id: String, kind: ActionKind, filter: Filter) -> Result<Answer> {
        if filter.destination.as_ref().is_some_and(|name| self.store.destination(name).is_none()) {
            return Ok(Answer::Refused);
        }
        let (through, at) = match kind {
            ActionKind::Cancel => (self.store.last_seq(), (filter.due_from_ms.unwrap_or(i64::MIN), i64::MIN)),
            ActionKind::Requeue => (self.store.last_letter(), (0, 0)),
        };
        let action = Action { id, kind, filter, through, at, share: 0, changed: 0, too_late: 0 };
        if let Some(is_same) = self.store.put_action(&action, self.now_ms)? {
            return Ok(if is_same { Answer::Duplicate } else { Answer::Conflict });
        }
        self.actions.begin(action);
        Ok(Answer::Accepted)
    }

    /// Does a part of the first action.
    pub(crate) fn act(&mut self) -> Result<()> {
        let Some(mut action) = self.actions.running.front().cloned() else { return Ok(()) };
        let has_more = match action.kind {
            ActionKind::Cancel => self.cancel_some(&mut action)?,
            ActionKind::Requeue => self.requeue_some(&mut action)?,
        };
        self.store.put_progress(&action, (!has_more).then_some(self.now_ms))?;
        if has_more {
            self.actions.running[0] = action;
        } else {
            self.actions.end();
        }
        Ok(())
    }

    /// Returns whether there may be more.
    fn cancel_some(&mut self, action: &mut Action) -> Result<bool> {
        if let Some(from) = self.actions.slots {
            let filter = &action.filter;
            let (near, next) = self.near_ones(from, |entry| {
                let is_of_it = filter.takes_due(entry.due_ms) && filter.takes_body(entry.body.as_ref());
                entry.seq <= action.through && is_of_it
            });
            self.actions.slots = next;
            self.cancel_each(action, &near, true)?;
            if next.is_some() {
                return Ok(true);
            }
        }
        let lane = lane_of(action.filter.key.as_deref());
        let (found, may_be_more) = self.store.matches(action, lane, (LOOK, CHANGE))?;
        self.cancel_each(action, &found, false)?;
        Ok(may_be_more)
    }

    /// Returns messages in memory that have no row, from slot `from` on, and the slot at which to go on.
    pub(super) fn near_ones(&self, from: usize, takes: impl Fn(&Entry) -> bool) -> (Vec<Position>, Option<usize>) {
        let dispatcher = self.dispatcher.lock();
        let (slots, next) = dispatcher.window.part(from, CHANGE);
        let found = slots.filter(|entry| entry.is_near && takes(entry)).map(Entry::position).collect();
        (found, next)
    }

    fn cancel_each(&mut self, action: &mut Action, found: &[Position], is_near: bool) -> Result<()> {
        let mut found = self.without_occurrences(action, found)?;
        if self.dispatcher.lock().others_may_send(Outcome::Cancelled) {
            let before = found.len();
            self.store.leave_out_redelivered(&mut found)?;
            action.too_late += (before - found.len()) as u64;
        }
        let (mut done, mut absent) = (Vec::with_capacity(found.len()), Vec::new());
        for part in found.chunks(TAKE_BACK) {
            let mut dispatcher = self.dispatcher.lock();
            for (due_ms, seq) in part.iter().copied() {
                let found = dispatcher.take_back(seq, Outcome::Cancelled);
                match found {
                    TakenBack::Taken { .. } | TakenBack::Absent => {
                        absent.extend((found == TakenBack::Absent).then_some(seq));
                        action.too_late -= u64::from(self.actions.sending.remove(&seq));
                        done.push(self.done(seq, due_ms, Outcome::Cancelled));
                    }
                    TakenBack::Sending if !is_near || self.actions.sending.insert(seq) => action.too_late += 1,
                    TakenBack::Sending | TakenBack::Over(_) => {}
                }
            }
        }
        for seq in absent {
            if let Some(tried) = self.store.attempts(seq)? {
                self.dispatcher.lock().take_back_parked(tried.share, seq);
            }
        }
        self.finish(&done)?;
        self.taken_back.extend(done.iter().map(|it| (it.seq, None)));
        self.counts.cancelled += done.len() as u64;
        action.changed += done.len() as u64;
        Ok(())
    }

    /// Leaves out occurrences of recurring messages, unless the action asks for due times. If it does not, it ends the
    /// rules too. Then each rule withdraws its own occurrence, so that a new rule of the name may make it again.
    fn without_occurrences(&self, action: &Action, found: &[Position]) -> Result<Vec<Position>> {
        let mut left = found.to_vec();
        if !action.filter.asks_due() && self.store.recurring_count() > 0 {
            let occurrences = self.store.occurrences_among(found)?;
            left.retain(|(_, seq)| !occurrences.contains(seq));
        }
        Ok(left)
    }

    /// Returns whether there may be more.
    fn requeue_some(&mut self, action: &mut Action) -> Result<bool> {
        let letters = self.store.letters_of_messages(action.at.0, action.through, CHANGE)?;
        for (n, seq) in &letters {
            action.at = (*n, 0);
            let answer = self.requeue_letter(*seq, Some(&action.filter))?;
            action.changed += u64::from(answer == Some(Answer::Requeued));
            action.too_late += u64::from(answer.is_some_and(|it| it != Answer::Requeued));
        }
        Ok(letters.len() == CHANGE)
    }
}
