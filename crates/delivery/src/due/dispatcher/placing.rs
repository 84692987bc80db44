//! Messages go from the window to the timer, and from the timer to the queues for sending (rules D3, D4).

use super::{Dispatcher, Event, Moment};
use crate::base::clock::DueClock;
use crate::due::clocks::Alarm;
use crate::due::destination::Destination;
use crate::due::doubt::{Doubt, Key};
use crate::due::fair_queue::Offer;
use crate::due::lanes::Slot;
use crate::due::outage::LONGEST_ASKED_US;
use crate::due::table::{self, Due};
use crate::due::window::State;

/// A smaller step moves no recurring message: a clock that is slewed goes so far between two looks.
const STEP_MS: i64 = 1_000;

impl Dispatcher {
    /// Puts these messages on the timer. They are committed.
    pub(crate) fn place(&mut self, slots: impl IntoIterator<Item = (Slot, i64)>) {
        for (slot, seq) in slots {
            if self.window.get(slot, seq).is_some_and(|entry| entry.state == State::Uncommitted) {
                self.place_one(slot);
            }
        }
    }

    /// Whether the wall clock was stepped. If it was, all waiting messages were placed again.
    pub(crate) fn follow_clock(&mut self) -> bool {
        let stepped =
            self.clocks.due.is_some_and(|clock| clock.was_stepped(self.clocks.timer.clock(), &*self.clocks.wall));
        if stepped {
            self.place_again(Vec::new());
        }
        stepped
    }

    /// How far the wall clock was stepped since the start, by its last look.
    pub(crate) fn stepped_ms(&mut self) -> i64 {
        self.follow_clock();
        self.clocks.stepped_ms
    }

    pub(super) fn place_one(&mut self, slot: Slot) {
        let clock = self.clocks.due.expect("nothing is placed before the start");
        let entry = self.window.entry_mut(slot);
        entry.state = State::Waiting;
        let (due_ms, seq) = (entry.due_ms, entry.seq);
        let lane = entry.lane;
        if entry.attempts > 0 {
            self.was_tried_before(slot);
        }
        if let Some(lane) = lane
            && self.window.lane(lane).is_away
            && self.window.lane(lane).in_flight != Some(slot)
        {
            self.window.clear_away(lane); // it was not committed when its lane was cleared away
        }
        if self.window.get(slot, seq).is_none_or(|entry| entry.state != State::Waiting) {
            return; // it is in the store, or on its way there
        }
        if lane.is_some_and(|lane| self.window.lane(lane).in_flight == Some(slot)) {
            // The lane waited for it, and it keeps its place.
            self.window.entry_mut(slot).state = State::Retrying;
            return self.offer_message(slot, seq);
        }
        if let Some(moment) = self.moments.by_due.get_mut(&due_ms) {
            moment.messages.push((slot, seq));
        } else if let Some(task) = self.clocks.arm_at(clock.instant_us(due_ms), Alarm::Due(due_ms)) {
            self.moments.by_due.insert(due_ms, Moment { task, messages: vec![(slot, seq)] });
        }
    }

    /// This message was tried by an earlier process, or by this one before the message left memory. Its key is in
    /// doubt, and may have to wait.
    fn was_tried_before(&mut self, slot: Slot) {
        let (now_ms, share) = (self.steady_ms(), self.home_of(slot));
        let (key, from_us) = (self.key_of(slot), self.clocks.of_steady_ms(self.window.entry(slot).tried_ms));
        let entry = self.window.entry_mut(slot);
        let (attempts, next_ms, waited_us) = (entry.attempts, entry.next_ms, entry.waited_us);
        entry.waited_from_us = from_us.unwrap_or(0);
        let Destination { doubts, outage, was_down, .. } = &mut self.to[share];
        let doubt = doubts.get_or_add(key);
        if let Some(from_us) = from_us
            && matches!(key, Key::Message(..))
            && doubt.since_us.is_none()
        {
            // It left memory while it waited. It began to fail then at the latest.
            doubt.since_us = Some(from_us.saturating_sub(waited_us));
            doubt.accepted_before = outage.accepted_count_if_none_since(from_us);
        }
        if doubt.fails > 0 || doubt.waits() {
            return;
        }
        doubt.fails = attempts;
        let failed_from_us = from_us.and_then(|from_us| from_us.checked_sub(waited_us));
        doubt.is_no_sign = failed_from_us.is_none_or(|us| us < self.clocks.began.0) && !*was_down;
        if from_us.is_none() {
            doubt.accepted_before = Some(0);
        }
        if let Some(next_ms) = next_ms.filter(|next_ms| *next_ms > now_ms) {
            let wait_us = self.wait_as_stored(key, next_ms);
            self.clear_away_if_long(slot, wait_us);
        }
    }

    /// Lets the key wait until `next_ms`, as noted in the store. Returns how long.
    pub(super) fn wait_as_stored(&mut self, key: Key, next_ms: i64) -> u64 {
        let left_ms = next_ms.saturating_sub(self.steady_ms()).max(0).cast_unsigned();
        let wait_us = left_ms.saturating_mul(1_000).min(self.to[key.share()].retry.longest_us().max(LONGEST_ASKED_US));
        self.wait_until(key, self.clocks.now_us().saturating_add(wait_us));
        wait_us
    }

