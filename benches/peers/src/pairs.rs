//! Pairs: a timer is added and cancelled at once, by one thread or by several threads that share it. Nanoseconds for one
//! pair, from the start of the first to the end of the last.

#![expect(clippy::disallowed_types, reason = "the standard mutex is what the others would be put into")]

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use crate::side::Side;
use crate::works::per_timer_ns;

pub const DELAY_MS: u64 = 30_000;

/// More threads than most machines have processors, so that some always wait for the lock.
pub const SEVEN: usize = 7;

/// What the thread that calls now and then does between two calls.
const BETWEEN: Duration = Duration::from_micros(20);

/// One thread, for timers that any thread may call, by a lock of their own or by other means; without a lock for the others.
pub fn alone<S: Side>(count: usize) -> f64 {
    let mut side = S::new();
    let started = Instant::now();
    for payload in 0..count as u64 {
        let key = side.insert(DELAY_MS, payload);
        assert!(side.cancel(black_box(key)));
    }
    per_timer_ns(started, count)
}

/// As [`alone`], for timers that belong to one thread: they are in a mutex, which is locked for every call.
pub fn alone_locked<S: Side>(count: usize) -> f64 {
    let side = Mutex::new(S::new());
    let started = Instant::now();
    (0..count as u64).for_each(|payload| locked_pair(&side, payload));
    per_timer_ns(started, count)
}

/// As [`alone_locked`], with the pairs divided between `THREADS` threads.
pub fn locked<S: Side + Send, const THREADS: usize>(count: usize) -> f64 {
    let side = Mutex::new(S::new());
    on_threads(count, THREADS, || side.lock().expect("no thread panics").enter(), |payload| locked_pair(&side, payload))
}

/// As [`locked`] with seven threads: the longest call of all, in milliseconds.
pub fn longest_wait_locked<S: Side + Send>(count: usize) -> f64 {
    let side = Mutex::new(S::new());
    let pair = |payload| {
        let mut key = None;
        let insert = || key = Some(side.lock().expect("no thread panics").insert(DELAY_MS, payload));
        let inserted = timed(insert);
        let key = key.expect("inserted");
        inserted.max(timed(|| assert!(side.lock().expect("no thread panics").cancel(key))))
    };
    longest_wait(count, || side.lock().expect("no thread panics").enter(), pair)
}

/// The longest of many calls from seven threads, in milliseconds. `pair` returns the time of the longer of its two calls.
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

/// As [`wait_beside`], behind a standard mutex.
pub fn wait_beside_locked<S: Side + Send, const PER_MILLE: usize>(count: usize) -> f64 {
    let side = Mutex::new(S::new());
    wait_beside(count, PER_MILLE, || side.lock().expect("no thread panics").enter(), || locked_pair(&side, 0))
}

/// One thread calls all the time, another one now and then: how long a pair of calls takes that one, in microseconds.
/// `per_mille` of its calls take no longer.
pub fn wait_beside(count: usize, per_mille: usize, enter: impl Fn() + Sync, pair: impl Fn() + Sync) -> f64 {
    let is_over = AtomicBool::new(false);
    let mut took: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            enter();
            while !is_over.load(Relaxed) {
                pair();
            }
        });
        enter();
        let took = (0..count / 100).map(|_| {
            let started = Instant::now();
            while started.elapsed() < BETWEEN {
                std::hint::spin_loop();
            }
            timed(&pair)
        });
        let took = took.collect();
        is_over.store(true, Relaxed);
        took
    });
    took.sort_unstable();
    took[(took.len() * per_mille / 1000).min(took.len() - 1)].as_secs_f64() * 1e6
}

pub fn timed(call: impl FnOnce()) -> Duration {
    let started = Instant::now();
    call();
    started.elapsed()
}

fn locked_pair<S: Side>(side: &Mutex<S>, payload: u64) {
    let key = side.lock().expect("no thread panics").insert(DELAY_MS, payload);
    assert!(side.lock().expect("no thread panics").cancel(black_box(key)));
}

/// Divides `count` pairs between threads. Each thread enters the timer first.
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
