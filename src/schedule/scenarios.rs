//! Random scenarios for the schedule, compared with a sorted map. They test what `tests/rust/scenarios.rs` cannot: other
//! calls between the steps of an advance, slots near their last generation, and dense ticks.
//!
//! `TICKWHEEL_SEED` repeats a run; without it each run has its own seed.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use super::{Precision, Progress, Schedule};
use crate::wheel::{Handle, Ticket};

const SCENARIOS: u64 = 200;
const TURNS: u64 = 150;

/// A linear congruential generator (Knuth's constants): good enough to choose test cases.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % end.max(1)
    }

    fn pick(&mut self, from: &[u64]) -> u64 {
        from[self.below(from.len() as u64) as usize]
    }

    fn is_one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Released {
    ticket: Ticket,
    handle: Handle,
    due_us: u64,
    number: u64,
    task: u64,
}

struct Scenario {
    random: Random,
    schedule: Schedule<u64>,
    now_us: u64,
    /// How far ahead most tasks are due.
    spread_us: u64,
    next_number: u64,
    next_task: u64,
    /// Handle and task by (due instant, add number).
    pending: BTreeMap<(u64, u64), (Handle, u64)>,
    released: Vec<Released>,
    stale: Vec<Handle>,
    stale_tickets: Vec<Ticket>,
}

