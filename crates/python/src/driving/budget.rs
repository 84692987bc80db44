//! How long callbacks may run before other threads get the GIL (T8).

/// After this many callbacks, or this long, other threads get the GIL.
const MOST_CALLBACKS: u32 = 64;
const LONGEST_US: u64 = 1_000;

/// How many callbacks have run, and since when, on the timer's clock.
#[derive(Default)]
pub(crate) struct Budget {
    callbacks: u32,
    began_us: Option<u64>,
}

impl Budget {
    pub(crate) fn from(now_us: u64) -> Self {
        Self { callbacks: 0, began_us: Some(now_us) }
    }

    /// Counts a callback; `false` if other threads should get the GIL before the next one. `now_us` may be the time that its
    /// claim has read, which spares a look at the clock.
    pub(crate) fn count(&mut self, now_us: u64) -> bool {
        self.callbacks += 1;
        let began_us = *self.began_us.get_or_insert(now_us);
        self.callbacks < MOST_CALLBACKS && now_us - began_us < LONGEST_US
    }
}
