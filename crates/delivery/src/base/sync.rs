//! The locks of this crate: the standard library's, with a fixed order in which a thread may take them.
//!
//! A thread may take a lock with a [`Rank`] only while it holds locks of lower ranks. Debug builds check this order,
//! so each test of a running engine checks it too.
//!
//! A panic under a lock does not close the lock. A user of the guarded data asks [`Mutex::is_poisoned`], because the
//! data may be half changed. On Linux a lock is one word for the kernel's futex. The process has no table of sleeping
//! threads, so a forked child inherits none.

#![expect(clippy::disallowed_types, reason = "they are wrapped here")]

use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The locks of a running engine, in the order in which a thread may take them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Held only for a moment, alone or inside any other lock. The order is not checked.
    #[default]
    None,
    /// The writer: the store, and the memory that belongs to it.
    Writer,
    /// The dispatcher: messages due soon.
    Dispatcher,
    /// The queue of tickets and outcomes for the writer.
    Queue,
    /// The sending threads.
    Senders,
    /// Events that the teller thread reports to the program.
    Telling,
}

/// A lock. A thread that finds it locked sleeps in the kernel.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T> {
    inner: std::sync::Mutex<T>,
    rank: Rank,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self::ranked(Rank::None, value)
    }

    pub(crate) fn ranked(rank: Rank, value: T) -> Self {
        Self { inner: std::sync::Mutex::new(value), rank }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let held = HeldRank::new(self.rank);
        MutexGuard { inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner), held }
    }

    /// `None`: another thread has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = HeldRank::new(self.rank);
        match self.inner.try_lock() {
            Ok(inner) => Some(MutexGuard { inner, held }),
            Err(TryLockError::Poisoned(inner)) => Some(MutexGuard { inner: inner.into_inner(), held }),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether a thread panicked while it had the lock.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }
}

/// Checks in debug builds that this thread holds no lock with a rank. Used before calls that may take long.
pub(crate) fn assert_none_is_held() {
    #[cfg(debug_assertions)]
    checked::assert_none_is_held();
}

/// Unlocks the mutex when dropped.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    inner: std::sync::MutexGuard<'a, T>,
    held: HeldRank,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// Threads wait here until the value in a [`Mutex`] changes. Each wait may return early.
#[derive(Debug, Default)]
pub(crate) struct Condvar(std::sync::Condvar);

impl Condvar {
    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Unlocks, waits for a notification, and locks again.
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let MutexGuard { inner, held } = guard;
        MutexGuard { inner: self.0.wait(inner).unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Waits while this is so, but only until `end`. Then the caller looks again at what it waited for.
    pub(crate) fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        end: Option<Instant>,
        mut is_so: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        while is_so(&mut guard) {
            guard = match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => self.wait(guard),
                Some(Duration::ZERO) => break,
                Some(left) => self.wait_timeout(guard, left),
            };
        }
        guard
    }

    /// Like [`Condvar::wait`], but waits at most `timeout`.
    pub(crate) fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, timeout: Duration) -> MutexGuard<'a, T> {
        let MutexGuard { inner, held } = guard;
        MutexGuard { inner: self.0.wait_timeout(inner, timeout).unwrap_or_else(PoisonError::into_inner).0, held }
    }
}

/// Notes that this thread holds a lock of this rank, or is about to.
#[derive(Debug)]
struct HeldRank(#[cfg(debug_assertions)] Rank);

#[cfg(not(debug_assertions))]
impl HeldRank {
    fn new(_: Rank) -> Self {
        Self()
    }
}

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;

    use super::{HeldRank, Rank};

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn assert_none_is_held() {
        HELD.with_borrow(|held| assert!(held.is_empty(), "{held:?} are locked"));
    }

    impl HeldRank {
        pub(super) fn new(rank: Rank) -> Self {
            if rank != Rank::None {
                HELD.with_borrow_mut(|held| {
                    let highest = held.iter().max().copied();
                    assert!(highest < Some(rank), "{rank:?} is locked while {held:?} are: their order is that of Rank");
                    held.push(rank);
                });
            }
            Self(rank)
        }
    }

    impl Drop for HeldRank {
        fn drop(&mut self) {
            if self.0 != Rank::None {
                // At the end of a thread the table may be gone. Then the order is not checked any more.
                let _ = HELD.try_with(|held| {
                    let mut held = held.borrow_mut();
                    if let Some(place) = held.iter().rposition(|rank| *rank == self.0) {
                        held.remove(place);
                    }
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "Writer is locked while [Dispatcher] are")]
    fn a_lock_of_a_lower_rank_is_not_taken_after_one_of_a_higher() {
        let (writer, dispatcher) = (Mutex::ranked(Rank::Writer, ()), Mutex::ranked(Rank::Dispatcher, ()));
        drop((writer.lock(), dispatcher.lock()));
        let _dispatcher = dispatcher.lock();
        let _writer = writer.lock();
    }

    #[test]
    fn locks_may_be_let_go_in_any_order_and_waited_with() {
        let (writer, dispatcher) = (Mutex::ranked(Rank::Writer, 1), Mutex::ranked(Rank::Dispatcher, 2));
        let outer = writer.lock();
        let inner = dispatcher.lock();
        drop(outer);
        let inner = Condvar::default().wait_timeout(inner, Duration::from_millis(1));
        assert_eq!(*inner, 2);
        drop(inner);
        assert_eq!(*writer.lock() + *dispatcher.lock(), 3);
    }
}
