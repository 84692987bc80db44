//! Time passes, the wall clock is stepped, the observer gets dead letters.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::World;
use super::types::{Source, text};

impl World {
    pub(super) fn advance(&mut self) {
        let now_us = self.engine.clock().now_us();
        let step_us = match self.random.below(8) {
            0..3 => self.random.below(30_000),
            3..6 => {
                self.engine.timer.next_wake_us().map_or(1_000, |next_us| next_us.saturating_sub(now_us)).min(5_000_000)
            }
            6 => self.random.below(2_000_000),
            _ => self.random.below(40) * 1_000_000,
        };
        self.advance_by(step_us);
    }

    pub(super) fn advance_by(&mut self, step_us: u64) {
        show!(self, "advance {step_us} us");
        self.engine.clock().set_us(self.engine.clock().now_us() + step_us);
        self.wall_us.fetch_add(step_us as i64, Ordering::Relaxed);
        self.age_ms += (step_us / 1000) as i64 + 1;
        self.lived_us += step_us;
    }

    pub(super) fn step_wall_clock(&mut self) {
        let step_us = match self.random.below(20) {
            0 => 8 * 86_400_000_000,
            1..10 => self.random.below(3_000_000) as i64,
            _ => -(self.random.below(3_000_000) as i64),
        };
        show!(self, "wall clock {step_us:+} us");
        self.wall_us.fetch_add(step_us, Ordering::Relaxed);
        self.ahead_ms += step_us.max(0) / 1000 + 1;
        self.is_off = true;
        if self.random.below(3) > 0 {
            self.follow_clock();
        }
    }

    pub(super) fn follow_clock(&mut self) {
        show!(self, "follow the clock");
        self.engine.follow_clock();
        self.is_off = false;
    }

    pub(super) fn tell_some(&mut self) {
        if self.random.below(2) == 0 {
            self.take_letters();
        } else {
            self.tell();
        }
    }

    /// The observer gets each dead letter once, except after crashes.
    pub(super) fn take_letters(&mut self) {
        let Some((letters, through)) = self.engine.queue.take_letters() else { return };
        assert!(self.telling.in_hand.is_none(), "two lots of letters at a time");
        let sources: Vec<Source> = letters.into_iter().map(|letter| (letter.source, letter.line)).collect();
        show!(self, "letters {sources:?}");
        for source in &sources {
            assert!(!self.telling.over.contains(source), "{source:?} was told before, and that is on disk");
            self.telling.owed.remove(source);
        }
        self.telling.in_hand = Some((through, sources));
    }

    pub(super) fn tell(&mut self) {
        self.take_letters();
        if let Some((through, sources)) = self.telling.in_hand.take() {
            self.telling.answered.extend(sources);
            self.engine.queue.letters_taken(through);
        }
    }

    /// Runs until nothing is left to do at this moment: all due messages are in flight.
    pub(super) fn pump(&mut self) {
        show!(self, "pump");
        self.follow_clock();
        while self.begun.is_some() || self.committed.is_some() {
            self.write_a_part(); // a group that read the store earlier
        }
        for round in 0.. {
            assert!(round < 500, "it never comes to rest: {}", self.state());
            self.write();
            self.tell();
            let flights = self.flights.len();
            self.take();
            if self.flights.len() == flights && !self.engine.queue.is_woken() {
                break;
            }
        }
        let has_room = {
            let dispatcher = self.engine.lock_dispatcher();
            dispatcher.has_room_and_no_strikes() && !dispatcher.waits_for_place()
        };
        if self.is_paused || self.is_held_back() || self.engine.lock_dispatcher().is_any_down() || !has_room {
            return;
        }
        let busy: BTreeSet<(Option<u8>, i64)> = self
            .lives
            .iter()
            .filter(|(_, life)| life.is_in_flight || life.is_retrying)
            .map(|(key, _)| (key.0.0, self.share_of(key.0)))
            .collect();
        for (name, all) in &self.stored {
            let is_blocked = if self.settings.is_global {
                !busy.is_empty()
            } else {
                name.0.is_some() && busy.contains(&(name.0, self.share_of(*name)))
            };
            for it in all.iter().filter(|it| it.end.is_none() && it.due_ms <= self.wall_ms()) {
                let life = self.lives.get(&(*name, it.order)).copied().unwrap_or_default();
                let (key, id) = text(*name);
                let waits = || {
                    self.engine.lock_dispatcher().waits(self.share_of(*name), key.as_deref(), &id)
                        || self.is_parked(key.as_deref(), &id)
                };
                let is_blocked = is_blocked
                    || self.may_wait_for_tenant(*name)
                    || name.0.is_some_and(|of| self.paused_keys.contains(&of))
                    || waits();
                let is_under_way = life.is_in_flight || life.is_retrying || life.end.is_some();
                let why = || format!("{name:?} {it:?} is due, and is not on its way; {}", self.state());
                assert!(is_under_way || is_blocked, "{}", why());
            }
        }
    }

    /// Whether this message, which has no key, is only in the store until its next attempt.
    fn is_parked(&self, key: Option<&str>, id: &str) -> bool {
        let now_ms = self.engine.lock_dispatcher().steady_ms();
        let next_ms = self.engine.with_writer(|writer| {
            let known = writer.store.find(key, id).unwrap()?;
            writer.store.attempts(known.seq).unwrap()?.next_ms
        });
        key.is_none() && next_ms.unwrap().is_some_and(|next_ms| next_ms > now_ms)
    }

    pub(super) fn state(&self) -> String {
        let dispatcher = self.engine.lock_dispatcher();
        let entries: Vec<_> = dispatcher.window.slots().map(|(_, entry)| format!("{entry:?}")).collect();
        let window = &dispatcher.window;
        format!(
            "cursor {:?}, full {}, {dispatcher:?}, lanes {:#?}, in memory:\n{}",
            window.share(0).cursor,
            window.was_full,
            (0..window.lane_places()).map(|lane| window.lane(lane)).filter(|it| !it.is_unused()).collect::<Vec<_>>(),
            entries.join("\n")
        )
    }
}
