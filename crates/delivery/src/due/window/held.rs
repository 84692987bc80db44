//! Lanes of which no message goes out: their key is paused (D16), or waits after a send that was not accepted (D6).
//!
//! - All waiting messages of a *paused* lane are in the store, so its `more_from` is at its first message. A paused lane is
//!   not refilled, so the loader never reads for it. By a collision of 64 bits, two keys may share a lane. If one of them
//!   is paused, both wait until the lane is resumed.
//! - If a key *waits* again and again, only the message being tried stays in memory. Dead customers therefore do not fill it
//!   (D8).

use super::Window;
use super::entry::{Gone, State};
use crate::due::doubt::Key;
use crate::due::lanes::Slot;
use crate::message::incoming::lane_in;
use crate::store::Position;

impl Window {
    pub(crate) fn paused_keys(&self) -> usize {
        self.paused.len()
    }

    /// Whether this message's key is paused.
    pub(crate) fn is_paused(&self, slot: Slot) -> bool {
        self.entry(slot).lane.is_some_and(|lane| self.lane(lane).is_paused)
    }

    /// Whether a message of this key may go out: the key is not paused.
    pub(crate) fn may_be_sent(&self, key: Key) -> bool {
        !matches!(key, Key::Lane(share, number) if self.is_lane_paused(share, number))
    }

    /// Whether the key with this number is paused.
    pub(crate) fn is_key_paused(&self, number: i64) -> bool {
        self.paused.contains(&number)
    }

    /// Whether the key of the lane with this number is paused.
    pub(crate) fn is_lane_paused(&self, share: u32, number: i64) -> bool {
        !self.paused.is_empty() && self.paused.contains(&lane_in(self.share(share).id, number))
    }

    /// Messages that were sent and left memory, while the store has no note on disk that they may have arrived.
    pub(crate) fn sent_and_left(&self) -> &[Position] {
        &self.sent_and_left
    }

    /// The lanes of this key, each with its share, whether the window knows them or not. It looks at all shares in memory.
    pub(crate) fn lanes_of_key(&self, number: i64) -> impl Iterator<Item = (u32, i64)> + use<> {
        let mut lanes: Vec<_> = self.share_numbers.iter().map(|(id, share)| (*share, lane_in(*id, number))).collect();
        lanes.sort_unstable();
        lanes.into_iter()
    }

    /// Pauses the key with this number: no message of it is taken, whatever its destination. Its waiting messages go back
    /// to the store, and are added to `gone`.
    pub(crate) fn pause(&mut self, number: i64, gone: &mut Vec<Gone>) {
        self.paused.insert(number);
        for (_, number) in self.lanes_of_key(number) {
            let Some(lane) = self.lane_numbered(number) else { continue };
            self.lane_mut(lane).is_paused = true;
            while let Some((position, slot)) = self.lane(lane).last() {
                self.leave(lane, Some(position));
                gone.push(self.send_back(slot));
            }
            self.look_after(lane);
        }
    }

    /// Resumes this key: its messages in the store may come into memory again. Returns the lanes that the window knows.
    pub(crate) fn resume(&mut self, number: i64) -> Vec<u32> {
        self.paused.remove(&number);
        let known: Vec<u32> = self.lanes_of_key(number).filter_map(|(_, number)| self.lane_numbered(number)).collect();
        for lane in &known {
            self.lane_mut(*lane).is_paused = false;
            self.look_after(*lane);
        }
        known
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
        if is_first_left && self.is_read(self.lane(lane).share, position) {
            self.leave(lane, Some(position));
        } else {
            self.look_after(lane);
        }
        if was_sent && !is_near {
            self.sent_and_left.push(position);
        }
        self.leave_memory(slot);
    }

    // --- Keys that wait -------------------------------------------------------------

    /// Sets whether this lane waits. No message of a waiting lane goes out. Returns the lane, if the window knows it.
    pub(crate) fn set_waiting(&mut self, number: i64, is_waiting: bool) -> Option<u32> {
        if is_waiting {
            self.waiting.insert(number);
        } else {
            self.waiting.remove(&number);
        }
        let lane = self.lane_numbered(number)?;
        self.lane_mut(lane).is_waiting = is_waiting;
        Some(lane)
    }

    /// Moves the messages of this lane to the store, except the message that is being tried. No other message comes in.
    pub(crate) fn clear_away(&mut self, lane: u32) {
        if self.is_global {
            return; // the lane of all messages would be read again and again
        }
        self.lane_mut(lane).is_away = true;
        // A held message is not committed. It stays, with the messages before it.
        while let Some((position, slot)) = self.lane(lane).last()
            && self.entry(slot).state == State::Waiting
        {
            self.leave(lane, Some(position));
            let size = self.entry(slot).size as usize;
            self.lane_mut(lane).remove(position, size);
            self.leave_memory(slot);
        }
        self.look_after(lane);
    }

    /// The same for a lane of which nothing is in memory, and whose message at `tried` comes first.
    pub(crate) fn keep_away(&mut self, share: u32, number: i64, tried: Position) {
        let lane = self.open_lane(share, number);
        self.lane_mut(lane).is_away = true;
        self.leave(lane, Some(tried)); // reading ahead moves it back, if the store has earlier ones
    }

    /// The lane's messages may come into memory again.
    pub(crate) fn come_back(&mut self, lane: u32) {
        if std::mem::take(&mut self.lane_mut(lane).is_away) {
            self.look_after(lane);
        }
    }

    /// The same, for a lane that waits no more.
    pub(crate) fn come_back_unless_waiting(&mut self, number: i64) {
        if let Some(lane) = self.lane_numbered(number).filter(|lane| !self.lane(*lane).is_waiting) {
            self.come_back(lane);
        }
    }
}
