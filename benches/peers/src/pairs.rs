//! A pair: a timer is added and cancelled at once, from one thread or from more that share the timer. Nanoseconds for
//! each pair, from the start of the first to the end of the last.

#![expect(clippy::disallowed_types, reason = "the standard mutex is what the others would be put into")]

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use crate::side::Side;
use crate::works::per_timer_ns;

pub const DELAY_MS: u64 = 30_000;

/// More threads than most machines of this comparison have processors, so that some always wait for the lock.
pub const SEVEN: usize = 7;

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

/// As [`alone_locked`], shared out between `THREADS` threads.
pub fn locked<S: Side + Send, const THREADS: usize>(count: usize) -> f64 {
    let side = Mutex::new(S::new());
    on_threads(count, THREADS, || side.lock().expect("nobody panics").enter(), |payload| locked_pair(&side, payload))
}

/// As [`locked`] with seven threads, and the longest that any of them took for a call: milliseconds.
pub fn longest_wait_locked<S: Side + Send>(count: usize) -> f64 {
    let side = Mutex::new(S::new());
    let pair = |payload| {
        let mut key = None;
        let insert = || key = Some(side.lock().expect("nobody panics").insert(DELAY_MS, payload));
        let inserted = timed(insert);
        let key = key.expect("inserted");
        inserted.max(timed(|| assert!(side.lock().expect("nobody panics").cancel(key))))
    };
    longest_wait(count, || side.lock().expect("nobody panics").enter(), pair)
}

/// The longest of many calls from seven threads at once, in milliseconds; `pair` says how long the longer of its calls took.
pub fn longest_wait(count: usize, enter: impl Fn() + Sync, pair: impl Fn(u64) -> Duration + Sync) -> f64 {
    let longest_ns = AtomicU64::new(0);
    on_threads(count, SEVEN, enter, |payload| {
        let took_ns = pair(payload).as_nanos() as u64;
        if took_ns > longest_ns.load(Relaxed) {
            longest_ns.fetch_max(took_ns, Relaxed);
        }
    });
    longest_ns.into_inner() as f64 / 1e6
}

pub fn timed(call: impl FnOnce()) -> Duration {
    let started = Instant::now();
    call();
    started.elapsed()
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
