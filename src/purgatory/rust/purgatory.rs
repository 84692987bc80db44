//! The purgatory of Rust programs, and what it counts.

use std::collections::HashSet;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;

use super::super::key_list::ShortList;
use super::super::leaving;
use super::super::purgatory_core::{Purgatory, PurgatoryStats};
use super::super::watching::WatchError;
use super::host::{HostError, RustHost};
use super::operation::{DelayedOperation, Environment, Operation, RustOperations};
use crate::error::Error;
use crate::system::SystemTimer;

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
///
/// let done = Operation::new(Duration::from_secs(30), Produce(AtomicU32::new(3)));
/// assert!(purgatory.try_complete_else_watch(&done, ["partition-0"])?); // the first try completed it
/// let [first, second, third] =
///     [2; 3].map(|replicas| Operation::new(Duration::from_secs(30), Produce(AtomicU32::new(replicas))));
/// for write in [&first, &second, &third] {
///     purgatory.try_complete_else_watch(write, ["partition-0", "partition-1"])?;
/// }
/// assert_eq!((purgatory.watched(), purgatory.num_delayed()), (6, 3));
/// assert!(first.force_complete() && !first.force_complete()); // true for one caller
/// assert!(second.cancel() && !second.cancel()); // it waits no more, and only its caller can complete it
/// assert_eq!(purgatory.cancel_for_key(&"partition-1").len(), 1);
/// assert_eq!(purgatory.stats().cancelled, 2);
///
/// assert!(purgatory.shutdown().is_empty()); // nothing waits
/// assert_eq!(purgatory.try_complete_else_watch(&third, ["partition-0"]), Err(tickwheel::Error::Closed));
/// # timer.shutdown(None);
/// # Ok::<(), tickwheel::Error>(())
/// ```
pub struct DelayedOperationPurgatory<O: DelayedOperation>(Arc<Purgatory<RustOperations<O>>>);

impl<O: DelayedOperation> Operation<O> {
    /// Completes it, unless it is complete: `true` for exactly one caller ever.
    ///
    /// It is off the timer and off all keys before this returns, and `on_complete` has run; inside a `try_complete`,
    /// `on_complete` runs immediately after that.
    #[expect(clippy::must_use_candidate, reason = "often called for its effect alone")]
    pub fn force_complete(&self) -> bool {
        leaving::force_complete(&RustHost, self)
    }

    /// Takes it off the timer and off all keys: `true` if it waited. Then only the caller can complete it.
    #[expect(clippy::must_use_candidate, reason = "often called for its effect alone")]
    pub fn cancel(&self) -> bool {
        leaving::cancel(&RustHost, self)
    }
}

impl<O: DelayedOperation> DelayedOperationPurgatory<O> {
    /// A purgatory on a timer. With `timer_enabled` false it sets no deadlines: operations wait until an event.
    #[must_use]
    pub fn new(timer: Arc<SystemTimer>, timer_enabled: bool) -> Self {
        Self(Arc::new(Purgatory::new(Environment { timer, timer_enabled })))
    }

    /// Tries the operation; if it is not complete, watches it under each key, tries it again, and sets its deadline.
    ///
    /// `true` only if this call completed it. Equal keys count once. O(log n) for each key with n operations.
    ///
    /// # Errors
    /// [`Error::Invalid`] without a key, or for an operation that waits already; [`Error::Closed`] after
    /// [`Self::shutdown`]; an error of the timer. After an error the operation waits nowhere.
    ///
    /// # Panics
    /// When `try_complete` panics. After that the operation waits nowhere.
    pub fn try_complete_else_watch(
        &self,
        operation: &Operation<O>,
        keys: impl IntoIterator<Item = O::Key>,
    ) -> Result<bool, Error> {
        let mut keys: ShortList<_> = keys.into_iter().collect();
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
        let watched = self.0.try_complete_else_watch(&RustHost, operation, keys);
        watched.map(|watched| watched.is_completed_by_call).map_err(|error| match error {
            WatchError::Waiting => Error::invalid("the operation waits in a purgatory already: make one for each wait"),
            WatchError::Closed => Error::Closed,
            WatchError::Timer(HostError::Timer(error)) | WatchError::Failed(HostError::Timer(error)) => error,
            WatchError::Timer(HostError::Panic(payload)) | WatchError::Failed(HostError::Panic(payload)) => {
                resume_unwind(payload)
            }
        })
    }

    /// Tries each operation that waits for the key; returns how many this call completed. An unknown key gives 0.
    ///
    /// Inside a `try_complete` it returns 0: the outermost call of this thread makes the check after its own tries, and before
    /// it returns. If such checks request each other without end, the timer makes the rest, after 1 ms and up to 1 s later.
    pub fn check_and_complete(&self, key: &O::Key) -> usize {
        self.0.check_and_complete(&RustHost, key)
    }

    /// Takes out the key's operations that are not complete and are not being completed, off the timer and off all their
    /// keys. Returns them in order of arrival.
    pub fn cancel_for_key(&self, key: &O::Key) -> Vec<Operation<O>> {
        self.0.cancel_for_key(&RustHost, key)
    }

    /// The number of places on the lists of all keys: an operation under three keys has three.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.stats().watched
    }

    /// The number of operations on the timer.
    #[must_use]
    pub fn num_delayed(&self) -> usize {
        let timer = &self.0.environment.timer;
        // A timer that was shut down has dropped all deadlines.
        if timer.is_closed() && timer.is_empty() { 0 } else { self.0.delayed() }
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> PurgatoryStats {
        PurgatoryStats { delayed: self.num_delayed(), ..self.0.counts(&RustHost) }
    }

    /// Accepts no more operations; returns those that still wait, in order of arrival, off the timer and off all keys. The
    /// timer goes on.
    #[expect(clippy::must_use_candidate, reason = "often called for its effect alone")]
    pub fn shutdown(&self) -> Vec<Operation<O>> {
        self.0.close(&RustHost)
    }
}

/// No key can be checked any more. Operations with a deadline still expire; if the timer was shut down, no operation can end,
/// so all are taken out.
impl<O: DelayedOperation> Drop for DelayedOperationPurgatory<O> {
    fn drop(&mut self) {
        if self.0.environment.timer.is_closed() {
            self.0.close(&RustHost);
        }
        self.0.abandon(&RustHost);
    }
}

impl<O: DelayedOperation> fmt::Debug for DelayedOperationPurgatory<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayedOperationPurgatory").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
