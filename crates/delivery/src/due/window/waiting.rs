//! Keys that wait after a send that was not accepted (D6). No message of their lanes goes out. If a key fails again and
//! again, only the message being tried stays in memory. Dead customers therefore do not fill it (D8).

use super::Window;
use super::entry::State;
use crate::store::Position;

impl Window {
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
            if self.entry(slot).is_near {
                let size = self.entry(slot).size as usize;
                self.lane_mut(lane).remove(position, size);
                self.entry_mut(slot).state = State::Leaving;
                self.leaving.push(slot);
            } else {
                self.send_back(slot);
            }
        }
        self.look_after(lane);
    }

    /// The same for a lane of which nothing is in memory, and whose message at `tried` comes first.
    pub(crate) fn keep_away(&mut self, number: i64, tried: Position) {
        let lane = self.open_lane(number);
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
