//! The lock of the timer: a flag that one atomic step sets and a plain store clears.
//!
//! A lock on which threads can sleep normally needs a second atomic step to unlock, which tells whether a thread
//! sleeps. The step costs as much as a whole add, so this lock leaves it out. The unlocking thread clears the flag,
//! then reads [`Mutex::needs_wake_up`]. The processor may do that read before other threads can see the store. Then a
//! thread that has just found the lock taken goes to sleep although the lock is free; it looks again after
//! [`MAX_SLEEP`]. So exclusion needs the flag alone, progress does not need a wake-up, and a missed wake-up costs one
//! such sleep.
//!
//! At most one wake-up is under way: the thread that sends it clears `needs_wake_up`, and the woken thread sets it again if
//! another thread still sleeps. So while a thread is being woken, an unlock makes no system call.
//!
//! A waiting thread spins first, so no thread sleeps for a lock that is held as briefly as for an add or a cancel.
//!
//! A thread that has slept for the lock in vain for [`STARVING_AFTER`] is starving. As long as there is one, `needs_wake_up`
//! stays set, and each thread that unlocks wakes the starving thread and steps aside, within bounds. The unlock in the usual
//! case has no step more.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::primitives::{
    self, AtomicBool, AtomicU32, Flag, FlagGuard, MAX_SPIN_TIME, Ordering, STARVING_AFTER, spin_loop,
};
use super::unlock_fair::yield_while;

/// The first round of spinning, in pauses of the processor; each later round is twice as long, up to the maximum. The first
/// round is long, some fifty times as long as an add holds the lock: two threads that add all the time then take turns of
/// many adds each, and during a turn the timer stays in one processor's cache.
const FIRST_SPIN_PAUSES: u32 = 32;
const MAX_SPIN_PAUSES: u32 = 256;
/// The longest that a waiting thread sleeps before it looks again.
const MAX_SLEEP: Duration = Duration::from_micros(200);

/// The lock of the timer.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    flag: Flag<T>,
    /// A thread sleeps, and no wake-up is under way. Written under `sleep_lock`. The unlocking thread reads it without that lock,
    /// after it cleared the flag; the sleeping thread writes it before its last try.
    needs_wake_up: AtomicBool,
    /// Changed under `sleep_lock`.
    sleeping_threads: AtomicU32,
    /// How many sleeping threads are starving. Changed under `sleep_lock`.
    starving_threads: AtomicU32,
    /// The threads in their second or a later round of spinning.
    spinning_threads: AtomicU32,
    /// A thread holds it from its last try of the lock until it sleeps.
    sleep_lock: primitives::Mutex<()>,
    wake: primitives::Condvar,
    /// The starving threads sleep here.
    wake_starving: primitives::Condvar,
    /// The number of wake-ups sent.
    #[cfg(test)]
    wake_ups: std::sync::atomic::AtomicU64,
}

