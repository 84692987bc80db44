//! Unlocking in the middle of long work, so that waiting threads get their turn.

use super::{Mutex, MutexGuard, yield_now};

/// For how long a thread gives way to those that wait for a lock that it wants back: about as long as it takes to wake one.
/// In time and not in turns: where all processors are busy, one turn may cost a time slice of the system.
#[cfg(not(tickwheel_model))]
const GIVES_WAY_FOR: std::time::Duration = std::time::Duration::from_micros(100);
/// A model has no time.
const MOST_TURNS: usize = if cfg!(tickwheel_model) { 100 } else { 1000 };

impl<T> Mutex<T> {
    /// Unlocks in the middle of long work, and gives way to the threads that wait for the lock, within bounds.
    pub(crate) fn unlock_fair(&self, guard: MutexGuard<'_, T>) {
        drop(guard);
        if self.is_waited_for() {
            self.give_way();
        }
    }

    #[cold]
    fn give_way(&self) {
        #[cfg(not(tickwheel_model))]
        let started = std::time::Instant::now();
        for _ in 0..MOST_TURNS {
            yield_now();
            #[cfg(not(tickwheel_model))]
            if started.elapsed() >= GIVES_WAY_FOR {
                return;
            }
            if !self.is_waited_for() {
                return;
            }
        }
    }
}
