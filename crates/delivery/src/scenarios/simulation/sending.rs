//! Takes messages to send, and checks whether they may be sent.

use super::World;
use super::events::check_cause;
use super::types::{Flight, Key, Life, MAX_ATTEMPTS, Stored, name_of, payload, shown};
use crate::due::dispatcher::Event;
use crate::due::window::State;
use crate::sinks::Delivery;
use crate::store::Outcome;

impl World {
    pub(super) fn take(&mut self) {
        let most = 1 + self.random.below(5) as usize;
        let was_down = self.engine.lock_dispatcher().is_any_down();
        let before = self.outcomes();
        self.engine.take_events();
        let taken = self.engine.take(most, 1 << 20, true);
        // After these events all due messages were placed again, and go out next.
        let events = self.engine.take_events();
        let was_stepped = events.iter().any(|event| matches!(event, Event::ClockStepped { .. }));
        let came_up = events.iter().any(|event| matches!(event, Event::Up { .. }));
        self.observe();
        self.hear_cut_offs(before);
        self.note_sends(taken.as_ref().map_or(0, |(_, deliveries)| deliveries.len()));
        if taken.is_none() && !was_down && !was_stepped {
            self.check_on_time();
        }
        let Some((number, deliveries)) = taken else { return };
        assert!(!self.is_paused, "it was sent while sending is paused");
        show!(self, "take {number}: {:?} at {}", deliveries.iter().map(shown).collect::<Vec<_>>(), self.wall_ms());
        let is_one = self.shares > 1 || deliveries.len() == 1;
        assert!(!was_down || came_up || is_one, "a try of more than one message");
        self.count_tries(was_down && !came_up && self.shares == 1);
        let messages = deliveries.iter().map(|delivery| self.check_send(delivery)).collect();
        let seqs = deliveries.iter().map(|it| it.seq).collect();
        let tenants: Vec<u8> = deliveries.iter().map(|it| self.tenant_of(name_of(&it.body))).collect();
        let of = tenants.clone();
        self.flights.push_back(Flight { number, messages, seqs, tenants, began_us: self.lived_us, was_down });
        self.check_tenants(&deliveries, &of);
    }

    /// Checks that a destination that is down gets four tries a round, and one a second beside them (D6).
    fn count_tries(&mut self, is_down: bool) {
        let since_us = self.engine.lock_dispatcher().down().map(|(since_us, _)| since_us);
        let Some(since_us) = since_us.filter(|_| is_down) else { return };
        let tries = 1 + self.down.filter(|(since, _)| *since == since_us).map_or(0, |(_, tries)| tries);
        self.down = Some((since_us, tries));
        let (mut rounds, mut next_us, mut pause_us) = (0, 0, 250_000);
        let after_us = self.engine.clock().now_us() - since_us;
        while next_us <= after_us {
            (rounds, next_us, pause_us) = (rounds + 1, next_us + pause_us, (2 * pause_us).min(10_000_000));
        }
        assert!(tries <= 4 * rounds + after_us / 1_000_000, "{tries} tries after {after_us} us");
    }

    /// Checks that no message is left behind if it is due, on the timer, and first in a free lane (D3).
    pub(super) fn check_on_time(&self) {
        let now_us = self.engine.clock().now_us();
        let dispatcher = self.engine.lock_dispatcher();
        if self.is_off
            || self.is_held_back()
            || dispatcher.is_paused()
            || dispatcher.limit.is_wanted
            || dispatcher.is_any_down()
            || dispatcher.waits_for_place()
            || self.engine.queue.is_behind(now_us)
        {
            return;
        }
        for (slot, it) in dispatcher.window.slots() {
            let lane = it.lane.map(|lane| dispatcher.window.lane(lane));
            let is_next = lane.is_none_or(|lane| lane.is_free() && lane.first().is_some_and(|first| first.1 == slot));
            let is_late = it.due_ms <= self.wall_ms() && matches!(it.state, State::Waiting | State::Ready);
            let is_late = is_late && !it.body.as_ref().is_some_and(|it| self.may_wait_for_tenant(name_of(it)));
            assert!(!is_next || !is_late, "at {}: {it:?} is due; {dispatcher:?}", self.wall_ms());
        }
    }

