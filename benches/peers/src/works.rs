//! The works: each does one thing a million times on one side and gives nanoseconds for each time.
//!
//! What is timed is bracketed; filling, shuffling and checking are not part of it. Payloads are numbers from 0.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Mutex;
use std::time::Instant;

use crate::side::Side;

pub const HOUR_MS: u64 = 3_600_000;
pub const MINUTE_MS: u64 = 60_000;
/// The rolling time-outs: so many a millisecond, for so long; 1 of 100 stays, the others go 10 ms later.
const ROLLING_PER_MS: u64 = 100;
const ROLLING_DELAY_MS: u64 = 30_000;
const ROLLING_FOR_MS: u64 = 40_000;
const ROLLING_LAG: usize = 10 * ROLLING_PER_MS as usize;

/// Numbers without a pattern (splitmix64).
pub fn random(seed: u64) -> impl Iterator<Item = u64> {
    (1..).map(move |i: u64| {
        let mixed = (seed + i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

/// Delays from 1 ms up to `within_ms`.
pub fn delays_ms(count: usize, within_ms: u64) -> Vec<u64> {
    random(count as u64).map(|number| 1 + number % within_ms).take(count).collect()
}

pub fn shuffled<T>(items: Vec<T>) -> Vec<T> {
    let mut keyed: Vec<_> = random(7).zip(items).collect();
    keyed.sort_unstable_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, item)| item).collect()
}

pub fn filled<S: Side>(delays_ms: &[u64]) -> (S, Vec<S::Key>) {
    let mut side = S::new();
    let keys = delays_ms.iter().zip(0..).map(|(delay_ms, payload)| side.insert(*delay_ms, payload)).collect();
    assert_eq!(side.len(), delays_ms.len());
    (side, keys)
}

pub fn per_timer_ns(started: Instant, count: usize) -> f64 {
    started.elapsed().as_nanos() as f64 / count as f64
}

pub fn insert<S: Side>(count: usize) -> f64 {
    let delays_ms = delays_ms(count, HOUR_MS);
    let mut keys = Vec::with_capacity(count);
    let mut side = S::new();
    let started = Instant::now();
    for (delay_ms, payload) in delays_ms.iter().zip(0..) {
        keys.push(side.insert(*delay_ms, payload));
    }
    let ns = per_timer_ns(started, count);
    assert_eq!(side.len(), count);
    keys.into_iter().for_each(|key| side.forget(key));
    ns
}

pub fn cancel<S: Side>(count: usize) -> f64 {
    let (mut side, keys) = filled::<S>(&delays_ms(count, HOUR_MS));
    let keys = shuffled(keys);
    let started = Instant::now();
    for key in keys {
        assert!(side.cancel(key));
    }
    let ns = per_timer_ns(started, count);
    assert_eq!(side.len(), 0);
    ns
}

pub fn fire<S: Side>(count: usize) -> f64 {
    let delays_ms = delays_ms(count, MINUTE_MS);
    let (mut side, keys) = filled::<S>(&delays_ms);
    keys.into_iter().for_each(|key| side.forget(key));
    let mut fired = Vec::with_capacity(count);
    let started = Instant::now();
    for _ in 0..MINUTE_MS {
        side.tick(&mut fired);
    }
    let ns = per_timer_ns(started, count);
    let payloads = side.payloads(fired);
    assert_eq!(payloads.len(), count, "each fires once");
    assert!(payloads.iter().map(|payload| delays_ms[*payload as usize]).is_sorted(), "in order");
    ns
}

pub fn reset<S: Side>(count: usize) -> f64 {
    let (mut side, keys) = filled::<S>(&delays_ms(count, HOUR_MS));
    let keys = shuffled(keys);
    let again_ms: Vec<_> = random(11).map(|number| 1 + number % HOUR_MS).take(count).collect();
    let mut moved = Vec::with_capacity(count);
    let started = Instant::now();
    for (key, delay_ms) in keys.into_iter().zip(again_ms) {
        moved.push(side.reset(key, delay_ms));
    }
    let ns = per_timer_ns(started, count);
    assert_eq!(side.len(), count);
    moved.into_iter().for_each(|key| side.forget(key));
    ns
}

pub fn rolling<S: Side>() -> f64 {
    let mut side = S::new();
    let mut live = VecDeque::with_capacity(ROLLING_LAG + 1);
    let mut fired = Vec::new();
    let mut payload = 0;
    let started = Instant::now();
    for _ in 0..ROLLING_FOR_MS {
        for _ in 0..ROLLING_PER_MS {
            live.push_back((payload, side.insert(ROLLING_DELAY_MS, payload)));
            payload += 1;
            if live.len() > ROLLING_LAG
                && let Some((payload, key)) = live.pop_front()
            {
                if payload % 100 == 0 {
                    side.forget(key);
                } else {
                    assert!(side.cancel(key));
                }
            }
        }
        side.tick(&mut fired);
    }
    let ns = per_timer_ns(started, (ROLLING_FOR_MS * ROLLING_PER_MS) as usize);
    let due = (ROLLING_FOR_MS - ROLLING_DELAY_MS) * ROLLING_PER_MS / 100;
    assert!(fired.len().abs_diff(due as usize) <= 1, "{} of {due} that stayed have fired", fired.len());
    live.into_iter().for_each(|(_, key)| side.forget(key));
    ns
}

/// One thread adds and cancels at once.
pub fn pairs<S: Side>(count: usize) -> f64 {
    let mut side = S::new();
    let started = Instant::now();
    for payload in 0..count as u64 {
        let key = side.insert(ROLLING_DELAY_MS, payload);
        assert!(side.cancel(black_box(key)));
    }
    per_timer_ns(started, count)
}

/// As [`pairs`], for timers that are not thread-safe, in a mutex: the lock is taken for every call, as in the others.
pub fn locked_pairs<S: Side + Send>(count: usize, threads: usize) -> f64
where
    S::Key: Send,
{
    let side = Mutex::new(S::new());
    on_threads(count, threads, |payload| {
        let key = side.lock().expect("nobody panics").insert(ROLLING_DELAY_MS, payload);
        assert!(side.lock().expect("nobody panics").cancel(black_box(key)));
    })
}

/// Time from the start of the first to the end of the last, for each of `count` pairs, shared out between the threads.
pub fn on_threads(count: usize, threads: usize, pair: impl Fn(u64) + Sync) -> f64 {
    let barrier = std::sync::Barrier::new(threads + 1);
    let started = std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                barrier.wait();
                (0..(count / threads) as u64).for_each(&pair);
            });
        }
        barrier.wait();
        Instant::now()
    });
    per_timer_ns(started, count)
}
