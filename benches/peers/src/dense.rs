//! Many timers are due in the tick of one bucket: they leave the wheel together, and the front sorts them. As
//! [`crate::works::fire`], nanoseconds for one timer; the clock advances by a millisecond at a time.

use std::num::NonZeroU64;
use std::time::Instant;

use fastrand::Rng;
use tickwheel::{Clock, Config, Released, Timer, When};

use crate::works::per_timer_ns;

/// When the first tick with timers begins. If it were later, they would cascade first.
const START_MS: u64 = 10_000;

pub fn five_thousand_a_millisecond(count: usize) -> f64 {
    fire(count, 1, count as u64 / 5)
}

pub fn hundred_thousand_in_ten_milliseconds(count: usize) -> f64 {
    fire(count, 10, count as u64 / 10)
}

pub fn all_in_one_second(count: usize) -> f64 {
    fire(count, 1000, 1_000_000)
}

fn fire(count: usize, tick_ms: u64, within_us: u64) -> f64 {
    let config = Config { tick_ms, ..Config::default() };
    let timer = Timer::new(&config, Clock::manual(START_MS - 10 * tick_ms)).expect("the settings are good");
    let mut random = Rng::with_seed(count as u64);
    for _ in 0..count {
        let due_us = START_MS * 1000 + random.u64(..within_us);
        timer.add(When::AtUs(due_us), NonZeroU64::MIN).expect("in range");
    }
    let mut fired = Vec::with_capacity(count);
    let started = Instant::now();
    for passed_ms in 0..=within_us.div_ceil(1000) {
        timer.clock().set_us((START_MS + passed_ms) * 1000);
        timer.advance(&mut |released: Released| fired.extend(released.tickets));
    }
    let ns = per_timer_ns(started, count);
    assert_eq!(fired.len(), count, "each fires once");
    let mut last = (0, 0);
    for ticket in fired {
        let claimed = timer.claim(ticket).expect("nothing was cancelled");
        assert!(last < (claimed.due_us, claimed.number), "fired out of order");
        last = (claimed.due_us, claimed.number);
    }
    ns
}
