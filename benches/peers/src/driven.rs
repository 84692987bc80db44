//! tokio's timers use tokio's clock. To advance it has a cost even when no timer is due: the note of the figure says how
//! much.

use std::time::Instant;

use crate::measured::Measured;
use crate::numbers::MINUTE_MS;
use crate::side::Side;
use crate::works::{self, ROLLING_FOR_MS, per_timer_ns};

pub fn fire<S: Side>(count: usize) -> Measured {
    with_share_of_clock::<S>(works::fire::<S>(count), MINUTE_MS, count)
}

pub fn rolling<S: Side>(count: usize) -> Measured {
    with_share_of_clock::<S>(works::rolling::<S>(count), ROLLING_FOR_MS, count)
}

fn with_share_of_clock<S: Side>(value: f64, ticks: u64, count: usize) -> Measured {
    let (mut side, mut fired) = (S::new(), Vec::new());
    let started = Instant::now();
    (0..ticks).for_each(|_| side.tick(&mut fired));
    let tick_ns = per_timer_ns(started, ticks as usize);
    let share_ns = tick_ns * ticks as f64 / count as f64;
    let note = format!("{share_ns:.0} ns of it go to moving tokio's paused clock: {ticks} steps of {tick_ns:.0} ns");
    Measured { value, note }
}
