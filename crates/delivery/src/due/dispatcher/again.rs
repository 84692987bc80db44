//! A key that waits for its next attempt is tried at once, because a caller asks for it (rule D16). Its attempts and its
//! time without success stay. If the try fails, the key waits as after any other failed send.

use super::{Again, Dispatcher};
use crate::due::doubt::{Doubt, Key};
use crate::due::lanes::Slot;
use crate::due::window::State;

impl Dispatcher {
    /// Ends the wait of the key with this lane.
    pub(crate) fn try_lane(&mut self, number: i64) -> Again {
        let key = Key::Lane(number);
        let Some(lane) = self.window.lane_numbered(number).map(|lane| self.window.lane(lane)) else {
            let waits = self.doubts.get(key).is_some_and(Doubt::waits);
            if waits {
                self.wake(key); // memory was full, and has forgotten the lane
                return Again::Tried { seq: None, attempts: 0 };
            }
            return Again::Absent;
        };
        let in_flight = lane.in_flight.map(|slot| self.window.entry(slot));
        if in_flight.is_some_and(|entry| entry.state == State::Sending) {
            return Again::Sending;
        }
        let doubt = self.doubts.get(key);
        let (waits, parked) = (doubt.is_some_and(Doubt::waits), doubt.and_then(|doubt| doubt.parked));
        // After a restart the message that was tried is in the order of its lane.
        let first = in_flight.or_else(|| lane.first().filter(|_| waits).map(|(_, slot)| self.window.entry(slot)));
        let tried = first.filter(|entry| entry.attempts > 0).map(|entry| (entry.seq, entry.attempts));
        if !waits && parked.is_none() && tried.is_none() {
            return Again::Absent;
        }
        self.wake(key);
        Again::Tried { seq: parked.or(tried.map(|(seq, _)| seq)), attempts: tried.map_or(0, |(_, attempts)| attempts) }
    }

    /// Ends the wait of this message without a key.
    pub(crate) fn try_message(&mut self, seq: i64) -> Again {
        let Some(slot) = self.window.find(seq) else { return Again::Absent };
        let key = Key::Message(seq);
        let waits = self.doubts.get(key).is_some_and(Doubt::waits);
        let entry = self.window.entry(slot);
        match entry.state {
            State::Sending => Again::Sending,
            State::Over => Again::Over(entry.outcome.expect("it is over")),
            State::Ready | State::Retrying | State::Parked if entry.attempts > 0 => self.tried(key, slot),
            State::Uncommitted | State::Waiting | State::Leaving if waits => self.tried(key, slot),
            _ => Again::Waiting,
        }
    }

    fn tried(&mut self, key: Key, slot: Slot) -> Again {
        let entry = self.window.entry(slot);
        let (seq, attempts) = (entry.seq, entry.attempts);
        self.wake(key);
        Again::Tried { seq: Some(seq), attempts }
    }
}
