//! The works that every side does. Each repeats one operation, and returns nanoseconds for one of them.
//!
//! Only the operations are timed: not the filling before, the shuffling and the checks. Payloads are numbers from 0.

use std::collections::VecDeque;
use std::time::Instant;

use crate::numbers::{HOUR_MS, MINUTE_MS, delays_ms, shuffle};
use crate::side::Side;

/// The rolling time-outs last this long. 99 of 100 are cancelled after 10 ms, the other one fires.
pub const ROLLING_FOR_MS: u64 = 40_000;
const ROLLING_DELAY_MS: u64 = 30_000;

pub fn filled<S: Side>(delays_ms: &[u64]) -> (S, Vec<S::Key>) {
    let mut side = S::new();
    let keys = delays_ms.iter().zip(0..).map(|(delay_ms, payload)| side.insert(*delay_ms, payload)).collect();
    assert_eq!(side.len(), delays_ms.len());
    (side, keys)
}

/// As [`filled`], due at random instants within an hour, with the keys shuffled.
pub fn shuffled<S: Side>(count: usize) -> (S, Vec<S::Key>) {
    let (side, mut keys) = filled(&delays_ms(count, HOUR_MS));
    shuffle(&mut keys);
    (side, keys)
}

fn forget_all<S: Side>(side: &mut S, keys: impl IntoIterator<Item = S::Key>) {
    for key in keys {
        side.forget(key);
    }
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
    forget_all(&mut side, keys);
    ns
}

pub fn cancel<S: Side>(count: usize) -> f64 {
    let (mut side, keys) = shuffled::<S>(count);
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
    forget_all(&mut side, keys);
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
    let (mut side, keys) = shuffled::<S>(count);
    let mut again_ms = delays_ms(count, HOUR_MS);
    shuffle(&mut again_ms);
    let mut moved = Vec::with_capacity(count);
    let started = Instant::now();
    for (key, delay_ms) in keys.into_iter().zip(again_ms) {
        moved.push(side.reset(key, delay_ms));
    }
    let ns = per_timer_ns(started, count);
    assert_eq!(side.len(), count);
    forget_all(&mut side, moved);
    ns
}

pub fn rolling<S: Side>(count: usize) -> f64 {
    let per_ms = (count as u64 / ROLLING_FOR_MS).max(1);
    let lag = 10 * per_ms as usize;
    let mut side = S::new();
    let mut live = VecDeque::with_capacity(lag + 1);
    let mut fired = Vec::new();
    let mut payload = 0;
    let started = Instant::now();
    for _ in 0..ROLLING_FOR_MS {
        for _ in 0..per_ms {
            live.push_back((payload, side.insert(ROLLING_DELAY_MS, payload)));
            payload += 1;
            if live.len() > lag
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
    let ns = per_timer_ns(started, payload as usize);
    let due = (ROLLING_FOR_MS - ROLLING_DELAY_MS) * per_ms / 100;
    assert!(fired.len().abs_diff(due as usize) <= 1, "{} of {due} that stayed have fired", fired.len());
    forget_all(&mut side, live.into_iter().map(|(_, key)| key));
    ns
}
