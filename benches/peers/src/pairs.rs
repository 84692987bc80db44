//! A pair: a timer is added and cancelled at once, from one thread or from more that share the timer. Nanoseconds for
//! each pair, from the start of the first to the end of the last.

#![expect(clippy::disallowed_types, reason = "the standard mutex is what the others would be put into")]

use std::hint::black_box;
use std::sync::{Barrier, Mutex};
use std::time::Instant;

use crate::side::Side;
use crate::works::per_timer_ns;

pub const DELAY_MS: u64 = 30_000;

/// One thread, for timers that take a lock of their own, or whatever they need to be called from any thread.
pub fn alone<S: Side>(count: usize) -> f64 {
    let mut side = S::new();
    let started = Instant::now();
    for payload in 0..count as u64 {
        let key = side.insert(DELAY_MS, payload);
        assert!(side.cancel(black_box(key)));
    }
    per_timer_ns(started, count)
}

/// As [`alone`], for timers that belong to one thread: in a mutex, locked for every call, as the others do.
pub fn alone_locked<S: Side>(count: usize) -> f64 {
    let side = Mutex::new(S::new());
    let started = Instant::now();
    (0..count as u64).for_each(|payload| locked_pair(&side, payload));
    per_timer_ns(started, count)
}

/// As [`alone_locked`], shared out between two threads.
pub fn two_locked<S: Side + Send>(count: usize) -> f64 {
    let side = Mutex::new(S::new());
    on_threads(count, 2, || side.lock().expect("nobody panics").enter(), |payload| locked_pair(&side, payload))
}

fn locked_pair<S: Side>(side: &Mutex<S>, payload: u64) {
    let key = side.lock().expect("nobody panics").insert(DELAY_MS, payload);
    assert!(side.lock().expect("nobody panics").cancel(black_box(key)));
}

/// Shares `count` pairs out between threads, each of which enters first.
pub fn on_threads(count: usize, threads: usize, enter: impl Fn() + Sync, pair: impl Fn(u64) + Sync) -> f64 {
    let barrier = Barrier::new(threads + 1);
    let started = std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                enter();
                barrier.wait();
                (0..(count / threads) as u64).for_each(&pair);
            });
        }
        barrier.wait();
        Instant::now()
    });
    per_timer_ns(started, count)
}
