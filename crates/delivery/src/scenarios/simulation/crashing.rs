//! The end of a process, with or without a crash, and the rules that must hold at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use super::types::{Asked, Life, Name, Ticket, item, name_of, text};
use super::{World, open};
use crate::due::window::Entry;
use crate::group::items::TenantChange;
use crate::group::writer::Sends;
use crate::store::Outcome;

impl World {
    pub(super) fn reopen(&mut self) {
        show!(self, "close and open");
        self.write();
        self.write();
        if !self.flights.is_empty() {
            if self.random.below(2) == 0 {
                return self.crash();
            }
            self.note_suspects(|it| it.was_sent);
            self.engine.close(Sends::SomeHang).unwrap(); // a sink hangs
            return self.lose_process();
        }
        self.note_retrying();
        self.engine.close(Sends::AllEnded).unwrap();
        self.open_again();
    }

    /// Messages that wait for their next attempt, when memory is lost and no send is.
    pub(super) fn note_retrying(&mut self) {
        for (key, life) in &self.lives {
            if life.end.is_none() && life.is_retrying {
                if self.unanswered.contains(key) {
                    self.must_be_again.insert(*key);
                }
                self.may_be_again.insert(*key);
            }
        }
    }

    /// What is known of messages comes from the store now.
    pub(super) fn forget_memory(&mut self) {
        self.was_opened_again = true;
        self.flights.clear();
        self.lives.clear();
        self.unanswered.clear();
        self.down = None;
        self.age_ms += std::mem::take(&mut self.ahead_ms).min(86_400_000);
        for it in self.stored.values_mut().flatten() {
            it.placed = Some(1); // after what is kept has left its lane
        }
    }

    pub(super) fn crash(&mut self) {
        show!(self, "crash");
        self.note_suspects(|_| true);
        self.lose_process();
    }

    /// Sends under way get no outcome.
    fn lose_process(&mut self) {
        self.crashes += 1;
        for it in self.failures.values_mut() {
            // It may not have been on disk that it failed.
            it.made_maybe += std::mem::take(&mut it.made);
            it.counted_maybe += std::mem::take(&mut it.counted);
        }
        if let Some(log) = &mut self.log {
            for flight in &self.flights {
                if self.engine.is_in_flight(flight.number) {
                    let has_arrived = flight.seqs.iter().filter(|_| self.random.below(2) == 0);
                    log.extend(has_arrived);
                }
            }
        }
        for (key, life) in &self.lives {
            // A message that was refused, or not told to the destination, has not arrived.
            let is_open = life.is_retrying && self.unanswered.contains(key);
            if life.is_in_flight || is_open || life.end == Some(Outcome::Delivered) {
                self.must_be_again.insert(*key);
            }
            if life.is_retrying {
                self.may_be_again.insert(*key);
            }
        }
        self.open_again();
    }

    /// These messages in memory may be marked after the end of the process.
    pub(super) fn note_suspects(&mut self, may_be_again: impl Fn(&Entry) -> bool) {
        let dispatcher = self.engine.lock_dispatcher();
        for (_, entry) in dispatcher.window.slots().filter(|(_, it)| may_be_again(it)) {
            let body = entry.body.as_ref();
            let key = self.numbers.get(&entry.seq).copied().or_else(|| {
                let name = name_of(body?);
                Some((name, self.stored.get(&name)?.last()?.order))
            });
            self.may_be_again.extend(key);
        }
    }

    pub(super) fn open_again(&mut self) {
        self.submitted.clear();
        self.begun = None;
        self.committed = None;
        self.sent_us.clear();
        self.telling.in_hand = None;
        self.telling.owed.extend(std::mem::take(&mut self.telling.answered));
        self.telling.owed.extend(std::mem::take(&mut self.telling.in_group));
        if self.random.below(2) == 0 {
            let closed_us = self.random.below(5_000_000) as i64;
            self.wall_us.fetch_add(closed_us, Ordering::Relaxed);
            self.ahead_ms += closed_us / 1000 + 1;
        }
        self.forget_memory();
        let start_us = self.random.below(1 << 40);
        // The earlier engine is closed first, because its process is gone.
        let nothing = || open(&self.store.with_extension("none"), &self.settings, &self.wall_us, 0);
        let nothing = self.nothing.take().unwrap_or_else(nothing);
        drop(std::mem::replace(&mut self.engine, nothing));
        let engine = open(&self.store, &self.settings, &self.wall_us, start_us);
        self.nothing = Some(std::mem::replace(&mut self.engine, engine));
        self.begin_tenants();
        self.start();
    }

