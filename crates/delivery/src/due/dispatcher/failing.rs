//! A message was not accepted: its key waits. The message may be given up, and the destination may be down (rule D6).

use std::time::Duration;

use super::{Dispatcher, Event, InFlight};
use crate::base::display::{self, cut};
use crate::due::clocks::Alarm;
use crate::due::destination::Destination;
use crate::due::doubt::{Doubt, Key};
use crate::due::fair_queue::Offer;
use crate::due::lanes::Slot;
use crate::due::outage::{LONGEST_ASKED_US, ROUND_US, SHORTEST_ASKED_US};
use crate::due::table::{self, After, Counts, Ending, Waited};
use crate::due::window::State;
use crate::store::{Attempts, Outcome};

/// How many characters of a name go into an event.
const LONGEST_NAME: usize = 200;
/// How many keys are tried again under one hold of the lock after an outage.
const WOKEN_AT_ONCE: usize = 512;

impl Dispatcher {
    pub(crate) fn keys_in_doubt(&self) -> usize {
        self.to.iter().map(|it| it.doubts.len()).sum()
    }

    pub(super) fn key_of(&self, slot: Slot) -> Key {
        let entry = self.window.entry(slot);
        match entry.lane {
            None => Key::Message(entry.share, entry.seq),
            Some(lane) => Key::Lane(entry.share, self.window.lane(lane).number),
        }
    }

    pub(super) fn is_in_doubt(&self, slot: Slot) -> bool {
        self.to[self.home_of(slot)].doubts.has(self.key_of(slot))
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
        let (slot, now_us) = (message.slot, self.clocks.now_us());
        let (key, share) = (self.key_of(slot), self.home_of(slot));
        self.strikes.forget(message.seq);
        let entry = self.window.entry_mut(slot);
        entry.strikes = 0; // any answer clears them
        entry.attempts = entry.attempts.saturating_add(1);
        let effect = table::effect(ending);
        entry.is_unanswered |= effect.may_have_arrived;
        let times = entry.attempts;
        let accepted = self.to[share].outage.accepted_count();
        let doubt = self.to[share].doubts.get_or_add(key);
        let since_us = *doubt.since_us.get_or_insert(began_us);
        let is_sign = effect.is_sign && !doubt.is_no_sign;
        doubt.fails = doubt.fails.saturating_add(1);
        let accepted_between =
            ending == Ending::Failed && doubt.accepted_before.replace(accepted).is_none_or(|before| accepted > before);
        if times == 10_u32.pow(times.ilog10()) {
            self.tell_failure(slot, times, reason);
        }
        if is_sign {
            self.to[share].outage.failed(key, since_us, began_us, reason);
            self.look_for_outage(share);
        } else {
            self.to[share].outage.forget(key);
        }
        let was_down = self.to[share].outage.is_down() || self.to[share].outage.was_down(began_us);
        let counts = table::counts(ending, was_down, accepted_between, self.to[share].retry.waits_end);
        let entry = self.window.entry_mut(slot);
        entry.counted += u32::from(counts == Counts::Yes);
        let is_last = entry.counted >= self.to[share].retry.most_attempts();
        let is_overdue = self.waited_us(slot, now_us) >= self.to[share].unanswered_for.as_micros() as u64;
        match table::after(counts, is_last, is_overdue) {
            After::GiveUpByCount => self.give_up(slot, Outcome::Dead, reason),
            After::GiveUpByTime => {
                let limit_s = self.to[share].unanswered_for.as_secs();
                let reason = format!("no success in {limit_s} s (--unanswered-for), at last: {reason}");
                self.give_up(slot, Outcome::Dead, &reason);
            }
            After::Wait => self.key_waits(slot, key, retry_after_ms, reason),
        }
    }

    /// How long the message has been due while its key had no success and the destination was up.
    fn waited_us(&self, slot: Slot, now_us: u64) -> u64 {
        let entry = self.window.entry(slot);
        let share = entry.share;
        let Some(since_us) = self.to[share].doubts.get(self.key_of(slot)).and_then(|doubt| doubt.since_us) else {
            return entry.waited_us;
        };
        let due_us = self.clocks.due.map_or(0, |clock| clock.instant_us(entry.due_ms));
        entry
            .waited_us
            .saturating_add(self.to[share].outage.up_us(since_us.max(due_us).max(entry.waited_from_us), now_us))
    }