/// Unlocks when it is dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    /// `None` only inside of `drop`.
    held: Option<FlagGuard<'a, T>>,
    pub(super) mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            flag: Flag::new(value),
            needs_wake_up: AtomicBool::new(false),
            sleeping_threads: AtomicU32::new(0),
            starving_threads: AtomicU32::new(0),
            spinning_threads: AtomicU32::new(0),
            sleep_lock: primitives::Mutex::default(),
            wake: primitives::Condvar::default(),
            wake_starving: primitives::Condvar::default(),
            #[cfg(test)]
            wake_ups: std::sync::atomic::AtomicU64::default(),
        }
    }

    /// Waits until the lock is free, and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.try_lock().unwrap_or_else(|| self.wait())
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.flag.try_lock().map(|held| MutexGuard { held: Some(held), mutex: self })
    }

    /// Whether a thread waits for the lock, by a sleep or by spinning. Only a hint.
    pub(super) fn has_waiters(&self) -> bool {
        self.sleeping_threads.load(Ordering::Relaxed) > 0 || self.spinning_threads.load(Ordering::Relaxed) > 0
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        self.spin(FIRST_SPIN_PAUSES).unwrap_or_else(|| self.wait_longer())
    }

    /// Pauses, then takes the lock if it is free.
    fn spin(&self, pauses: u32) -> Option<MutexGuard<'_, T>> {
        for _ in 0..pauses {
            spin_loop();
        }
        // A read is cheaper than a try, which takes the cache line from the processor that holds the lock.
        if self.flag.is_locked() { None } else { self.try_lock() }
    }

    fn wait_longer(&self) -> MutexGuard<'_, T> {
        self.spinning_threads.fetch_add(1, Ordering::Relaxed);
        let (started, mut pauses, mut guard) = (Instant::now(), FIRST_SPIN_PAUSES, None);
        while guard.is_none() && started.elapsed() < MAX_SPIN_TIME {
            pauses = MAX_SPIN_PAUSES.min(2 * pauses);
            guard = self.spin(pauses);
        }
        self.spinning_threads.fetch_sub(1, Ordering::Relaxed);
        guard.unwrap_or_else(|| self.sleep())
    }

    fn sleep(&self) -> MutexGuard<'_, T> {
        let mut sleep_lock = self.sleep_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleeping_threads.fetch_add(1, Ordering::Relaxed);
        let (started, mut is_starving) = (Instant::now(), false);
        let guard = loop {
            // Also after a wake-up: if this thread gets the lock now, another thread may need the next wake-up.
            self.needs_wake_up.store(true, Ordering::SeqCst);
            if let Some(guard) = self.try_lock() {
                break guard;
            }
            let wake = if is_starving { &self.wake_starving } else { &self.wake };
            let slept = wake.wait_timeout(sleep_lock, MAX_SLEEP);
            sleep_lock = slept.unwrap_or_else(PoisonError::into_inner).0;
            if !is_starving && started.elapsed() >= STARVING_AFTER {
                is_starving = true;
                self.starving_threads.fetch_add(1, Ordering::Relaxed);
            }
        };
        if is_starving {
            self.starving_threads.fetch_sub(1, Ordering::Relaxed);
        }
        if self.sleeping_threads.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.needs_wake_up.store(false, Ordering::Relaxed);
        }
        guard
    }

    /// Ends all sleeps, as the time does.
    #[cfg(all(test, tickwheel_loom))]
    pub(super) fn end_sleeps(&self) {
        self.wake.notify_all();
        self.wake_starving.notify_all();
    }

    /// Wakes a thread, a starving one first. Returns how many are starving.
    #[cold]
    fn wake_one(&self) -> u32 {
        // Taken after a thread between its last try and its sleep has gone to sleep.
        let sleep_lock = self.sleep_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let wakes = self.needs_wake_up.load(Ordering::Relaxed);
        let starving = self.starving_threads.load(Ordering::Relaxed);
        // While a thread is starving, the next thread that unlocks must step aside too.
        self.needs_wake_up.store(starving > 0, Ordering::Relaxed);
        drop(sleep_lock);
        if wakes {
            #[cfg(test)]
            self.wake_ups.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if starving > 0 { &self.wake_starving } else { &self.wake }.notify_one();
        }
        starving
    }

    #[cold]
    fn wake_one_and_step_aside(&self) {
        let starving = self.wake_one();
        if starving > 0 {
            yield_while(|| self.starving_threads.load(Ordering::Relaxed) >= starving);
        }
    }
}

impl<T> MutexGuard<'_, T> {
    /// Unlocks, for a thread that is about to sleep: it needs not step aside.
    pub(super) fn unlock_before_sleep(mut self) {
        self.held = None;
        if self.mutex.needs_wake_up.load(Ordering::Relaxed) {
            self.mutex.wake_one();
        }
        std::mem::forget(self); // its `drop` would step aside
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
        if self.mutex.needs_wake_up.load(Ordering::Relaxed) {
            self.mutex.wake_one_and_step_aside();
        }
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
            while mutex.sleeping_threads.load(Ordering::Relaxed) < 3 {
                assert!(mutex.try_lock().is_none());
                yield_now();
            }
            drop(guard);
        });
        assert_eq!((*mutex.lock(), mutex.has_waiters()), (3, false));
    }

    #[test]
    fn while_a_woken_thread_is_on_its_way_no_unlock_sends_another_wake_up() {
        let mutex = Mutex::new(());
        // The state while one thread sleeps.
        mutex.sleeping_threads.store(1, Ordering::Relaxed);
        mutex.needs_wake_up.store(true, Ordering::Relaxed);
        (0..1000).for_each(|_| drop(mutex.lock()));
        assert_eq!(mutex.wake_ups.load(Ordering::Relaxed), 1);
    }

    /// Counted in turns, as the time depends on the machine. A few rounds may be disturbed by other work.
    #[test]
    fn a_starving_thread_gets_the_lock_though_another_one_takes_it_again_and_again() {
        let mut turns: Vec<_> = (0..21).map(|_| turns_before_a_starving_thread()).collect();
        turns.sort_unstable();
        assert!(turns[17] <= 10, "{turns:?}");
    }

    fn turns_before_a_starving_thread() -> u32 {
        let (mutex, mut turns) = (Mutex::new(false), 0);
        scope(|scope| {
            let guard = mutex.lock();
            scope.spawn(|| *mutex.lock() = true);
            while mutex.starving_threads.load(Ordering::Relaxed) == 0 {
                yield_now();
            }
            drop(guard);
            while !*mutex.lock() {
                turns += 1;
            }
        });
        assert_eq!((mutex.starving_threads.load(Ordering::Relaxed), mutex.has_waiters()), (0, false));
        turns
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
                while !mutex.has_waiters() || (sleeps && mutex.sleeping_threads.load(Ordering::Relaxed) == 0) {
                    yield_now();
                }
                spun |= mutex.spinning_threads.load(Ordering::Relaxed) > 0;
                slept |= mutex.sleeping_threads.load(Ordering::Relaxed) > 0;
                drop(guard);
                while mutex.has_waiters() {
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
}
