//! A message was not accepted: its key waits. The message may be given up, and the destination may be down (rule D6).

use std::time::Duration;

use super::{Alarm, Dispatcher, Event, InFlight, Offer};
use crate::base::display::{self, cut};
use crate::due::doubt::{Doubt, Key};
use crate::due::lanes::Slot;
use crate::due::outage::{LONGEST_ASKED_US, SHORTEST_ASKED_US};
use crate::due::window::State;
use crate::store::{Attempts, Outcome};
use tickwheel::When;

/// How many characters of a name go into an event.
const LONGEST_NAME: usize = 200;
/// How many keys are tried again under one hold of the lock after an outage.
const WOKEN_AT_ONCE: usize = 512;
/// How often one more new key is tried while the destination is down.
const NEW_TRY_EVERY: Duration = Duration::from_secs(1);

/// How a send ended that was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The answer was about this message.
    Refused,
    /// The destination failed, maybe over this message.
    Failed,
    /// There was no answer about the message.
    Unanswered,
    /// The destination was not reached.
    Unreachable,
}

impl Dispatcher {
    pub(crate) fn keys_in_doubt(&self) -> usize {
        self.doubts.len()
    }

    pub(super) fn key_of(&self, slot: Slot) -> Key {
        let entry = self.window.entry(slot);
        entry.lane.map_or(Key::Message(entry.seq), |lane| Key::Lane(self.window.lane(lane).number))
    }

    /// Handles a send that began at `began_us`, and whose message was not accepted.
    pub(super) fn not_accepted(
        &mut self,
        message: &InFlight,
        ending: Ending,
        reason: &str,
        retry_after_ms: Option<u64>,
        began_us: u64,
    ) {
        let reason = display::reason(reason);
        let (slot, now_us) = (message.slot, self.timer.clock().now_us());
        let key = self.key_of(slot);
        self.suspects_out.remove(&message.seq);
        let entry = self.window.entry_mut(slot);
        entry.is_noted = false;
        entry.attempts = entry.attempts.saturating_add(1);
        entry.is_unanswered |= matches!(ending, Ending::Failed | Ending::Unanswered);
        let is_first = entry.attempts == 1;
        let accepted = self.outage.accepted_count();
        let doubt = self.doubts.get_or_add(key);
        let since_us = *doubt.since_us.get_or_insert(began_us);
        let is_sign = ending != Ending::Refused && !doubt.is_no_sign;
        doubt.fails = doubt.fails.saturating_add(1);
        let counts = match ending {
            Ending::Refused => true,
            Ending::Failed => doubt.accepted_before.replace(accepted).is_none_or(|before| accepted > before),
            Ending::Unanswered | Ending::Unreachable => false,
        };
        if is_first {
            self.tell_first_failure(slot, reason);
        }
        if is_sign {
            self.outage.failed(key, since_us, began_us, reason);
            self.look_for_outage();
        } else {
            self.outage.forget(key);
        }
        let is_down = self.outage.is_down();
        if counts && !is_down {
            let entry = self.window.entry_mut(slot);
            entry.strikes += 1;
            if entry.strikes >= self.retry.max_attempts {
                return self.give_up(slot, Outcome::Dead, reason);
            }
        }
        let waited_us = self.waited_us(slot, now_us);
        if !counts && !is_down && waited_us >= self.unanswered_for.as_micros() as u64 {
            let limit_s = self.unanswered_for.as_secs();
            let reason = format!("no success in {limit_s} s (--unanswered-for), at last: {reason}");
            return self.give_up(slot, Outcome::Dead, &reason);
        }
        self.key_waits(slot, key, retry_after_ms, reason);
    }

    /// How long the message has been due while its key had no success and the destination was up.
    fn waited_us(&self, slot: Slot, now_us: u64) -> u64 {
        let entry = self.window.entry(slot);
        let Some(since_us) = self.doubts.get(self.key_of(slot)).and_then(|doubt| doubt.since_us) else {
            return entry.waited_us;
        };
        let due_us = self.clock.map_or(0, |clock| clock.instant_us(entry.due_ms));
        entry.waited_us.saturating_add(self.outage.up_us(since_us.max(due_us).max(entry.waited_from_us), now_us))
    }

