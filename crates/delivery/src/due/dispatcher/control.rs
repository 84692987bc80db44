//! What callers ask for (rule D16): a pause, of all sending or of a key, and a key that is tried at once. Messages on their way
//! are not affected.
//!
//! A key that is tried at once keeps its attempts and its time without success. If the try fails, the key waits as after any
//! other failed send.

use super::{Again, Dispatcher, Event};
use crate::due::doubt::{Doubt, Key};
use crate::due::lanes::Slot;
use crate::due::window::{Gone, State};

impl Dispatcher {
    /// Pauses or resumes all sending.
    pub(crate) fn pause(&mut self, is_paused: bool) {
        if std::mem::replace(&mut self.limit.is_paused, is_paused) != is_paused {
            self.events.push(if is_paused { Event::Paused } else { Event::Resumed });
            if is_paused {
                self.unnote_waiting(|_, _| true);
            }
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.limit.is_paused
    }

    /// Pauses these keys, by their numbers: no message of them is sent. Their waiting messages in memory go back to the
    /// store.
    pub(crate) fn pause_keys(&mut self, numbers: &[i64]) -> Vec<Gone> {
        let (before, mut gone) = (self.window.paused_keys(), Vec::new());
        for number in numbers {
            self.window.pause(*number, &mut gone);
            for (share, number) in self.window.lanes_of_key(*number) {
                let key = Key::Lane(share, number);
                self.to[share].outage.forget_unless_down(key);
                // A message that waits for its next attempt in the store loses its place, and comes in the order of its
                // lane.
                if let Some(seq) = self.to[share].doubts.get(key).and_then(|doubt| doubt.parked) {
                    self.forget_parked(seq);
                    self.window.come_back_unless_waiting(number);
                }
            }
        }
        self.tell_paused(before);
        gone
    }

    /// Resumes this key: its due messages are sent.
    pub(crate) fn resume_key(&mut self, number: i64) {
        let before = self.window.paused_keys();
        for lane in self.window.resume(number) {
            self.offer(lane);
            self.window.tidy(lane);
        }
        self.tell_paused(before);
    }

    /// The message should be tried again, but its key is paused. It waits in the store, where it takes no memory.
    pub(super) fn leave_paused(&mut self, slot: Slot) {
        self.unnote(self.window.entry(slot).seq);
        self.window.leave_paused(slot);
    }

    /// Adds an event. If the last event is of the same kind and was not given out, that event is updated.
    fn tell_paused(&mut self, before: usize) {
        let count = self.window.paused_keys();
        if count == before {
            return;
        }
        match self.events.last_mut() {
            Some(Event::KeysPaused { count: told }) => *told = count,
            _ => self.events.push(Event::KeysPaused { count }),
        }
    }

    // --- A key that waits is tried at once ---------------------------------------

    /// Ends the wait of the key with this number, at each destination. Returns what was found at the first one where it
    /// waits, or is sent.
    pub(crate) fn try_key(&mut self, number: i64) -> Again {
        let mut found = Again::Absent;
        for (share, number) in self.window.lanes_of_key(number) {
            let at = self.try_lane(share, number);
            if found == Again::Absent || matches!(at, Again::Tried { .. }) {
                found = at;
            }
        }
        found
    }

    fn try_lane(&mut self, share: u32, number: i64) -> Again {
        let key = Key::Lane(share, number);
        let Some(lane) = self.window.lane_numbered(number).map(|lane| self.window.lane(lane)) else {
            let waits = self.to[share].doubts.get(key).is_some_and(Doubt::waits);
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
        let doubt = self.to[share].doubts.get(key);
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
        let share = self.window.entry(slot).share;
        let key = Key::Message(share, seq);
        let waits = self.to[share].doubts.get(key).is_some_and(Doubt::waits);
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
