//! A key, or a message without a key, is tried at once (rule D16).
//!
//! The time of its next attempt becomes now, in the store too. So the answer holds after a crash. It also holds for a
//! store without a running deliverer: the next deliverer tries the message at once.

use super::{Group, answer_of};
use crate::due::dispatcher::{Again, Dispatcher};
use crate::group::items::{Answer, Failing};
use crate::message::incoming::lane_of;
use crate::message::recurrence::NEVER_MS;
use crate::store::Result;

impl Group<'_> {
    pub(super) fn try_at_once(&mut self, failing: &Failing) -> Result<Answer> {
        let key = match failing {
            Failing::Key(key) => Some(key.as_str()),
            Failing::Message(_) => None,
        };
        let lane = self.dispatcher.lock().window.number(lane_of(key));
        match (lane, failing) {
            (Some(lane), _) => self.lane_again(lane, failing),
            (None, Failing::Message(id)) => self.message_again(id),
            (None, Failing::Key(_)) => unreachable!("a key has a lane"),
        }
    }

    /// In one order of all messages, the lane is that of all.
    fn lane_again(&mut self, lane: i64, failing: &Failing) -> Result<Answer> {
        let (found, now_ms, has_read) = {
            let mut dispatcher = self.dispatcher.lock();
            if self.is_paused(&dispatcher, Some(lane)) {
                return Ok(Answer::Paused);
            }
            let now_ms = dispatcher.steady_ms();
            (dispatcher.try_key(lane), now_ms, dispatcher.window.have_all_read(now_ms))
        };
        let is_read = has_read && self.store.has_none_due(now_ms);
        match found {
            Again::Absent if !is_read => {
                // The message may be in the store, and come into memory later.
                Ok(if self.note_in_store(failing, now_ms)? { Answer::Tried } else { Answer::Unknown })
            }
            Again::Tried { seq: None, .. } => {
                self.note_in_store(failing, now_ms)?; // its key was paused, and the message is only in the store
                Ok(Answer::Tried)
            }
            found => self.answer(found, now_ms),
        }
    }

    /// Looks for the message in the store. Returns whether it waits for its next attempt.
    fn note_in_store(&mut self, failing: &Failing, now_ms: i64) -> Result<bool> {
        match failing {
            Failing::Key(key) => self.store.try_key_now(key, now_ms),
            Failing::Message(id) => match self.store.find(None, id)? {
                Some(known) => Ok(self.store.try_now(known.seq, now_ms)?.is_some()),
                None => Ok(false),
            },
        }
    }

    fn message_again(&mut self, id: &str) -> Result<Answer> {
        let Some(known) = self.store.find(None, id)? else { return Ok(Answer::Unknown) };
        if !self.store.is_open(&known)? {
            return Ok(known.outcome.map_or(Answer::Delivered, answer_of));
        }
        let (found, now_ms) = {
            let mut dispatcher = self.dispatcher.lock();
            if self.is_paused(&dispatcher, None) {
                return Ok(Answer::Paused);
            }
            (dispatcher.try_message(known.seq), dispatcher.steady_ms())
        };
        match found {
            Again::Absent if known.due_ms == NEVER_MS => Ok(Answer::Recurring),
            Again::Absent => {
                let Some(share) = self.store.try_now(known.seq, now_ms)? else { return Ok(Answer::Waiting) };
                let mut dispatcher = self.dispatcher.lock();
                let share = dispatcher.open_share(share, || self.store.destination_numbered(share));
                dispatcher.want(share, known.seq);
                Ok(Answer::Tried)
            }
            found => self.answer(found, now_ms),
        }
    }

    fn answer(&mut self, found: Again, now_ms: i64) -> Result<Answer> {
        Ok(match found {
            Again::Tried { seq, attempts } => {
                if let Some(seq) = seq {
                    self.store.try_now(seq, now_ms)?;
                    self.tried_now.push((seq, attempts));
                }
                Answer::Tried
            }
            Again::Sending => Answer::Delivering,
            Again::Over(outcome) => answer_of(outcome),
            Again::Waiting => Answer::Waiting,
            Again::Absent => Answer::Unknown,
        })
    }

    /// Whether sending is paused, also after the items before this one.
    fn is_paused(&self, dispatcher: &Dispatcher, lane: Option<i64>) -> bool {
        let is_lane_paused = |lane| dispatcher.window.is_key_paused(lane) && !self.resumed_lanes.contains(&lane);
        dispatcher.is_paused() && !self.resumes || lane.is_some_and(is_lane_paused)
    }
}
