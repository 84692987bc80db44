//! While the destination is down: probes, no attempt spent, and what is given up after too long (rule D6).

use std::time::Duration;

use super::{Alarm, Dispatcher, Event, InFlight, Offer};
use crate::base::display;
use crate::due::outage::Unanswered;
use crate::due::window::State;
use crate::store::Outcome;

impl Dispatcher {
    pub(super) fn destination_answers(&mut self, is_probe: bool) {
        if self.outage.is_down() && !is_probe {
            return; // it was sent before the outage began
        }
        if let Some(since_us) = self.outage.answered() {
            let after_ms = self.timer.clock().now_us().saturating_sub(since_us) / 1000;
            self.measures.changed_us = self.timer.clock().now_us();
            self.events.push(Event::Up { after_ms });
        }
    }

    pub(super) fn still_down(&mut self, message: &InFlight, retry_after_ms: Option<u64>) {
        self.untried(message);
        if self.outage.waits_for_probe() {
            self.arm_probe(retry_after_ms);
        }
    }

    pub(super) fn goes_down(&mut self, reason: &str, retry_after_ms: Option<u64>) {
        let reason = display::reason(reason);
        let now_us = self.timer.clock().now_us();
        self.measures.changed_us = now_us;
        for Unanswered { slot, seq, sends } in self.outage.begins(now_us, reason) {
            // Its attempts were part of the outage. It waits to be tried again, by the timer, or is being sent.
            let is_open = |state| matches!(state, State::Retrying | State::Sending);
            if self.window.get(slot, seq).is_some_and(|entry| is_open(entry.state)) {
                let entry = self.window.entry_mut(slot);
                entry.attempts = entry.attempts.saturating_sub(sends);
                let attempts = entry.attempts;
                self.keep_attempt(seq, attempts, None, reason);
            }
        }
        self.events.push(Event::Down { reason: reason.to_owned() });
        self.arm_probe(retry_after_ms);
    }

    pub(super) fn arm_probe(&mut self, retry_after_ms: Option<u64>) {
        self.give_up_the_late();
        let after_ms = self.outage.next_probe_ms(retry_after_ms, &mut self.random);
        self.arm(Duration::from_millis(after_ms), Alarm::Probe);
    }

    /// The destination is down for longer than `give_up_after`: what has been due for so long is given up, of a lane its
    /// first message.
    pub(super) fn give_up_the_late(&mut self) {
        let Some((limit, (since_us, reason))) = self.give_up_after.zip(self.outage.down()) else { return };
        let limit_us = i64::try_from(limit.as_micros()).unwrap_or(i64::MAX);
        let (timer_us, wall_us) = (self.timer.clock().now_us(), self.wall.now_us());
        let Some(clock) = self.clock.filter(|_| timer_us.saturating_sub(since_us) as i64 >= limit_us) else { return };
        let reason = format!("the destination was down for too long: {reason}");
        for offer in std::mem::take(&mut self.offered) {
            let Some(slot) = self.accept(offer) else { continue };
            let entry = self.window.entry(slot);
            if clock.late_us(entry.due_ms, timer_us, wall_us) >= limit_us {
                self.give_up(slot, Outcome::Dead, &reason);
            } else {
                let seq = entry.seq;
                self.window.entry_mut(slot).state = State::Retrying;
                self.offered.push_back(Offer::Message(slot, seq));
            }
        }
    }
}
