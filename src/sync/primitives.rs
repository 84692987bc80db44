//! What the lock and the queue are built from: the flag of `spin`, and the standard library's mutex, condition variable and
//! atomics. With `--cfg tickwheel_loom` it is loom's, which then goes through the interleavings of the lock's own code (see
//! `tests/loom_tests.rs`).

#[cfg(not(tickwheel_loom))]
mod imp {
    use std::time::Duration;

    pub(crate) use spin::mutex::{SpinMutex as Flag, SpinMutexGuard as FlagGuard};
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    pub(crate) use std::sync::{Condvar, Mutex};

    /// The longest that a thread spins before it sleeps: about as long as a step of an advance holds the lock. A time and not a
    /// number of pauses: the length of a pause differs by ten times between processors.
    pub(crate) const MAX_SPIN_TIME: Duration = Duration::from_micros(50);
    /// How long a thread sleeps for the lock in vain before the others step aside: as long as a few steps of an advance.
    pub(crate) const STARVING_AFTER: Duration = Duration::from_millis(1);
}

#[cfg(tickwheel_loom)]
mod imp {
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    use loom::sync::MutexGuard;
    use loom::sync::atomic::fence;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    pub use loom::sync::{Condvar, Mutex};

    /// A model has no time: a waiting thread sleeps at once.
    pub(crate) const MAX_SPIN_TIME: Duration = Duration::ZERO;
    /// In a model a thread is starving after its first sleep.
    pub(crate) const STARVING_AFTER: Duration = Duration::ZERO;

    /// Loom would switch threads here. Before a read of the flag that brings no new interleaving.
    pub(crate) fn spin_loop() {}

    /// The flag of `spin`, made of loom's atomics. It panics if a second thread gets it, as `data` is locked then.
    #[derive(Debug, Default)]
    pub(crate) struct Flag<T> {
        is_taken: AtomicBool,
        data: Mutex<T>,
    }

    #[derive(Debug)]
    pub(crate) struct FlagGuard<'a, T> {
        flag: &'a Flag<T>,
        data: Option<MutexGuard<'a, T>>,
    }

    impl<T> Flag<T> {
        pub(crate) fn new(value: T) -> Self {
            Self { is_taken: AtomicBool::new(false), data: Mutex::new(value) }
        }

        pub(crate) fn try_lock(&self) -> Option<FlagGuard<'_, T>> {
            // Pairs with the fence in `drop`: the read after an unlock sees what was stored before this fence. The real lock
            // has no fence there; its short sleeps make up for that.
            fence(Ordering::SeqCst);
            self.is_taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok()?;
            let data = self.data.try_lock().expect("one thread at a time has the flag");
            Some(FlagGuard { flag: self, data: Some(data) })
        }

        pub(crate) fn is_locked(&self) -> bool {
            self.is_taken.load(Ordering::Relaxed)
        }
    }

    impl<T> Deref for FlagGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.data.as_ref().expect("held until it is dropped")
        }
    }

    impl<T> DerefMut for FlagGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.data.as_mut().expect("held until it is dropped")
        }
    }

    impl<T> Drop for FlagGuard<'_, T> {
        fn drop(&mut self) {
            self.data = None;
            self.flag.is_taken.store(false, Ordering::Release);
            fence(Ordering::SeqCst);
        }
    }
}

pub(crate) use imp::*;
