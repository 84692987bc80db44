//! The locks, threads and channel of this crate, or the model checker's in their place.
//!
//! Built with `--cfg tickwheel_model`, every one of them is shuttle's, which tries out interleavings (see
//! `docs/concurrency.md`). Nothing outside this file may name `parking_lot`, `crossbeam_channel` or `std::thread`.

#[cfg(not(tickwheel_model))]
mod real {
    use std::time::Instant;

    pub(crate) use crossbeam_channel::{Receiver, Sender, unbounded};
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread::{JoinHandle, ThreadId, current as current_thread};

    /// Waits for a notification, at the longest until `deadline`. The lock is let go while it waits.
    pub(crate) fn wait<'a, T>(
        condvar: &Condvar,
        mut guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, T> {
        match deadline {
            Some(deadline) => {
                condvar.wait_until(&mut guard, deadline);
            }
            None => condvar.wait(&mut guard),
        }
        guard
    }

    /// Lets a lock go in the middle of long work: whoever waits for it gets it first.
    pub(crate) fn unlock_fair<T>(guard: MutexGuard<'_, T>) {
        MutexGuard::unlock_fair(guard);
    }

    pub(crate) fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(name).spawn(body)
    }
}

#[cfg(tickwheel_model)]
mod model {
    use std::sync::PoisonError;
    use std::time::Instant;

    pub(crate) use shuttle::sync::MutexGuard;
    pub(crate) use shuttle::sync::mpsc::{Receiver, Sender, channel as unbounded};
    pub(crate) use shuttle::thread::{JoinHandle, ThreadId, current as current_thread};

    /// A model has no time: it waits until it is notified, so a lost wake-up shows as a deadlock.
    pub(crate) fn wait<'a, T>(
        condvar: &Condvar,
        guard: MutexGuard<'a, T>,
        _deadline: Option<Instant>,
    ) -> MutexGuard<'a, T> {
        condvar.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn unlock_fair<T>(guard: MutexGuard<'_, T>) {
        drop(guard);
    }

    pub(crate) fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
        shuttle::thread::Builder::new().name(name).spawn(body)
    }

    /// As `parking_lot`'s it knows no poison: after a panic it is the first report that counts.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

#[cfg(tickwheel_model)]
pub(crate) use model::*;
#[cfg(not(tickwheel_model))]
pub(crate) use real::*;