    fn key_waits(&mut self, slot: Slot, key: Key, retry_after_ms: Option<u64>, reason: &str) {
        let share = key.share();
        let is_down = self.to[share].outage.is_down();
        let fails = self.to[share].doubts.get(key).map_or(1, |doubt| doubt.fails);
        let Destination { retry, random, .. } = &mut self.to[share];
        let place = if retry.waits_end { self.window.entry(slot).counted } else { fails };
        let after_us = match retry_after_ms {
            Some(after_ms) => after_ms.saturating_mul(1_000).clamp(SHORTEST_ASKED_US, LONGEST_ASKED_US),
            None => retry.wait_us(if is_down { 1 } else { place }, random),
        };
        let next_ms = self.clocks.steady_us().saturating_add(after_us.cast_signed()) / 1_000;
        let entry = self.window.entry_mut(slot);
        (entry.state, entry.next_ms) = (State::Retrying, Some(next_ms));
        let lane = entry.lane;
        self.keep_attempt(slot, reason);
        self.wait_until(key, self.clocks.now_us().saturating_add(after_us));
        self.park(slot, after_us);
        if fails > 1
            && !is_down
            && let Some(lane) = lane
        {
            self.window.clear_away(lane); // the messages behind it wait in the store
        }
    }

    pub(super) fn wait_until(&mut self, key: Key, next_us: u64) {
        let share = key.share();
        let alarm = self.clocks.arm_at(next_us, Alarm::Waited(key));
        let now_us = self.clocks.now_us();
        let doubt = self.to[share].doubts.get_or_add(key);
        doubt.waits_from_us = now_us;
        if let Some(before) = std::mem::replace(&mut doubt.alarm, alarm) {
            self.clocks.cancel(before);
        }
        if let Key::Lane(_, number) = key {
            self.window.set_waiting(number, true);
        }
    }

    /// The key's wait is over.
    pub(super) fn has_waited(&mut self, key: Key) {
        let share = key.share();
        if let Some(doubt) = self.to[share].doubts.get_mut(key) {
            doubt.alarm = None;
        }
        match key {
            Key::Message(_, seq) => {
                if let Some(slot) = self.window.find(seq) {
                    self.window.unpark(slot);
                    self.offer_message(slot, seq);
                }
            }
            Key::Lane(_, number) => self.lane_has_waited(key, number),
        }
    }