    /// The due time has come. A message without a key goes out, and a lane sends its first message.
    pub(super) fn release(&mut self, due_ms: i64) {
        let Some(moment) = self.moments.by_due.remove(&due_ms) else { return };
        for (slot, seq) in moment.messages {
            let Some(entry) = self.window.get(slot, seq) else { continue };
            if entry.state != State::Waiting {
                continue;
            }
            let (lane, share) = (entry.lane, entry.share);
            let key_waits = || self.to[share].doubts.get(Key::Message(share, seq)).is_some_and(Doubt::waits);
            match (table::due(lane.is_some(), lane.is_none() && key_waits()), lane) {
                (Due::Lane, lane) => {
                    let lane = lane.expect("it has one");
                    let it = self.window.lane_mut(lane);
                    it.due_until_ms = it.due_until_ms.max(due_ms);
                    self.offer(lane);
                }
                (Due::Ready, _) => {
                    self.window.entry_mut(slot).state = State::Ready;
                    self.offer_message(slot, seq);
                }
                (Due::Retrying, _) => self.window.entry_mut(slot).state = State::Retrying,
            }
        }
    }

    pub(super) fn offer(&mut self, lane: u32) {
        let it = self.window.lane(lane);
        if it.is_offered || !it.is_free() {
            return;
        }
        let Some((position, slot)) = it.first() else { return };
        if position.0 <= it.due_until_ms && self.window.entry(slot).state == State::Waiting {
            let it = self.window.lane_mut(lane);
            it.is_offered = true;
            let key = Key::Lane(it.share, it.number);
            self.push(key, Offer::Lane(lane));
        }
    }

    pub(super) fn accept(&mut self, offer: Offer) -> Option<Slot> {
        match offer {
            Offer::Lane(lane) => {
                self.window.lane_mut(lane).is_offered = false;
                self.window.take(lane)
            }
            Offer::Message(slot, seq) => {
                let entry = self.window.get(slot, seq)?;
                if !matches!(entry.state, State::Ready | State::Retrying) {
                    return None;
                }
                Some(slot)
            }
        }
    }

    /// The message certainly did not arrive, and a message of its key that is due earlier has come: that one goes first.
    pub(super) fn goes_behind(&mut self, slot: Slot) {
        let entry = self.window.entry(slot);
        let (due_ms, lane) = (entry.due_ms, entry.lane.expect("another message of its lane is before it"));
        self.unnote(entry.seq);
        self.window.put_back(slot);
        let it = self.window.lane_mut(lane);
        it.due_until_ms = it.due_until_ms.max(due_ms); // the timer has released it, maybe before a step of the wall clock
        self.wants_load = true; // the other message may be in the store
        self.window.come_back(lane);
        self.offer(lane);
    }

    /// The message would be early, so it waits for the timer again. If it was sent before, its lane waits for it.
    pub(super) fn put_back(&mut self, slot: Slot, clock: &DueClock) {
        let entry = self.window.entry(slot);
        let (seq, was_sent) = (entry.seq, entry.was_sent);
        self.unnote(seq);
        if was_sent {
            self.window.entry_mut(slot).state = State::Retrying;
            self.wait_until_due(slot, clock);
        } else {
            self.window.put_back(slot);
        }
    }

    /// Its lane waits for it.
    fn wait_until_due(&mut self, slot: Slot, clock: &DueClock) {
        let entry = self.window.entry(slot);
        let (seq, due_ms) = (entry.seq, entry.due_ms);
        let alarm = self.clocks.arm_at(clock.instant_us(due_ms), Alarm::Again(slot, seq));
        self.moments.early.insert(seq, (slot, alarm));
    }

    /// The wall clock was stepped. All waiting messages are placed again, with the messages that would be early.
    pub(super) fn place_again(&mut self, early: Vec<Slot>) {
        let Some(clock) = &mut self.clocks.due else { return };
        let by_ms = clock.read_again(self.clocks.timer.clock(), &*self.clocks.wall);
        let clock = *clock;
        if by_ms.abs() >= STEP_MS {
            self.clocks.stepped_ms = self.clocks.stepped_ms.saturating_add(by_ms);
            self.wants_load = true; // wakes the writer, which has rules to move
        }
        for (seq, (slot, alarm)) in std::mem::take(&mut self.moments.early) {
            if let Some(alarm) = alarm {
                self.clocks.cancel(alarm);
            }
            if self.window.get(slot, seq).is_some() {
                self.wait_until_due(slot, &clock);
            }
        }
        for slot in early {
            self.put_back(slot, &clock);
        }
        let to_ms = self.clocks.wall.now_us().div_euclid(1_000);
        self.events.push(Event::ClockStepped { by_ms, to_ms });
        for lane in self.window.lanes_mut() {
            lane.due_until_ms = i64::MIN;
        }
        for (_, moment) in std::mem::take(&mut self.moments.by_due) {
            self.clocks.cancel(moment.task);
        }
        let waiting = self.window.slots().filter(|(_, entry)| entry.state == State::Waiting);
        let waiting: Vec<(Slot, i64)> = waiting.map(|(slot, entry)| (slot, entry.seq)).collect();
        for (slot, seq) in waiting {
            // It may have gone to the store with its lane.
            if self.window.get(slot, seq).is_some_and(|entry| entry.state == State::Waiting) {
                self.place_one(slot);
            }
        }
    }
}