impl Scenario {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let tick_ms = random.pick(&[1, 1, 1, 5, 100]);
        let size = random.pick(&[2, 3, 4, 20, 60]) as u32;
        let start_ms = random.pick(&[0, 19, 399, 7999, (1 << 24) - 30, (1 << 52) - 200_000]);
        // The longest ones are more than the lower bits of a time that a reminder has, and fill levels with longer ticks.
        let spread_us = random.pick(&[50, 2000, 50_000, 3_000_000, 30_000_000_000, 900_000_000_000_000]);
        let mut schedule = Schedule::new(tick_ms, &[size], start_ms, Precision::Exact);
        schedule.wheel.flushed = random.is_one_in(4).then(Vec::new);
        Self {
            random,
            schedule,
            now_us: start_ms * 1000,
            spread_us,
            next_number: 0,
            next_task: 0,
            pending: BTreeMap::new(),
            released: Vec::new(),
            stale: Vec::new(),
            stale_tickets: Vec::new(),
        }
    }

    /// Tasks that are due close together; sometimes thousands in one tick.
    fn add(&mut self) {
        let base_us = self.now_us + self.random.below(self.spread_us);
        let end_us = self.random.pick(&[1, 30, 1000, self.spread_us]);
        let count = if self.random.is_one_in(12) { 5000 } else { self.random.below(60) };
        for _ in 0..count {
            let due_us = base_us + self.random.below(end_us);
            self.next_number += 1;
            self.next_task += 1;
            let (handle, wake_us) = self.schedule.add(self.now_us, due_us, self.next_task, 0);
            assert!(wake_us <= due_us);
            self.pending.insert((due_us, self.next_number), (handle, self.next_task));
        }
    }

    /// Cancels neighbours, forwards or backwards.
    fn cancel(&mut self) {
        let is_forward = self.random.is_one_in(2);
        let count = if self.random.is_one_in(8) { 5000 } else { self.random.below(80) };
        for _ in 0..count {
            let from = (self.now_us + self.random.below(self.spread_us), 0);
            let mut found = self.pending.range(from..).next();
            if !is_forward {
                found = self.pending.range(..from).next_back();
            }
            let Some((key, (handle, task))) = found.map(|(key, value)| (*key, *value)) else { break };
            assert_eq!(self.schedule.remove(handle), Some(task));
            self.stale.push(handle);
            self.pending.remove(&key);
        }
        if let Some(Released { ticket, handle, task, .. }) = self.any_released(3) {
            assert_eq!(self.schedule.remove(handle), Some(task));
            self.stale.push(handle);
            self.stale_tickets.push(ticket);
        }
    }

    fn any_released(&mut self, one_in: u64) -> Option<Released> {
        if self.released.is_empty() || !self.random.is_one_in(one_in) {
            return None;
        }
        let index = self.random.below(self.released.len() as u64) as usize;
        Some(self.released.remove(index))
    }

    fn reschedule(&mut self) {
        for _ in 0..self.random.below(40) {
            let due_us = self.now_us + self.random.below(self.spread_us);
            let (handle, task) = if let Some(Released { ticket, handle, task, .. }) = self.any_released(8) {
                self.stale_tickets.push(ticket);
                (handle, task)
            } else {
                let from = (self.now_us + self.random.below(self.spread_us), 0);
                let Some((key, (handle, task))) = self.pending.range(from..).next().map(|(key, value)| (*key, *value))
                else {
                    break;
                };
                self.pending.remove(&key);
                (self.use_up_generations(handle), task)
            };
            let wake_us = self.schedule.reschedule(self.now_us, handle, due_us).unwrap();
            assert!(wake_us <= due_us);
            self.next_number += 1;
            self.pending.insert((due_us, self.next_number), (handle, task));
        }
    }

    /// Sometimes puts a slot near its last generation.
    fn use_up_generations(&mut self, handle: Handle) -> Handle {
        if handle.generation() < u32::MAX - 100 && self.random.is_one_in(50) {
            self.stale.push(handle);
            return self.schedule.slab.set_generation(handle, u32::MAX - 2 - self.random.below(2) as u32);
        }
        handle
    }

    fn claim(&mut self) {
        let count = self.random.below(20).min(self.released.len() as u64) as usize;
        for Released { ticket, handle, due_us, number, task } in self.released.drain(..count) {
            let claimed = self.schedule.claim(ticket).unwrap();
            assert_eq!((claimed.task, claimed.due_us, claimed.number, claimed.handle), (task, due_us, number, handle));
            self.stale.push(handle);
            self.stale_tickets.push(ticket);
        }
    }

    fn try_stale_ones(&mut self) {
        for _ in 0..self.stale.len().min(5) {
            let index = self.random.below(self.stale.len() as u64) as usize;
            let handle = self.stale.swap_remove(index);
            assert!(self.schedule.remove(handle).is_none());
            assert!(self.schedule.reschedule(self.now_us, handle, self.now_us + 5).is_none());
        }
        for _ in 0..self.stale_tickets.len().min(5) {
            let index = self.random.below(self.stale_tickets.len() as u64) as usize;
            assert!(self.schedule.claim(self.stale_tickets.swap_remove(index)).is_none(), "also if it waits again");
        }
    }

    /// Some steps of an advance, or all. A later turn continues with the rest.
    fn advance(&mut self) {
        let end = self.random.pick(&[3, 30, 1000]);
        let limit = 1 + self.random.below(end) as usize;
        let is_to_finish = !self.random.is_one_in(3);
        loop {
            let mut out = Vec::new();
            let more = self.schedule.step(self.now_us, limit, &mut out, &mut Progress::default());
            assert!(out.len() <= limit);
            for ticket in out {
                let ((due_us, number), (handle, task)) = self.pending.pop_first().expect("it is pending");
                let released = self.schedule.peek_released(ticket);
                assert!(released == Some((&task, due_us, 0)) && due_us <= self.now_us, "the earliest, and not early");
                self.released.push(Released { ticket, handle, due_us, number, task });
            }
            if !more {
                let first = self.pending.keys().next();
                return assert!(first.is_none_or(|(due_us, _)| *due_us > self.now_us), "{first:?} was left behind");
            }
            if !is_to_finish && self.random.is_one_in(4) {
                return;
            }
        }
    }

    fn check(&mut self) {
        assert_eq!((self.schedule.len(), self.schedule.released()), (self.pending.len(), self.released.len()));
        if let Some((due_us, _)) = self.pending.keys().next() {
            assert!(self.schedule.next_wake_us().unwrap() <= (*due_us).max(self.now_us));
        }
        if self.random.is_one_in(10) {
            let shown = crate::snapshot::of(&self.schedule, |handle, task| (handle, *task));
            let in_buckets = shown.levels.iter().flat_map(|level| &level.buckets).map(|bucket| bucket.tasks.len());
            assert_eq!(shown.front.len() + in_buckets.sum::<usize>(), self.pending.len());
        }
    }

    fn run(mut self) {
        for _ in 0..TURNS {
            match self.random.below(12) {
                0..4 => self.add(),
                4..6 => self.cancel(),
                6..8 => self.reschedule(),
                8 => self.now_us += self.random.below(self.spread_us / 4 + 2),
                9 => self.claim(),
                10 => self.try_stale_ones(),
                _ => self.advance(),
            }
            self.check();
        }
        for (handle, task) in self.pending.into_values() {
            assert_eq!(self.schedule.remove(handle), Some(task));
        }
        for Released { ticket, task, .. } in self.released {
            assert_eq!(self.schedule.claim(ticket).map(|claimed| claimed.task), Some(task));
        }
        assert_eq!(self.schedule.len(), 0);
    }
}

#[test]
fn random_scenarios_with_calls_between_the_steps_agree_with_a_sorted_map__t6_t9() {
    let given = std::env::var("TICKWHEEL_SEED").ok().and_then(|seed| seed.parse().ok());
    let base: u64 = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("TICKWHEEL_SEED={base}");
    for number in 0..SCENARIOS {
        println!("scenario {number}");
        Scenario::new(base.wrapping_add(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)).run();
    }
}
