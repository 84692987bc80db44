//! How long single calls take: a mean hides one in a hundred that allocates, or copies all there is.

use std::time::Instant;

use crate::numbers::{HOUR_MS, delays_ms};
use crate::side::Side;
use crate::works::shuffled;

/// Nanoseconds that `PERMILLE` of all inserts stay below, with one reading of the clock in each.
pub fn insert<S: Side, const PERMILLE: usize>(count: usize) -> f64 {
    let mut side = S::new();
    let inserts = delays_ms(count, HOUR_MS).into_iter().zip(0..);
    let (keys, ns) = called::<PERMILLE, _, _>(inserts, |(delay_ms, payload)| side.insert(delay_ms, payload));
    assert_eq!(side.len(), count);
    for key in keys {
        side.forget(key);
    }
    ns
}

/// As [`insert`], for cancels in random order.
pub fn cancel<S: Side, const PERMILLE: usize>(count: usize) -> f64 {
    let (mut side, keys) = shuffled::<S>(count);
    let (cancelled, ns) = called::<PERMILLE, _, _>(keys, |key| side.cancel(key));
    assert!(cancelled.into_iter().all(|was_pending| was_pending));
    ns
}

/// What the calls return, and the nanoseconds.
fn called<const PERMILLE: usize, A, R>(
    arguments: impl IntoIterator<Item = A>,
    mut call: impl FnMut(A) -> R,
) -> (Vec<R>, f64) {
    let (mut returned, mut took) = (Vec::new(), Vec::new());
    for argument in arguments {
        let started = Instant::now();
        let value = call(argument);
        took.push(started.elapsed());
        returned.push(value);
    }
    took.sort_unstable();
    (returned, took[(took.len() - 1) * PERMILLE / 1000].as_nanos() as f64)
}
