//! Sending is paused and resumed, for all messages or for one key (rule D16). Messages on their way are not affected.

use super::{Dispatcher, Event};
use crate::due::doubt::Key;
use crate::due::lanes::Slot;
use crate::due::window::Gone;

impl Dispatcher {
    /// Pauses or resumes all sending.
    pub(crate) fn pause(&mut self, is_paused: bool) {
        if std::mem::replace(&mut self.is_paused, is_paused) != is_paused {
            self.events.push(if is_paused { Event::Paused } else { Event::Resumed });
            if is_paused {
                self.unnote_waiting();
            }
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Pauses these lanes: no message of them is sent. Their waiting messages in memory go back to the store.
    pub(crate) fn pause_lanes(&mut self, numbers: &[i64]) -> Vec<Gone> {
        let (before, mut gone) = (self.window.paused_lanes(), Vec::new());
        for number in numbers {
            self.window.pause(*number, &mut gone);
            self.outage.forget_unless_down(Key::Lane(*number));
            // A message that waits for its next attempt in the store loses its place, and comes in the order of its lane.
            if let Some(seq) = self.doubts.get(Key::Lane(*number)).and_then(|doubt| doubt.parked) {
                self.forget_parked(seq);
                self.window.come_back_unless_waiting(*number);
            }
        }
        self.tell_paused(before);
        gone
    }

    /// Resumes this lane: its due messages are sent.
    pub(crate) fn resume_lane(&mut self, number: i64) {
        let before = self.window.paused_lanes();
        if let Some(lane) = self.window.resume(number) {
            self.offer(lane);
            self.window.tidy(lane);
        }
        self.tell_paused(before);
    }

    /// The message should be tried again, but its key is paused. It waits in the store, where it takes no memory.
    pub(super) fn leave_paused(&mut self, slot: Slot) {
        self.unnote(slot, false);
        self.window.leave_paused(slot);
    }

    /// Adds an event. If the last event is of the same kind and was not given out, that event is updated.
    fn tell_paused(&mut self, before: usize) {
        let count = self.window.paused_lanes();
        if count == before {
            return;
        }
        match self.events.last_mut() {
            Some(Event::KeysPaused { count: told }) => *told = count,
            _ => self.events.push(Event::KeysPaused { count }),
        }
    }
}
