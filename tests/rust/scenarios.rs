//! Random scenarios, compared with the simplest model: a list that is sorted at every step.

use std::env;
use std::hash::{BuildHasher, Hasher, RandomState};

use tickwheel::{Handle, Precision, When};

use crate::support::{Manual, Random};

/// A pending task of the model.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// When it is released: its instant, or with tick precision the start of its tick.
    release_us: u64,
    due_us: u64,
    number: u64,
    id: u32,
    handle: Handle,
}

struct Scenario {
    random: Random,
    wheel: Manual,
    tick_ms: u64,
    interval_ms: u64,
    precision: Precision,
    waiting: Vec<Waiting>,
    /// The handles of tasks that ran or were cancelled.
    stale: Vec<Handle>,
    next_number: u64,
    next_id: u32,
}

impl Scenario {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let tick_ms = random.pick(&[1, 1, 1, 2, 3, 7, 10, 100, 999, 1000]);
        let sizes: Vec<u32> = (0..random.between(1, 3)).map(|_| random.between(2, 64) as u32).collect();
        let interval_ms = tick_ms * u64::from(sizes[0]);
        let start_ms = random.pick(&[0, 1, interval_ms - 1, interval_ms, 1_675_752_020_558, (1 << 51) - 1]);
        let precision = random.pick(&[Precision::Exact, Precision::Tick]);
        let wheel = Manual::new(tick_ms, &sizes, start_ms, precision);
        Self {
            random,
            wheel,
            tick_ms,
            interval_ms,
            precision,
            waiting: Vec::new(),
            stale: Vec::new(),
            next_number: 0,
            next_id: 0,
        }
    }

    /// A delay or an instant: now, near, exactly at or next to the end of some level, or far away.
    fn when(&mut self) -> When {
        let r = &mut self.random;
        let edge_ms = self.interval_ms.saturating_mul(r.between(1, 5).pow(r.below(6) as u32)).min(1 << 45);
        let near_us = r.below(3 * self.interval_ms * 1000);
        let wobble_us = r.pick(&[0, 0, 1, 999, 1000, self.tick_ms * 1000]);
        match r.below(6) {
            0 => When::AfterUs(r.below(3)),
            1 | 2 => When::AfterUs(near_us),
            3 => When::AfterUs((edge_ms * 1000).saturating_sub(wobble_us)),
            4 => When::AtUs((self.wheel.now_us() / 1000 / edge_ms + 1) * edge_ms * 1000 - wobble_us),
            _ => When::AtUs(r.below(self.wheel.now_us() + near_us + 1)),
        }
    }

    /// Adds the task to the model.
    fn expect(&mut self, when: When, id: u32, handle: Handle) {
        let now_us = self.wheel.now_us();
        let due_us = match when {
            When::AfterUs(delay_us) => now_us + delay_us,
            When::AtUs(due_us) => due_us.max(now_us),
            other => unreachable!("{other:?} is not drawn"),
        };
        let tick_us = self.tick_ms * 1000;
        let release_us = match self.precision {
            Precision::Exact => due_us,
            Precision::Tick => (due_us / tick_us * tick_us).max(now_us),
        };
        self.next_number += 1;
        self.waiting.push(Waiting { release_us, due_us, number: self.next_number, id, handle });
    }

    fn add(&mut self) {
        let when = self.when();
        let id = self.next_id;
        self.next_id += 1;
        let handle = self.wheel.timer.add(when, id).expect("in range");
        self.expect(when, id, handle);
    }

    fn cancel(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let index = self.random.below(self.waiting.len() as u64) as usize;
        let cancelled = self.waiting.swap_remove(index);
        assert_eq!(self.wheel.timer.cancel(cancelled.handle), Some(cancelled.id), "a pending task can be cancelled");
        self.stale.push(cancelled.handle);
    }

    fn reschedule(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let index = self.random.below(self.waiting.len() as u64) as usize;
        let moved = self.waiting.swap_remove(index);
        let when = self.when();
        assert!(self.wheel.timer.reschedule(moved.handle, when).expect("in range"), "it is pending");
        self.expect(when, moved.id, moved.handle);
    }

    fn advance(&mut self) {
        let now_us = self.wheel.now_us();
        let r = &mut self.random;
        let gap_us = match r.below(5) {
            0 => r.below(3),
            1 => r.below(self.tick_ms * 3000),
            2 | 3 => r.below(self.interval_ms * 2000),
            _ => r.below(self.interval_ms * 1_000_000),
        };
        let next_us = self.waiting.iter().map(|task| task.release_us).min();
        let to_us = match next_us {
            Some(next_us) if r.below(3) == 0 => next_us.max(now_us),
            Some(next_us) if r.below(4) == 0 => next_us.saturating_sub(1).max(now_us),
            _ => now_us + gap_us,
        };
        let mut due: Vec<_> = self.waiting.iter().copied().filter(|task| task.release_us <= to_us).collect();
        self.waiting.retain(|task| task.release_us > to_us);
        due.sort_by_key(|task| (task.due_us, task.number));
        self.stale.extend(due.iter().map(|task| task.handle));
        let way = r.below(4);
        if way < 2 {
            // A late reaper: one wake-up, and the order is kept.
            let ran = self.wheel.wake_at_us(to_us);
            assert_eq!(ran, due.iter().map(|task| task.id).collect::<Vec<_>>(), "one late advance to {to_us}");
        } else {
            // A reaper that is on time, or a manual clock: each task at its instant.
            let ran = if way == 2 { self.wheel.reap_to_us(to_us) } else { self.wheel.step_to_us(to_us) };
            let expected: Vec<_> = due.iter().map(|task| (task.release_us.max(now_us), task.id)).collect();
            assert_eq!(ran, expected, "in steps to {to_us}");
        }
    }

    fn check(&mut self) {
        assert_eq!(self.wheel.timer.len(), self.waiting.len());
        if !self.stale.is_empty() {
            let index = self.random.below(self.stale.len() as u64) as usize;
            assert_eq!(self.wheel.timer.cancel(self.stale[index]), None, "a stale handle cancels nothing");
        }
        if self.random.below(10) == 0 {
            self.waiting.sort_by_key(|task| (task.due_us, task.number));
            let listed: Vec<_> = self.wheel.timer.pending(u64::MAX, usize::MAX).iter().map(|p| p.due_us).collect();
            assert_eq!(listed, self.waiting.iter().map(|task| task.due_us).collect::<Vec<_>>());
        }
    }

    fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            match self.random.below(10) {
                0..=4 => self.add(),
                5 => self.cancel(),
                6 => self.reschedule(),
                _ => self.advance(),
            }
            self.check();
        }
        let end_us = self.waiting.iter().map(|task| task.release_us).max().unwrap_or(0);
        self.waiting.sort_by_key(|task| (task.due_us, task.number));
        let left: Vec<_> = self.waiting.iter().map(|task| task.id).collect();
        assert_eq!(self.wheel.wake_at_us(end_us.max(self.wheel.now_us())), left, "the rest");
        assert_eq!(self.wheel.timer.len(), 0);
    }
}

/// `TICKWHEEL_SEED` repeats a run; without it each run has its own seed.
fn base_seed() -> u64 {
    let fresh = || RandomState::new().build_hasher().finish();
    env::var("TICKWHEEL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(fresh)
}

#[test]
fn ten_thousand_random_scenarios_agree_with_a_sorted_list__t2_t3_t4_t5_t6_t9() {
    let base = base_seed();
    println!("TICKWHEEL_SEED={base}");
    for scenario in 0..10_000 {
        let seed = base.wrapping_add(scenario);
        println!("seed {seed}");
        Scenario::new(seed).run(50);
    }
}