    fn key_waits(&mut self, slot: Slot, key: Key, retry_after_ms: Option<u64>, reason: &str) {
        let is_down = self.outage.is_down();
        let fails = self.doubts.get(key).map_or(1, |doubt| doubt.fails);
        let after_us = match retry_after_ms {
            Some(after_ms) => after_ms.saturating_mul(1_000).clamp(SHORTEST_ASKED_US, LONGEST_ASKED_US),
            None => self.retry.wait_us(if is_down { 1 } else { fails }, &mut self.random),
        };
        let next_ms = self.steady_us().saturating_add(after_us.cast_signed()) / 1_000;
        let entry = self.window.entry_mut(slot);
        (entry.state, entry.next_ms) = (State::Retrying, Some(next_ms));
        let lane = entry.lane;
        self.keep_attempt(slot, reason);
        self.wait_until(key, self.timer.clock().now_us().saturating_add(after_us));
        self.park(slot, after_us);
        if fails > 1
            && !is_down
            && let Some(lane) = lane
        {
            self.window.clear_away(lane); // the messages behind it wait in the store
        }
    }

    pub(super) fn wait_until(&mut self, key: Key, next_us: u64) {
        let alarm = self.add(When::AtUs(next_us), Alarm::Waited(key));
        let doubt = self.doubts.get_or_add(key);
        if let Some(before) = std::mem::replace(&mut doubt.alarm, alarm) {
            self.timer.cancel(before);
        }
        if let Key::Lane(number) = key {
            self.window.set_waiting(number, true);
        }
    }

    /// The key's wait is over.
    pub(super) fn has_waited(&mut self, key: Key) {
        if let Some(doubt) = self.doubts.get_mut(key) {
            doubt.alarm = None;
        }
        match key {
            Key::Message(seq) => {
                if let Some(slot) = self.window.find(seq) {
                    self.window.unpark(slot);
                    self.offer_message(slot, seq);
                }
            }
            Key::Lane(number) => {
                let doubt = self.doubts.get(key);
                let parked = doubt.and_then(|doubt| Some((doubt.parked?, doubt.keeps_place)));
                let Some(lane) = self.window.set_waiting(number, false) else {
                    if let Some((seq, _)) = parked {
                        self.forget_parked(seq);
                    }
                    return self.doubts.calms_down(key);
                };
                let first = self.window.lane(lane).in_flight;
                match (first, parked) {
                    // The lane goes on once this message is in memory.
                    (None, Some((seq, true))) => return self.want(seq),
                    // It comes in the order of its lane. Or the cursor went back, and another message was first.
                    (_, Some((seq, _))) => self.forget_parked(seq),
                    (_, None) => {}
                }
                if let Some(slot) = first {
                    self.window.unpark(slot);
                }
                match first.map(|slot| (slot, self.window.entry(slot))) {
                    Some((slot, entry)) if entry.state == State::Retrying => self.offer_message(slot, entry.seq),
                    Some(_) => {}
                    None => {
                        self.wants_load = true;
                        self.window.come_back(lane);
                        self.offer(lane);
                        self.window.tidy(lane);
                    }
                }
            }
        }
    }

    /// Puts a waiting message into a queue for sending, if it is still there.
    pub(super) fn offer_message(&mut self, slot: Slot, seq: i64) {
        let Some(entry) = self.window.get(slot, seq) else { return };
        if entry.state != State::Retrying && entry.state != State::Ready {
            return;
        }
        self.push(self.key_of(slot), Offer::Message(slot, seq));
    }

    /// The message leaves. If it has no key, its doubt ends. If it has a key, the key does not wait for it any more,
    /// but stays in doubt.
    pub(super) fn forget_doubt(&mut self, slot: Slot) {
        let key = self.key_of(slot);
        if !self.doubts.has(key) {
            return;
        }
        match key {
            Key::Message(_) => {
                self.outage.forget(key);
                self.end_doubt(key);
            }
            Key::Lane(number) => {
                let entry = self.window.entry(slot);
                let lane = entry.lane.expect("it has one");
                // After a restart the message is still in the order of its lane.
                let is_tried = entry.attempts > 0 && self.window.lane(lane).in_flight.is_none_or(|it| it == slot);
                if is_tried {
                    if let Some(alarm) = self.doubts.get_mut(key).and_then(|doubt| doubt.alarm.take()) {
                        self.timer.cancel(alarm);
                        self.window.set_waiting(number, false);
                    }
                    self.doubts.calms_down(key);
                    self.outage.forget_unless_down(key);
                }
            }
        }
    }