    pub(super) fn check_send(&mut self, delivery: &Delivery) -> Key {
        let name = name_of(&delivery.body);
        let has_arrived = self.log.as_ref().is_some_and(|log| log.contains(&delivery.seq));
        assert!(!has_arrived, "{name:?} was sent again to a destination that has it");
        let stored = self.stored.get(&name).and_then(|all| all.last()).expect("it was accepted").clone();
        let key = (name, stored.order);
        assert_eq!(stored.end, None, "{key:?} was sent after its outcome was on disk");
        assert_eq!(delivery.body.payload(), payload(stored.payload));
        assert_eq!(delivery.due_ms, stored.due_ms);
        check_cause(delivery, key, &stored);
        assert!(self.wall_ms() >= stored.due_ms, "{key:?} is early");
        assert!(delivery.lateness_us >= 0 && delivery.delivered_at_ms >= stored.due_ms, "{delivery:?}");
        assert!(stored.expires_ms.is_none_or(|ms| self.wall_ms() <= ms), "{key:?} is sent past its time");
        assert!(!name.0.is_some_and(|of| self.paused_keys.contains(&of)), "{key:?} was sent, and its key is paused");
        let moment = self.moment();
        let life = self.lives.entry(key).or_default();
        assert!(!life.is_in_flight && life.end.is_none(), "{key:?} was sent twice: {life:?}");
        let left_lane = life.left_lane.unwrap_or(moment);
        *life = Life { is_in_flight: true, left_lane: Some(left_lane), ..Life::default() };
        self.numbers.insert(delivery.seq, key);
        self.kept.remove(&key);
        let it = self.failures.get(&key).copied().unwrap_or_default();
        assert!(delivery.attempt > it.made, "{key:?}: attempt {} after {it:?}", delivery.attempt);
        let most = 1 + it.made + it.made_maybe;
        assert!(delivery.attempt <= most, "{key:?}: attempt {} after {it:?}", delivery.attempt);
        assert!(it.counted < MAX_ATTEMPTS, "{key:?} was refused {} times", it.counted);
        let (must_be_again, was_unanswered) = (self.must_be_again.contains(&key), self.unanswered.contains(&key));
        let may_be_again = was_unanswered || self.may_be_again.contains(&key);
        assert!(delivery.redelivered || !(must_be_again || was_unanswered), "{key:?} is not marked");
        assert!(!delivery.redelivered || may_be_again, "{key:?} is marked without need");
        self.check_order(key, &stored, left_lane);
        key
    }

    /// Checks that nothing else of its lane is in flight, and no earlier message of the lane waits.
    pub(super) fn check_order(&self, key: Key, it: &Stored, left_lane: u64) {
        if key.0.0.is_none() && !self.settings.is_global {
            return;
        }
        for (name, all) in &self.stored {
            let is_other = name.0 != key.0.0 || self.share_of(*name) != self.share_of(key.0);
            if !self.settings.is_global && is_other {
                continue;
            }
            for other in all {
                let other_key = (*name, other.order);
                if other_key == key {
                    continue;
                }
                let life = self.lives.get(&other_key).copied().unwrap_or_default();
                let is_before = (other.due_ms, other.order) < (it.due_ms, it.order);
                // A message that certainly did not arrive lets earlier ones go first.
                let may_have_arrived = self.unanswered.contains(&other_key) || self.kept.contains(&other_key);
                let may_be_passed = !is_before && !may_have_arrived;
                let keeps_place = life.is_in_flight || life.is_retrying && !may_be_passed;
                assert!(!keeps_place, "{key:?} was sent while {other_key:?} is on its way");
                let waits = other.end.is_none() && life.end != Some(Outcome::Delivered);
                let waits = waits && other.placed.is_some_and(|placed| placed <= left_lane);
                assert!(!is_before || !waits, "{key:?} was sent before {other_key:?}");
            }
        }
    }
}
