//! The purgatory as Rust programs use it, on a [`SystemTimer`].

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use super::super::{Few, Life, Purgatory, Refused};
use super::host::{Failure, Home, Native, Rust};
use crate::error::Error;
use crate::system::SystemTimer;

/// Something that waits for an event, or for its deadline.
///
/// None of its methods runs under a lock of the purgatory; all may call back into it, on any key. One that panics
/// reports itself through the panic hook, and the next one runs. After Kafka's `DelayedOperation`.
pub trait DelayedOperation: Sized + Send + Sync + 'static {
    /// What it waits for; equal keys are one key. Its `Eq` runs under a lock of the purgatory, so it must not call back.
    type Key: Eq + Hash + Send + 'static;

    /// Checks whether what it waits for is there, and if so returns `this.force_complete()`.
    fn try_complete(this: &Operation<Self>) -> bool;

    /// Called once, when it is complete, in time or not.
    fn on_complete(&self);

    /// Called after `on_complete` when its time ran out.
    fn on_expiration(&self) {}

    /// Runs `attempt` under the operation's own lock, if it has one; `false` if another thread holds that.
    ///
    /// It must not wait for the lock. A thread that holds it already must be let in: use a re-entrant one.
    fn locked(&self, attempt: &mut dyn FnMut()) -> bool {
        attempt();
        true
    }
}

/// An operation that may be watched: shared, and completed once.
pub struct Operation<O: DelayedOperation>(pub(super) Arc<Inner<O>>);

pub(super) struct Inner<O: DelayedOperation> {
    pub(super) life: Life<Native<O>>,
    pub(super) delay: Duration,
    pub(super) operation: O,
}

impl<O: DelayedOperation> Operation<O> {
    /// An operation that expires `delay` after it was watched.
    pub fn new(delay: Duration, operation: O) -> Self {
        Self(Arc::new(Inner { life: Life::new(), delay, operation }))
    }

    /// Completes it, unless it is complete: `true` for exactly one caller ever (P1).
    ///
    /// It is taken off the timer and off every key before this returns, and `on_complete` has run; inside a
    /// `try_complete` that runs right after it.
    #[expect(clippy::must_use_candidate, reason = "often called for its effect alone")]
    pub fn force_complete(&self) -> bool {
        super::super::force_complete(&Rust, self)
    }

    /// Whether it is complete, in time or not.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.0.life.is_completed()
    }

    /// Whether it is complete because its time ran out. `on_complete` may ask already.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.0.life.is_expired()
    }

    /// Takes it off the timer and off every key: `true` if it waited, and nobody but the caller will complete it.
    #[expect(clippy::must_use_candidate, reason = "often called for its effect alone")]
    pub fn cancel(&self) -> bool {
        super::super::cancel(&Rust, self)
    }
}

impl<O: DelayedOperation> Clone for Operation<O> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<O: DelayedOperation> Deref for Operation<O> {
    type Target = O;

    fn deref(&self) -> &O {
        &self.0.operation
    }
}

impl<O: DelayedOperation> fmt::Debug for Operation<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation").field("is_completed", &self.is_completed()).finish_non_exhaustive()
    }
}

/// Where operations wait for an event on a key, or for their deadline.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tickwheel::{Config, DelayedOperation, DelayedOperationPurgatory, Operation, SystemTimer};
///
/// /// A write that is done once three replicas have it.
/// struct Produce(AtomicU32);
///
/// impl DelayedOperation for Produce {
///     type Key = &'static str;
///     fn try_complete(this: &Operation<Self>) -> bool {
///         this.0.load(Ordering::Acquire) >= 3 && this.force_complete()
///     }
///     fn on_complete(&self) {}
/// }
///
/// let timer = Arc::new(SystemTimer::new("produce", &Config::default())?);
/// let purgatory = DelayedOperationPurgatory::new(Arc::clone(&timer), true);
/// let write = Operation::new(Duration::from_secs(30), Produce(AtomicU32::new(2)));
/// assert!(!purgatory.try_complete_else_watch(&write, ["partition-0"])?);
/// write.0.fetch_add(1, Ordering::AcqRel); // the third replica has it
/// assert_eq!(purgatory.check_and_complete(&"partition-0"), 1);
/// assert_eq!((purgatory.watched(), purgatory.num_delayed()), (0, 0));
/// # timer.shutdown(None);
/// # Ok::<(), tickwheel::Error>(())
/// ```
pub struct DelayedOperationPurgatory<O: DelayedOperation>(Arc<Purgatory<Native<O>>>);

/// What a purgatory counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PurgatoryStats {
    /// Operations that wait.
    pub waiting: u64,
    /// Operations on the timer.
    pub delayed: usize,
    /// Places on the lists of all keys: an operation under three keys has three.
    pub watched: usize,
    /// Keys that somebody waits for.
    pub keys: usize,
    /// Operations that were completed in time.
    pub completed: u64,
    /// Operations whose time ran out.
    pub expired: u64,
    /// Operations that were taken out.
    pub cancelled: u64,
    /// How long those that were completed or expired have waited, taken together.
    pub waited: Duration,
}

