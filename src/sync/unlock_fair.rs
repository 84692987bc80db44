//! An unlock in the middle of long work, after which a waiting thread gets the lock first.

use super::{Mutex, MutexGuard, yield_now};

/// The longest that a thread yields to the threads that wait for the lock: about as long as it takes to wake one. A time and
/// not a number of yields: when all processors are busy, one yield may take a time slice of the system.
#[cfg(not(tickwheel_model))]
const MAX_YIELD_TIME: std::time::Duration = std::time::Duration::from_micros(100);
/// A model has no time. In loom's, which switches threads at each atomic, a yield brings no new interleaving.
const MAX_YIELDS: usize = if cfg!(tickwheel_loom) {
    0
} else if cfg!(tickwheel_model) {
    100
} else {
    1000
};

impl<T> Mutex<T> {
    /// Unlocks, and yields to the threads that wait for the lock, within bounds.
    pub(crate) fn unlock_fair(&self, guard: MutexGuard<'_, T>) {
        drop(guard);
        if self.has_waiters() {
            yield_while(|| self.has_waiters());
        }
    }
}

/// Yields to other threads as long as the condition holds, within bounds.
#[cold]
pub(super) fn yield_while(condition: impl Fn() -> bool) {
    #[cfg(not(tickwheel_model))]
    let started = std::time::Instant::now();
    for _ in 0..MAX_YIELDS {
        yield_now();
        #[cfg(not(tickwheel_model))]
        if started.elapsed() >= MAX_YIELD_TIME {
            return;
        }
        if !condition() {
            return;
        }
    }
}
