//! Works that only this project's timer has calls for.

use std::hint::black_box;
use std::num::NonZeroU64;
use std::time::Instant;

use crate::side::Side;
use crate::sides::tickwheel::{Tickwheel, after};
use crate::works::{HOUR_MS, delays_ms, filled, on_threads, per_timer_ns, random, shuffled};

type Ours = Tickwheel<false>;

/// Adds and cancels at once, from so many threads, on one timer.
pub fn pairs(count: usize, threads: usize) -> f64 {
    let side = Ours::new();
    on_threads(count, threads, |payload| {
        let task = NonZeroU64::MIN.saturating_add(payload);
        let handle = side.timer.add(after(30_000), task, 0).expect("in range");
        assert!(side.timer.cancel(black_box(handle)).is_some());
    })
}

/// As [`crate::works::cancel`], so many with each call.
pub fn cancel_many(count: usize, at_a_time: usize) -> f64 {
    let (side, keys) = filled::<Ours>(&delays_ms(count, HOUR_MS));
    let keys = shuffled(keys);
    let started = Instant::now();
    for keys in keys.chunks(at_a_time) {
        assert_eq!(side.timer.cancel_many(keys).len(), keys.len());
    }
    let ns = per_timer_ns(started, count);
    assert_eq!(side.len(), 0);
    ns
}

/// As [`crate::works::reset`], so many with each call.
pub fn reset_many(count: usize, at_a_time: usize) -> f64 {
    let (side, keys) = filled::<Ours>(&delays_ms(count, HOUR_MS));
    let again = random(11).map(|number| after(1 + number % HOUR_MS));
    let moves: Vec<_> = shuffled(keys).into_iter().zip(again).collect();
    let started = Instant::now();
    for moves in moves.chunks(at_a_time) {
        let moved = side.timer.reschedule_many(moves).expect("in range");
        assert!(moved.iter().all(Option::is_some));
    }
    let ns = per_timer_ns(started, count);
    assert_eq!(side.len(), count);
    ns
}