    fn end_doubt(&mut self, key: Key) {
        let Some(doubt) = self.doubts.forget(key) else { return };
        if let Some(seq) = doubt.parked {
            self.forget_parked(seq);
        }
        let Some(alarm) = doubt.alarm else { return };
        self.timer.cancel(alarm);
        if let Key::Lane(number) = key {
            self.window.set_waiting(number, false);
        }
    }

    /// The message is given up. Its key goes on at once, and stays in doubt.
    pub(super) fn key_goes_on(&mut self, slot: Slot) {
        let key = self.key_of(slot);
        if matches!(key, Key::Message(_)) {
            return self.forget_doubt(slot);
        }
        if let Some(doubt) = self.doubts.get_mut(key) {
            (doubt.fails, doubt.accepted_before) = (0, None);
            self.doubts.calms_down(key);
        }
    }

    /// Handles a send that began at `began_us` and was accepted.
    pub(super) fn accepted(&mut self, slot: Slot, is_slow: bool, began_us: u64) {
        let now_us = self.timer.clock().now_us();
        let key = self.key_of(slot);
        if !self.doubts.is_empty() || is_slow {
            self.outage.forget(key);
            self.end_doubt(key);
            if is_slow {
                self.doubts.slowed(key);
            }
        }
        self.outage.knows(key);
        let was_down = self.outage.is_down();
        if let Some(since_us) = self.outage.accepted(began_us, now_us) {
            self.is_up(since_us, now_us, false);
            self.sort_keys_in_doubt();
        } else if was_down {
            return; // the send began before the outage
        }
        if let Some(keys) = self.outage.take_failed_together(was_down) {
            self.to_wake.extend(keys);
        }
    }

    fn is_up(&mut self, since_us: u64, now_us: u64, is_untried: bool) {
        self.measures.changed_us = now_us;
        self.events.push(Event::Up { after_ms: now_us.saturating_sub(since_us) / 1000, is_untried });
    }

    /// Tries keys that failed together at once, one time.
    pub(super) fn wake_some(&mut self) {
        for _ in 0..WOKEN_AT_ONCE {
            let Some(key) = self.to_wake.pop() else { return };
            if self.is_parked(key) {
                self.doubts.get_or_add(key).fails = 1;
                self.wake(key);
            } else if let Some(doubt) = self.doubts.get_mut(key).filter(|doubt| doubt.waits()) {
                doubt.fails = doubt.fails.min(1);
                self.wake(key);
            }
        }
    }

    /// Whether this is a message without a key that left memory until its next attempt.
    fn is_parked(&self, key: Key) -> bool {
        matches!(key, Key::Message(seq) if self.window.find(seq).is_none())
    }

    /// Ends the wait of this key now.
    pub(super) fn wake(&mut self, key: Key) {
        if let Key::Message(seq) = key
            && self.is_parked(key)
        {
            self.want(seq);
        } else if let Some(alarm) = self.doubts.get_mut(key).and_then(|doubt| doubt.alarm.take()) {
            self.timer.cancel(alarm);
            self.has_waited(key);
        }
    }

    pub(crate) fn has_more_to_wake(&self) -> bool {
        !self.to_wake.is_empty()
    }

    /// Finds out whether the destination is down. If only the time is missing, an alarm looks again: the keys that
    /// failed may all wait longer than that.
    pub(super) fn look_for_outage(&mut self) {
        let now_us = self.timer.clock().now_us();
        if self.outage.goes_down(now_us) {
            let reason = self.outage.down().map_or_else(String::new, |(_, reason)| reason.to_owned());
            self.measures.changed_us = now_us;
            self.events.push(Event::Down { reason });
            self.sort_keys_in_doubt();
            self.begin_round(now_us);
            self.arm(NEW_TRY_EVERY, Alarm::NewTry(now_us));
        } else if !self.is_quiet_armed
            && let Some(at_us) = self.outage.down_at_us()
        {
            self.is_quiet_armed = self.add(When::AtUs(at_us), Alarm::Quiet).is_some();
        }
    }