    fn lane_has_waited(&mut self, key: Key, number: i64) {
        let share = key.share();
        let doubt = self.to[share].doubts.get(key);
        let parked = doubt.and_then(|doubt| Some((doubt.parked?, doubt.keeps_place)));
        let Some(lane) = self.window.set_waiting(number, false) else {
            if let Some((seq, _)) = parked {
                self.forget_parked(seq);
            }
            return self.to[share].doubts.calms_down(key);
        };
        let in_flight = self.window.lane(lane).in_flight.map(|slot| (slot, self.window.entry(slot)));
        let in_flight = in_flight.map(|(slot, entry)| (slot, entry.seq, entry.state));
        // If the cursor went back, it may have been read with the others of its lane.
        let parked_first = parked.is_some_and(|(seq, keeps_place)| keeps_place && self.window.find(seq).is_none());
        let then = table::waited(in_flight.map(|(_, _, state)| state), parked_first);
        if let Some((seq, _)) = parked.filter(|_| then != Waited::Read) {
            self.forget_parked(seq); // it comes in the order of its lane; or the cursor went back, and another was first
        }
        match (then, in_flight, parked) {
            (Waited::InFlight, Some((slot, seq, _)), _) => {
                self.window.unpark(slot);
                self.offer_message(slot, seq);
            }
            (Waited::Read, _, Some((seq, _))) => self.want(share, seq), // the lane goes on once it is in memory
            (Waited::First, ..) => {
                self.wants_load = true;
                self.window.come_back(lane);
                self.offer(lane);
                self.window.tidy(lane);
            }
            _ => {}
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
        let (key, share) = (self.key_of(slot), self.home_of(slot));
        if !self.to[share].doubts.has(key) {
            return;
        }
        match key {
            Key::Message(..) => {
                self.to[share].outage.forget(key);
                self.end_doubt(key);
            }
            Key::Lane(_, number) => {
                let entry = self.window.entry(slot);
                let lane = entry.lane.expect("it has one");
                // After a restart the message is still in the order of its lane.
                let is_tried = entry.attempts > 0 && self.window.lane(lane).in_flight.is_none_or(|it| it == slot);
                if is_tried {
                    if let Some(alarm) = self.to[share].doubts.get_mut(key).and_then(|doubt| doubt.alarm.take()) {
                        self.clocks.cancel(alarm);
                        self.window.set_waiting(number, false);
                    }
                    self.to[share].doubts.calms_down(key);
                    self.to[share].outage.forget_unless_down(key);
                }
            }
        }
    }

    fn end_doubt(&mut self, key: Key) {
        let Some(doubt) = self.to[key.share()].doubts.forget(key) else { return };
        if let Some(seq) = doubt.parked {
            self.forget_parked(seq);
        }
        let Some(alarm) = doubt.alarm else { return };
        self.clocks.cancel(alarm);
        if let Key::Lane(_, number) = key {
            self.window.set_waiting(number, false);
        }
    }

    /// The message is given up. Its key goes on at once, and stays in doubt.
    pub(super) fn key_goes_on(&mut self, slot: Slot) {
        let (key, share) = (self.key_of(slot), self.home_of(slot));
        if matches!(key, Key::Message(..)) {
            return self.forget_doubt(slot);
        }
        if let Some(doubt) = self.to[share].doubts.get_mut(key) {
            (doubt.fails, doubt.accepted_before) = (0, None);
            self.to[share].doubts.calms_down(key);
        }
    }

    /// Handles a send that began at `began_us` and was accepted.
    pub(super) fn accepted(&mut self, slot: Slot, is_slow: bool, began_us: u64) {
        let now_us = self.clocks.now_us();
        let (key, share) = (self.key_of(slot), self.home_of(slot));
        if !self.to[share].doubts.is_empty() || is_slow {
            self.to[share].outage.forget(key);
            self.end_doubt(key);
            if is_slow {
                self.to[share].doubts.slowed(key);
            }
        }
        let was_down = self.to[share].outage.is_down();
        if let Some(since_us) = self.to[share].outage.accepted(began_us, now_us) {
            self.is_up(share, since_us, now_us, false);
        } else if was_down {
            return; // the send began before the outage
        }
        if let Some(keys) = self.to[share].outage.take_newly(was_down) {
            if self.to[share].to_wake.is_empty() {
                self.turns.to_wake.push_back(share);
            }
            self.to[share].to_wake.extend(keys);
        }
    }

    fn is_up(&mut self, share: u32, since_us: u64, now_us: u64, is_untried: bool) {
        self.has_turn_again(share);
        self.has_changed(share, now_us);
        let destination = self.to[share].name.as_deref().map(str::to_owned);
        self.events.push(Event::Up { destination, after_ms: now_us.saturating_sub(since_us) / 1000, is_untried });
    }

    /// The destination is down from now on, or up.
    fn has_changed(&mut self, share: u32, now_us: u64) {
        if share == 0 {
            self.measures.changed_us = Some(now_us);
        }
        self.tally_state(share);
    }

    /// A named destination that is paused does not count as down: each has one state.
    pub(super) fn tally_state(&mut self, share: u32) {
        self.to.tally_state(share, self.window.share(share).id);
    }

    /// Tries keys that failed together at once, one time. The destinations take turns.
    pub(super) fn wake_some(&mut self) {
        for _ in 0..WOKEN_AT_ONCE {
            let Some(share) = self.turns.to_wake.pop_front() else { return };
            let Some(key) = self.to[share].to_wake.pop() else { continue };
            if !self.to[share].to_wake.is_empty() {
                self.turns.to_wake.push_back(share);
            }
            if self.is_parked(key) {
                self.to[share].doubts.get_or_add(key).fails = 1;
                self.wake(key);
            } else if let Some(doubt) = self.to[share].doubts.get_mut(key).filter(|doubt| doubt.waits()) {
                doubt.fails = doubt.fails.min(1);
                self.wake(key);
            }
        }
    }

    /// Whether this is a message without a key that left memory until its next attempt.
    fn is_parked(&self, key: Key) -> bool {
        matches!(key, Key::Message(_, seq) if self.window.find(seq).is_none())
    }

    /// Ends the wait of this key now.
    pub(super) fn wake(&mut self, key: Key) {
        let share = key.share();
        if let Key::Message(_, seq) = key
            && self.is_parked(key)
        {
            self.want(share, seq);
        } else if let Some(alarm) = self.to[share].doubts.get_mut(key).and_then(|doubt| doubt.alarm.take()) {
            self.clocks.cancel(alarm);
            self.has_waited(key);
        }
    }

    pub(crate) fn has_more_to_wake(&self) -> bool {
        !self.turns.to_wake.is_empty()
    }

    /// Finds out whether the destination is down. If only the time is missing, an alarm looks again: the keys that
    /// failed may all wait longer than that.
    pub(super) fn look_for_outage(&mut self, share: u32) {
        let now_us = self.clocks.now_us();
        if self.to[share].outage.goes_down(now_us) {
            let reason = self.to[share].outage.down().map_or_else(String::new, |(_, reason)| reason.to_owned());
            self.has_changed(share, now_us);
            let destination = self.to[share].name.as_deref().map(str::to_owned);
            self.events.push(Event::Down { destination, reason });
            self.begin_round(share, now_us);
        } else if !self.to[share].outage.is_quiet_armed
            && let Some(at_us) = self.to[share].outage.down_at_us()
        {
            self.to[share].outage.is_quiet_armed = self.clocks.arm_at(at_us, Alarm::Quiet(share)).is_some();
        }
    }

    /// `since_us`: the start of the outage for which the alarm was set.
    pub(super) fn begin_round(&mut self, share: u32, since_us: u64) {
        let (is_idle, now_us) = (!self.has_any_to_try(share), self.clocks.now_us());
        if self.to[share].outage.ends_idle(since_us, is_idle, now_us) {
            return self.is_up(share, since_us, now_us, true);
        }
        if !self.to[share].outage.begin_round(since_us) {
            return;
        }
        self.has_turn_again(share);
        self.clocks.arm(Duration::from_micros(ROUND_US), Alarm::Round(share, since_us));
        // A key in doubt that is ready may be dead, and ready again each second.
        if !self.to[share].queues.fresh.has_next() && !self.to[share].is_paused {
            let share = self.next_tried_of(share); // of those that left memory
            self.to.work_mut(share).wants_one_early = true;
            self.wants_look(share);
            let may_be_sent = |key: Key| self.window.may_be_sent(key) && self.tenant_is_free(key.share());
            if let Some(key) = self.to[share].doubts.longest_waiting(may_be_sent) {
                self.wake(key);
            }
        }
    }

    /// Whether a message is due, or is being sent, or will be tried again. Paused keys and tenants do not count.
    fn has_any_to_try(&self, share: u32) -> bool {
        let goes_on = |share: u32| !self.tenants.limits(self.tenant_at(share)).is_paused;
        let will_be_tried = |key: Key, doubt: &Doubt| {
            let is_tried = matches!(key, Key::Message(..)) || doubt.waits() || doubt.parked.is_some();
            is_tried && goes_on(key.share()) && self.window.may_be_sent(key)
        };
        self.limit.is_paused
            || self.to[share].is_paused
            || self.to[share].queues.shares().any(goes_on)
            || self.has_struck_to_send(share)
            || self.flights.open.values().any(|flight| flight.share == share)
            || !self.to[share].to_wake.is_empty()
            || self.shares_at(share).into_iter().any(|share| goes_on(share) && !self.to.work(share).wanted.is_empty())
            || self.to[share].doubts.any(will_be_tried)
            || self.to[share].outage.has_new_message(goes_on) // it may have left memory, and then it has no doubt
    }

    /// All shares in memory of this destination.
    pub(super) fn shares_at(&self, home: u32) -> Vec<u32> {
        [&self.to[home].tenants[..], &[home]].concat()
    }

    /// The one of them whose next attempt of a message that left memory is the first.
    fn next_tried_of(&self, home: u32) -> u32 {
        let tried = |share: u32| Some((self.to.work(share).next_tried.as_ref()?.0, share));
        let may_go = |share: &u32| self.tenant_is_free(*share);
        self.shares_at(home).into_iter().filter(may_go).filter_map(tried).min().map_or(home, |(_, share)| share)
    }

    fn tell_failure(&mut self, slot: Slot, times: u32, reason: &str) {
        let (destination, key, id) = self.shown_name(slot);
        self.events.push(Event::Failed { destination, key, id, times, reason: reason.to_owned() });
    }

    /// The destination that a message names, its key and its id, short enough for an event.
    pub(super) fn shown_name(&self, slot: Slot) -> (Option<String>, Option<String>, String) {
        let body = self.window.entry(slot).body.as_ref().expect("what waits has its body");
        let shortened = |name: &str| cut(name, LONGEST_NAME).to_owned();
        (body.destination().map(str::to_owned), body.key().map(shortened), shortened(body.id()))
    }

    /// The time now on the steady clock.
    pub(crate) fn steady_ms(&self) -> i64 {
        self.clocks.steady_us() / 1_000
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
            counted: entry.counted,
            waited_ms: (self.waited_us(slot, self.clocks.now_us()) / 1_000) as i64,
            next_ms: entry.next_ms,
            error: Some(error.to_owned()),
            at_ms: self.steady_ms(),
            is_unanswered: entry.is_unanswered,
            strikes: entry.strikes,
            share: self.window.share(entry.share).id,
        }
    }
}
