//! The condition variable of the timer's lock.

use std::sync::PoisonError;
use std::time::Instant;

use super::mutex::MutexGuard;
use super::primitives;

/// Threads wait here for a change of what a [`super::Mutex`] guards.
///
/// It counts its notifications. A waiting thread reads the count before it unlocks the mutex, so it sees a notification that
/// comes between the unlock and its sleep.
#[derive(Debug, Default)]
pub(crate) struct Condvar {
    notified: primitives::Mutex<u64>,
    wake: primitives::Condvar,
}

impl Condvar {
    pub(crate) fn notify_all(&self) {
        *self.notified.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.wake.notify_all();
    }

    /// Unlocks, waits for a notification, at most until `deadline`, and locks again.
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>, deadline: Option<Instant>) -> MutexGuard<'a, T> {
        let mutex = guard.mutex;
        let mut notified = self.notified.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *notified;
        guard.unlock_before_sleep();
        while *notified == before {
            notified = match deadline {
                None => self.wake.wait(notified).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    self.wake.wait_timeout(notified, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        drop(notified);
        mutex.lock()
    }
}

#[cfg(all(test, not(tickwheel_loom)))]
mod tests {
    use std::thread::scope;
    use std::time::Duration;

    use super::super::Mutex;
    use super::*;

    #[test]
    fn a_notification_reaches_the_thread_that_waits_for_it() {
        let (mutex, condvar) = (Mutex::new(0), Condvar::default());
        scope(|scope| {
            scope.spawn(|| {
                for turn in 0..10_000 {
                    let mut guard = mutex.lock();
                    while *guard == turn {
                        guard = condvar.wait(guard, None);
                    }
                }
            });
            for turn in 1..=10_000 {
                *mutex.lock() = turn;
                condvar.notify_all();
            }
        });
    }

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let (mutex, condvar) = (Mutex::new(()), Condvar::default());
        let deadline = Instant::now() + Duration::from_millis(1);
        drop(condvar.wait(mutex.lock(), Some(deadline)));
        assert!(Instant::now() >= deadline);
        assert!(mutex.try_lock().is_some());
    }
}