    /// `since_us`: the start of the outage for which the alarm was set.
    pub(super) fn begin_round(&mut self, since_us: u64) {
        let (is_idle, now_us) = (!self.has_any_to_try(), self.timer.clock().now_us());
        if self.outage.ends_idle(since_us, is_idle, now_us) {
            return self.is_up(since_us, now_us, true);
        }
        let Some(after_us) = self.outage.begin_round(since_us) else { return };
        self.arm(Duration::from_micros(after_us), Alarm::Round(since_us));
        let (doubts, window) = (&self.doubts, &self.window);
        let waits = |key| match key {
            Key::Message(seq) if window.find(seq).is_none() => true, // it left memory until its next attempt
            _ => doubts.get(key).is_some_and(Doubt::waits),
        };
        let mut likely = None;
        if self.likely.is_empty() {
            likely = self.outage.any_likely(&mut self.random, waits);
        }
        // A key in doubt that is ready may be dead: others are woken all the same.
        let mut other = None;
        if self.fresh.is_empty() {
            other = self.outage.any_new(&mut self.random, |key| Some(key) != likely && waits(key));
        }
        for key in likely.into_iter().chain(other) {
            self.wake(key);
        }
    }

    /// Whether a message is due, or is being sent, or will be tried again. Paused keys do not count.
    fn has_any_to_try(&self) -> bool {
        let queues = [&self.fresh, &self.in_doubt, &self.likely];
        let will_be_tried = |key, doubt: &Doubt| match key {
            Key::Message(_) => true,
            Key::Lane(number) => (doubt.waits() || doubt.parked.is_some()) && !self.window.is_lane_paused(number),
        };
        self.is_paused
            || queues.iter().any(|queue| !queue.is_empty())
            || self.suspects.iter().any(|suspects| !suspects.is_empty())
            || !(self.flights.is_empty() && self.to_wake.is_empty() && self.reading.wanted.is_empty())
            || self.doubts.any(will_be_tried)
            || self.outage.has_new_message() // it may have left memory, and then it has no doubt
    }

    pub(super) fn add_new_try(&mut self, since_us: u64) {
        if self.outage.add_new_try(since_us) {
            self.arm(NEW_TRY_EVERY, Alarm::NewTry(since_us));
        }
    }

    fn tell_first_failure(&mut self, slot: Slot, reason: &str) {
        let (key, id) = self.shown_name(slot);
        self.events.push(Event::Failed { key, id, reason: reason.to_owned() });
    }

    /// The key and the id of a message, short enough for an event.
    pub(super) fn shown_name(&self, slot: Slot) -> (Option<String>, String) {
        let body = self.window.entry(slot).body.as_ref().expect("what waits has its body");
        let shortened = |name: &str| cut(name, LONGEST_NAME).to_owned();
        (body.key().map(shortened), shortened(body.id()))
    }

    /// The time now in microseconds, by a clock that agreed with the wall clock at the start of the process, and is never
    /// stepped. The times in the store's table of attempts are by this clock.
    fn steady_us(&self) -> i64 {
        let since_us = self.timer.clock().now_us().saturating_sub(self.began.0);
        self.began.1.saturating_add(since_us.cast_signed())
    }

    pub(crate) fn steady_ms(&self) -> i64 {
        self.steady_us() / 1_000
    }

    /// That time on the timer's clock. `None` for a time before the start of the process.
    pub(super) fn of_steady_us(&self, ms: i64) -> Option<u64> {
        let since_us = u64::try_from(ms.saturating_mul(1_000).saturating_sub(self.began.1)).ok()?;
        Some(self.began.0.saturating_add(since_us).min(self.timer.clock().now_us()))
    }

    /// Notes the attempts of this message, which is tried again.
    pub(super) fn keep_attempt(&mut self, slot: Slot, error: &str) {
        let attempts = self.attempts_of(slot, error);
        self.outcomes.attempts.push(attempts);
    }

    pub(super) fn attempts_of(&self, slot: Slot, error: &str) -> Attempts {
        let entry = self.window.entry(slot);
        Attempts {
            seq: entry.seq,
            attempts: entry.attempts,
            strikes: entry.strikes,
            waited_ms: (self.waited_us(slot, self.timer.clock().now_us()) / 1_000) as i64,
            next_ms: entry.next_ms,
            error: Some(error.to_owned()),
            at_ms: self.steady_ms(),
            is_unanswered: entry.is_unanswered,
        }
    }
}