impl<O: DelayedOperation> DelayedOperationPurgatory<O> {
    /// A purgatory on a timer. With `timer_enabled` false no deadline is put on it: operations wait until an event.
    #[must_use]
    pub fn new(timer: Arc<SystemTimer>, timer_enabled: bool) -> Self {
        Self(Arc::new(Purgatory::new(Home { timer, timer_enabled })))
    }

    /// Tries the operation; if it is not complete, watches it under every key, tries once more, and sets its deadline.
    ///
    /// `true` only if this call completed it. Equal keys count once. O(log n) for each key, n operations under it.
    ///
    /// # Errors
    /// [`Error::Invalid`] without a key, or for an operation that waits already; [`Error::Closed`] after
    /// [`Self::shutdown`]; what the timer refuses. The operation is then watched nowhere.
    ///
    /// # Panics
    /// As its `try_complete` does; it is then watched nowhere.
    pub fn try_complete_else_watch(
        &self,
        operation: &Operation<O>,
        keys: impl IntoIterator<Item = O::Key>,
    ) -> Result<bool, Error> {
        let mut keys: Few<_> = keys.into_iter().collect();
        if keys.is_empty() {
            return Err(Error::invalid(
                "an operation needs at least one key to wait for, got none: name what completes it",
            ));
        }
        if keys.len() > 1 {
            let mut seen = HashSet::new();
            let is_new: Vec<_> = keys.iter().map(|key| seen.insert(key)).collect();
            let mut is_new = is_new.into_iter();
            keys.retain(|_| is_new.next() == Some(true));
        }
        let watched = self.0.try_complete_else_watch(&Rust, operation, keys);
        watched.map(|watched| watched.is_won).map_err(|refused| match refused {
            Refused::Waiting => Error::invalid("the operation waits in a purgatory already: make one for each wait"),
            Refused::Closed => Error::Closed,
            Refused::Timer(Failure::Timer(error)) | Refused::Failed(Failure::Timer(error)) => error,
            Refused::Timer(Failure::Panic(payload)) | Refused::Failed(Failure::Panic(payload)) => {
                resume_unwind(payload)
            }
        })
    }

    /// Tries every operation that watches the key; returns how many this call completed (P3). An unknown key is 0.
    ///
    /// Inside a `try_complete` it returns 0: the check is made by the outermost call of this thread, when its own tries
    /// have returned, and is over before that returns. Where such checks ask for each other without end, the timer makes
    /// the rest a little later, after 1 ms and up to 1 s.
    pub fn check_and_complete(&self, key: &O::Key) -> usize {
        self.0.check_and_complete(&Rust, key)
    }

    /// Takes out the key's operations that are not complete and not being completed, off the timer and off all their
    /// keys, and returns them in order of arrival (P4).
    pub fn cancel_for_key(&self, key: &O::Key) -> Vec<Operation<O>> {
        self.0.cancel_for_key(&Rust, key)
    }

    /// Places on the lists of all keys: an operation under three keys has three (P4).
    #[must_use]
    pub fn watched(&self) -> usize {
        self.stats().watched
    }

    /// Operations on the timer (P4).
    #[must_use]
    pub fn num_delayed(&self) -> usize {
        // A timer that was shut down has let go of all deadlines.
        if self.0.home.timer.is_closed() && self.0.home.timer.is_empty() { 0 } else { self.0.delayed() }
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> PurgatoryStats {
        let counts = self.0.counts(&Rust);
        PurgatoryStats {
            waiting: counts.waiting,
            delayed: self.num_delayed(),
            watched: counts.watched,
            keys: counts.keys,
            completed: counts.completed,
            expired: counts.expired,
            cancelled: counts.cancelled,
            waited: Duration::from_micros(counts.waited_us),
        }
    }

    /// Lets nobody in any more, and returns what still waits, in order of arrival, off the timer and off all keys. The
    /// timer goes on.
    #[expect(clippy::must_use_candidate, reason = "often called for its effect alone")]
    pub fn shutdown(&self) -> Vec<Operation<O>> {
        self.0.close(&Rust)
    }
}

/// Nobody can check a key any more. Operations with a deadline still wait for that; without a timer nothing can come.
impl<O: DelayedOperation> Drop for DelayedOperationPurgatory<O> {
    fn drop(&mut self) {
        if self.0.home.timer.is_closed() {
            self.0.close(&Rust);
        }
        self.0.abandon(&Rust);
    }
}

impl<O: DelayedOperation> fmt::Debug for DelayedOperationPurgatory<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayedOperationPurgatory").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