    /// In each key the message that was tried last keeps its place, if it may have arrived and waits for its next attempt.
    pub(super) fn note_kept(&mut self) {
        self.kept.clear();
        if self.settings.is_global {
            return;
        }
        let mut tried = self.engine.with_store(|store| store.may_have_arrived()).unwrap();
        tried.retain(|row| row.next_ms.is_some());
        tried.sort_unstable_by_key(|row| row.tried_ms);
        let of_lanes: BTreeMap<i64, i64> = tried.iter().filter_map(|row| Some((row.lane?, row.seq))).collect();
        for key in of_lanes.values().map(|seq| self.numbers[seq]) {
            if key.0.0.is_some_and(|of| !self.paused_keys.contains(&of)) {
                self.lives.insert(key, Life { is_retrying: true, left_lane: Some(0), ..Life::default() });
                show!(self, "{key:?} keeps its place");
                self.kept.insert(key);
            }
        }
    }

    /// From now on the destination takes everything. At the end all messages are delivered, and nothing is lost.
    pub(super) fn heal(&mut self) {
        show!(self, "heal");
        self.is_healed = true;
        self.resume_all();
        for _ in 0..400 {
            self.pump();
            if self.is_paused || !self.paused_keys.is_empty() || self.has_set_tenants() {
                self.resume_all(); // a crash came before the commit
            }
            while !self.flights.is_empty() {
                self.settle();
            }
            self.pump();
            let now_us = self.engine.clock().now_us();
            let next_us = self.engine.timer.next_wake_us().unwrap_or(u64::MAX).clamp(now_us + 1_000, now_us + 300_000);
            self.advance_by(next_us - now_us);
            if self.submitted.is_empty() && self.flights.is_empty() && self.engine.is_empty() {
                break;
            }
        }
        for (name, all) in &self.stored {
            for it in all {
                assert!(it.end.is_some(), "{name:?} {it:?} was lost; at {}, {}", self.wall_ms(), self.state());
            }
        }
        assert!(self.engine.is_empty(), "something is left over");
        assert_eq!(self.engine.with_store(|store| store.tried_count()), 0, "attempts are left over");
        assert_eq!(self.telling.owed, BTreeSet::new(), "letters were not told");
        self.grow_old();
    }

    fn resume_all(&mut self) {
        let mut asked = vec![Asked::Pause(false)];
        asked.extend((0..3).map(|key| Asked::PauseKey(key, false)));
        asked.extend((1..=self.tenants.count).map(|number| Asked::Tenant(number, TenantChange::Remove)));
        let receipt = self.engine.submit(asked.iter().map(|it| item(it, 0)).collect()).unwrap();
        self.submitted.push(Ticket { asked, receipt, expected: Vec::new(), accepted: Vec::new(), let_go: Vec::new() });
    }

    /// At the end the store knows no message any more (D5).
    pub(super) fn grow_old(&mut self) {
        let keep_ms = self.settings.keep_ids_ms;
        if keep_ms > 60_000 {
            return;
        }
        for _ in 0..12 {
            self.advance_by((keep_ms / 4).max(2_000) * 1000);
            self.pump();
        }
        let names: Vec<Name> = self.stored.keys().copied().collect();
        self.engine.with_store(|store| {
            store.begin().unwrap();
            for _ in 0..500 {
                if !store.upkeep(true).unwrap() {
                    break;
                }
            }
            store.commit().unwrap();
            for name in names {
                let (key, id) = text(name);
                assert_eq!(store.find(key.as_deref(), &id).unwrap(), None, "it is known for ever");
            }
            assert_eq!(store.remembered_cancels(), 0, "cancels are remembered for ever");
        });
        self.check_events_are_forgotten();
    }
}
