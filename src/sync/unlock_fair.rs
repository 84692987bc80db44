//! An unlock in the middle of long work, after which a waiting thread gets the lock first.

use super::{Mutex, MutexGuard, yield_now};

/// The longest that a thread yields to the threads that wait for the lock: about as long as it takes to wake one. A time and
/// not a number of yields: when all processors are busy, one yield may take a time slice of the system.
#[cfg(not(tickwheel_model))]
const MAX_YIELD_TIME: std::time::Duration = std::time::Duration::from_micros(100);
/// A model has no time.
const MAX_YIELDS: usize = if cfg!(tickwheel_model) { 100 } else { 1000 };

impl<T> Mutex<T> {
    /// Unlocks, and yields to the threads that wait for the lock, within bounds.
    pub(crate) fn unlock_fair(&self, guard: MutexGuard<'_, T>) {
        drop(guard);
        if self.has_waiters() {
            self.yield_to_waiters();
        }
    }

    #[cold]
    fn yield_to_waiters(&self) {
        #[cfg(not(tickwheel_model))]
        let started = std::time::Instant::now();
        for _ in 0..MAX_YIELDS {
            yield_now();
            #[cfg(not(tickwheel_model))]
            if started.elapsed() >= MAX_YIELD_TIME {
                return;
            }
            if !self.has_waiters() {
                return;
            }
        }
    }
}
