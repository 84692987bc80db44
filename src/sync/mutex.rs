//! The lock of the timer: a flag that is set by one atomic step and cleared by a plain store.
//!
//! A lock that can put threads to sleep normally asks, by a second atomic step as it is unlocked, whether a thread sleeps.
//! That step costs as much as a whole add, so here it is left out: the unlocking thread stores the flag, then looks at
//! [`Mutex::wants_wake_up`]. The processor may do the look before the store can be seen. Then a thread that has just found
//! the lock taken goes to sleep although it was unlocked; it looks again by itself, [`LONGEST_NAP`] later. So exclusion
//! rests on the flag alone, no sleep depends on a wake-up, and a wake-up that came too early costs a nap.
//!
//! One wake-up at a time is on its way: the thread that sends it clears `wants_wake_up`, and the woken one sets it again
//! if a thread still sleeps. So while a sleeping thread is being woken, unlocking costs no system call.
//!
//! No thread naps for a lock that is held as briefly as an add or a cancel hold it: a waiting thread first spins.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::primitives::{self, AtomicBool, AtomicU32, Flag, FlagGuard, Ordering, SPINS_FOR, spin_loop};

/// The first round of spinning, in pauses of the processor; each later one is twice as long, up to the longest. The first
/// one is long already, some fifty times as long as an add holds the lock: two threads that add all the time then take
/// turns of many adds each, and the timer stays in one processor's cache meanwhile.
const SHORTEST_SPIN: u32 = 32;
const LONGEST_SPIN: u32 = 256;
/// How long a waiting thread sleeps at the longest before it looks again.
const LONGEST_NAP: Duration = Duration::from_micros(200);

#[derive(Debug, Default)]
pub(crate) struct Mutex<T> {
    flag: Flag<T>,
    /// Threads sleep, and no wake-up is on its way. Written under `sleep_lock`, read without it as the lock is unlocked: the
    /// sleeping thread's store comes before its last try, the unlocking thread's look comes after it cleared the flag.
    wants_wake_up: AtomicBool,
    /// Threads that sleep; changed under `sleep_lock`.
    sleeping: AtomicU32,
    /// Threads that spin, from their second round on.
    spinning: AtomicU32,
    /// A thread holds it from its last try until it sleeps.
    sleep_lock: primitives::Mutex<()>,
    wake: primitives::Condvar,
    /// Wake-ups that were sent.
    #[cfg(test)]
    wake_ups: std::sync::atomic::AtomicU64,
}

/// Lets the lock go when it is dropped.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    /// `None` only while it is dropped.
    held: Option<FlagGuard<'a, T>>,
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            flag: Flag::new(value),
            wants_wake_up: AtomicBool::new(false),
            sleeping: AtomicU32::new(0),
            spinning: AtomicU32::new(0),
            sleep_lock: primitives::Mutex::default(),
            wake: primitives::Condvar::default(),
            #[cfg(test)]
            wake_ups: std::sync::atomic::AtomicU64::default(),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.try_lock().unwrap_or_else(|| self.wait())
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.flag.try_lock().map(|held| MutexGuard { held: Some(held), mutex: self })
    }

    /// Whether a thread wants it, asleep or not. Only a hint.
    pub(super) fn is_waited_for(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed) > 0 || self.spinning.load(Ordering::Relaxed) > 0
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        self.spin(SHORTEST_SPIN).unwrap_or_else(|| self.wait_longer())
    }

    /// Lets some time pass, and looks whether the lock is free now.
    fn spin(&self, pauses: u32) -> Option<MutexGuard<'_, T>> {
        for _ in 0..pauses {
            spin_loop();
        }
        // To look is cheaper than to try, which takes the flag away from the processor that holds it.
        if self.flag.is_locked() { None } else { self.try_lock() }
    }

    fn wait_longer(&self) -> MutexGuard<'_, T> {
        self.spinning.fetch_add(1, Ordering::Relaxed);
        let (started, mut pauses, mut guard) = (Instant::now(), SHORTEST_SPIN, None);
        while guard.is_none() && started.elapsed() < SPINS_FOR {
            pauses = LONGEST_SPIN.min(2 * pauses);
            guard = self.spin(pauses);
        }
        self.spinning.fetch_sub(1, Ordering::Relaxed);
        guard.unwrap_or_else(|| self.sleep())
    }

    fn sleep(&self) -> MutexGuard<'_, T> {
        let mut sleep_lock = self.sleep_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleeping.fetch_add(1, Ordering::Relaxed);
        let guard = loop {
            // Also where this thread was woken: if it gets the lock, another may need the next wake-up.
            self.wants_wake_up.store(true, Ordering::SeqCst);
            if let Some(guard) = self.try_lock() {
                break guard;
            }
            let napped = self.wake.wait_timeout(sleep_lock, LONGEST_NAP);
            sleep_lock = napped.unwrap_or_else(PoisonError::into_inner).0;
        };
        if self.sleeping.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.wants_wake_up.store(false, Ordering::Relaxed);
        }
        guard
    }

    /// As time does.
    #[cfg(all(test, tickwheel_loom))]
    pub(super) fn end_naps(&self) {
        self.wake.notify_all();
    }

    #[cold]
    fn wake_one(&self) {
        // A thread between its last try and its sleep holds it.
        let sleep_lock = self.sleep_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let wakes = self.wants_wake_up.load(Ordering::Relaxed);
        self.wants_wake_up.store(false, Ordering::Relaxed);
        drop(sleep_lock);
        if wakes {
            #[cfg(test)]
            self.wake_ups.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.wake.notify_one();
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.held.as_ref().expect("held until it is dropped")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("held until it is dropped")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.held = None;
        if self.mutex.wants_wake_up.load(Ordering::Relaxed) {
            self.mutex.wake_one();
        }
    }
}

