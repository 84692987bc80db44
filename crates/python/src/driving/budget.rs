//! How long callbacks may run before other threads get the GIL (T8).

use std::time::{Duration, Instant};

/// After this many callbacks, or this long, other threads get the GIL.
const MOST_CALLBACKS: u32 = 64;
const LONGEST: Duration = Duration::from_millis(1);

/// How many callbacks may still run, and until when. It reads a clock after each of them.
pub(crate) struct ClockBudget {
    callbacks: u32,
    until: Instant,
}

impl ClockBudget {
    pub(crate) fn new() -> Self {
        Self { callbacks: MOST_CALLBACKS, until: Instant::now() + LONGEST }
    }

    /// Counts a callback; `false` if it was the last one.
    pub(crate) fn count_callback(&mut self) -> bool {
        self.callbacks = self.callbacks.saturating_sub(1);
        self.callbacks > 0 && Instant::now() < self.until
    }
}

/// As [`ClockBudget`], without reading a clock: it uses the times that the claims have read.
#[derive(Default)]
pub(crate) struct ClaimBudget {
    callbacks: u32,
    /// The time of the first claim.
    began_us: Option<u64>,
}

impl ClaimBudget {
    /// Counts a claim made at that time; `false` if other threads should get the GIL before the next one.
    pub(crate) fn count_claim(&mut self, claimed_us: u64) -> bool {
        self.callbacks += 1;
        let began_us = *self.began_us.get_or_insert(claimed_us);
        self.callbacks < MOST_CALLBACKS && u128::from(claimed_us - began_us) < LONGEST.as_micros()
    }
}
