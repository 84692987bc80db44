//! Sending pauses and goes on, of all or of one key (rule D16). What is on its way stays so.

use super::{CRASHED, Dispatcher, Event};
use crate::due::lanes::Slot;
use crate::due::window::Gone;

impl Dispatcher {
    /// From now on nothing is sent, or all that is due.
    pub(crate) fn pause(&mut self, is_paused: bool) {
        if std::mem::replace(&mut self.is_paused, is_paused) != is_paused {
            self.events.push(if is_paused { Event::Paused } else { Event::Resumed });
        }
        if is_paused {
            self.stop_turns();
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// From now on nothing of these lanes is sent. What of them waits in memory goes back to the store.
    pub(crate) fn pause_lanes(&mut self, numbers: &[i64]) -> Vec<Gone> {
        let (before, mut gone) = (self.window.paused_lanes(), Vec::new());
        for number in numbers {
            self.window.pause(*number, &mut gone);
        }
        self.tell_paused(before);
        gone
    }

    /// What is due of this lane is sent.
    pub(crate) fn resume_lane(&mut self, number: i64) {
        let before = self.window.paused_lanes();
        if let Some(lane) = self.window.resume(number) {
            self.offer(lane);
            self.window.tidy(lane);
        }
        self.tell_paused(before);
    }

    /// The message is due to be tried again, and its key is paused: it waits in the store, where it takes no memory.
    pub(super) fn leave_paused(&mut self, slot: Slot) {
        let entry = self.window.entry_mut(slot);
        let seq = entry.seq;
        if std::mem::take(&mut entry.is_noted) {
            entry.attempts -= 1; // that one is not made
            let attempts = entry.attempts;
            self.suspects_out.remove(&seq);
            self.keep_attempt(seq, attempts, None, CRASHED);
        }
        self.window.leave_paused(slot);
    }

    /// One event for many changes that nothing was told of yet.
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