/// Where threads wait for what a [`Mutex`] guards. It counts its notifications: a waiting thread has read the count before
/// it unlocks, so none is lost.
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

    /// Waits for a notification, at the longest until `deadline`. The lock is let go while it waits.
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>, deadline: Option<Instant>) -> MutexGuard<'a, T> {
        let mutex = guard.mutex;
        let mut notified = self.notified.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *notified;
        drop(guard);
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
    use std::thread::{scope, yield_now};

    use super::*;

    #[test]
    fn one_thread_at_a_time_has_it() {
        let mutex = Mutex::new((0_u64, 0_u64));
        scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50_000 {
                        let mut pair = mutex.lock();
                        pair.0 += 1;
                        assert_eq!(pair.0, pair.1 + 1, "another thread is in the middle of it");
                        pair.1 += 1;
                    }
                });
            }
        });
        assert_eq!(*mutex.lock(), (200_000, 200_000));
    }

    #[test]
    fn a_thread_that_sleeps_for_it_is_woken() {
        let mutex = Mutex::new(0);
        let guard = mutex.lock();
        scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| *mutex.lock() += 1);
            }
            while mutex.sleeping.load(Ordering::Relaxed) < 3 {
                assert!(mutex.try_lock().is_none());
                yield_now();
            }
            drop(guard);
        });
        assert_eq!((*mutex.lock(), mutex.is_waited_for()), (3, false));
    }

    #[test]
    fn while_a_woken_thread_is_on_its_way_no_unlock_sends_another_wake_up() {
        let mutex = Mutex::new(());
        // As a thread leaves it that has just gone to sleep.
        mutex.sleeping.store(1, Ordering::Relaxed);
        mutex.wants_wake_up.store(true, Ordering::Relaxed);
        (0..1000).for_each(|_| drop(mutex.lock()));
        assert_eq!(mutex.wake_ups.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_thread_that_gives_way_sees_those_that_spin_and_those_that_sleep() {
        let mutex = Mutex::new(0);
        let (mut spun, mut slept) = (false, false);
        scope(|scope| {
            for turn in 0..1000 {
                let guard = mutex.lock();
                let waiter = scope.spawn(|| *mutex.lock() += 1);
                let sleeps = turn % 10 == 0;
                while !mutex.is_waited_for() || (sleeps && mutex.sleeping.load(Ordering::Relaxed) == 0) {
                    yield_now();
                }
                spun |= mutex.spinning.load(Ordering::Relaxed) > 0;
                slept |= mutex.sleeping.load(Ordering::Relaxed) > 0;
                drop(guard);
                while mutex.is_waited_for() {
                    yield_now();
                }
                waiter.join().unwrap();
                assert_eq!(*mutex.lock(), turn + 1);
            }
        });
        assert!(slept);
        // With one processor no thread can look while another one spins.
        assert!(spun || std::thread::available_parallelism().is_ok_and(|count| count.get() == 1));
    }

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
