//! Numbers without a pattern, the same in every run: delays, and the order of cancels.

use fastrand::Rng;

pub const HOUR_MS: u64 = 3_600_000;
pub const MINUTE_MS: u64 = 60_000;

/// Delays from 1 ms up to `within_ms`.
pub fn delays_ms(count: usize, within_ms: u64) -> Vec<u64> {
    let mut random = Rng::with_seed(count as u64);
    (0..count).map(|_| random.u64(1..=within_ms)).collect()
}

pub fn shuffle<T>(items: &mut [T]) {
    Rng::with_seed(7).shuffle(items);
}
