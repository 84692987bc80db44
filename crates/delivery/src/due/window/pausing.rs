//! Paused keys (D16). No message of a paused lane goes out. No waiting message of the lane is in memory, however many
//! keys are paused.
//!
//! All waiting messages of a paused lane are in the store, so its `more_from` is at its first message. A paused lane is
//! not refilled, so the loader never reads for it. By a collision of 64 bits, two keys may share a lane. If one of them
//! is paused, both wait until the lane is resumed.

use super::Window;
use super::entry::{Gone, State};
use crate::due::lanes::Slot;
use crate::store::Position;

impl Window {
    pub(crate) fn paused_lanes(&self) -> usize {
        self.paused.len()
    }

    /// Whether this message's key is paused.
    pub(crate) fn is_paused(&self, slot: Slot) -> bool {
        self.entry(slot).lane.is_some_and(|lane| self.lane(lane).is_paused)
    }

    /// Whether the key of the lane with this number is paused.
    pub(crate) fn is_lane_paused(&self, number: i64) -> bool {
        self.paused.contains(&number)
    }

    /// Messages that were sent and left memory, while the store has no note on disk that they may have arrived.
    pub(crate) fn sent_and_left(&self) -> &[Position] {
        &self.sent_and_left
    }

    /// Pauses this lane: no message of it is taken. Its waiting messages go back to the store, and are added to `gone`.
    pub(crate) fn pause(&mut self, number: i64, gone: &mut Vec<Gone>) {
        self.paused.insert(number);
        let Some(lane) = self.lane_numbered(number) else { return };
        self.lane_mut(lane).is_paused = true;
        while let Some((position, slot)) = self.lane(lane).last() {
            self.leave(lane, Some(position));
            gone.push(self.send_back(slot));
        }
        self.look_after(lane);
    }

    /// Resumes this lane: its messages in the store may come into memory again. Returns the lane, if the window knows
    /// it.
    pub(crate) fn resume(&mut self, number: i64) -> Option<u32> {
        self.paused.remove(&number);
        let lane = self.lane_numbered(number)?;
        self.lane_mut(lane).is_paused = false;
        self.look_after(lane);
        Some(lane)
    }

    /// A message of a paused lane, which waits for its next attempt, goes back to the store.
    pub(crate) fn leave_paused(&mut self, slot: Slot) {
        let entry = self.entry_mut(slot);
        let (was_sent, is_near, position) = (entry.was_sent, entry.is_near, entry.position());
        entry.redelivered |= was_sent;
        let lane = entry.lane.expect("what is paused has a lane");
        let it = self.lane_mut(lane);
        it.none_in_flight();
        let is_first_left = it.more_from.is_none_or(|from| position < from);
        // If it is after the cursor, reading ahead finds it.
        if is_first_left && self.cursor.is_some_and(|cursor| position <= cursor) {
            self.leave(lane, Some(position));
        } else {
            self.look_after(lane);
        }
        if is_near {
            self.entry_mut(slot).state = State::Leaving;
            self.leaving.push(slot);
            return;
        }
        if was_sent {
            self.sent_and_left.push(position);
        }
        self.remove(slot);
    }
}
