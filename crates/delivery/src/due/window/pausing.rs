//! Keys that are paused (D16): nothing of their lanes goes out, and nothing that waits is in memory, however many are paused.
//!
//! A paused lane is as one of which all waits in the store: its `more_from` is where it begins. It is not refilled, so it never
//! makes the loader read. Two keys may share a lane, by a collision of 64 bits: then both are held, until the lane is resumed.

use super::Window;
use super::entry::{Gone, State};
use crate::due::lanes::Slot;
use crate::store::Position;

impl Window {
    /// How many lanes are paused.
    pub(crate) fn paused_lanes(&self) -> usize {
        self.paused.len()
    }

    /// Whether this message's key is paused.
    pub(crate) fn is_paused(&self, slot: Slot) -> bool {
        self.entry(slot).lane.is_some_and(|lane| self.lane(lane).is_paused)
    }

    /// Messages that were sent and left memory, of which it is not on disk yet that they may have arrived.
    pub(crate) fn sent_and_left(&self) -> &[Position] {
        &self.sent_and_left
    }

    /// From now on nothing of this lane is taken. What waits goes back to the store, and is added to `gone`.
    pub(crate) fn pause(&mut self, number: i64, gone: &mut Vec<Gone>) {
        self.paused.insert(number);
        let Some(lane) = self.lane_numbers.get(&number).copied() else { return };
        self.lane_mut(lane).is_paused = true;
        while let Some((position, slot)) = self.lane(lane).last() {
            self.leave(lane, Some(position));
            gone.push(self.send_back(slot));
        }
        self.look_after(lane);
    }

    /// What the store has of this lane may come into memory again. The lane, if anything is known of it.
    pub(crate) fn resume(&mut self, number: i64) -> Option<u32> {
        self.paused.remove(&number);
        let lane = self.lane_numbers.get(&number).copied()?;
        self.lane_mut(lane).is_paused = false;
        self.look_after(lane);
        Some(lane)
    }

    /// A message of a paused lane that waits to be tried again goes back to the store too.
    pub(crate) fn leave_paused(&mut self, slot: Slot) {
        let entry = self.entry_mut(slot);
        let (was_sent, is_near, position) = (entry.was_sent, entry.is_near, entry.position());
        entry.redelivered |= was_sent;
        let lane = entry.lane.expect("what is paused has a lane");
        let it = self.lane_mut(lane);
        it.in_flight = None;
        let is_first_left = it.more_from.is_none_or(|from| position < from);
        // Beyond the cursor it is read ahead.
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
