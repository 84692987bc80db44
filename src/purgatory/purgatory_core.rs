//! A purgatory's lists and counters, which its users, its operations and its timer share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering}; // a model needs no switch of threads at a counter
use std::time::Duration;

use super::check_requests::ListAddress;
use super::key_list::ListId;
use super::operation_types::{Locking, OperationTypes};
use super::remaining_checks::RemainingChecks;
use super::watchers::Watchers;
use crate::sync::AtomicBool;

/// The lists of all keys, and what a purgatory's users share.
pub struct Purgatory<K: OperationTypes> {
    /// What the host keeps with it.
    pub environment: K::Environment,
    pub(super) watchers: Watchers<K>,
    pub(super) remaining_checks: RemainingChecks,
    pub(super) counters: Counters,
    /// No key can be checked any more.
    pub(super) is_abandoned: AtomicBool,
}

/// For statistics only, so relaxed.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) arrived: AtomicU64,
    /// Arrived, but refused before they waited.
    pub(super) refused: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) completed: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) delayed: AtomicUsize,
    pub(super) waited_us: AtomicU64,
}

impl Counters {
    fn waiting(&self) -> u64 {
        let ended = load(&self.refused) + load(&self.cancelled) + load(&self.completed) + load(&self.expired);
        load(&self.arrived).saturating_sub(ended)
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The counters of a purgatory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgatoryStats {
    /// Operations that wait.
    pub waiting: u64,
    /// Operations on the timer.
    pub delayed: usize,
    /// Places on the lists of all keys: an operation under three keys has three.
    pub watched: usize,
    /// Keys for which an operation waits.
    pub keys: usize,
    /// Operations that were completed in time.
    pub completed: u64,
    /// Operations that their deadline completed.
    pub expired: u64,
    /// Operations that were taken out.
    pub cancelled: u64,
    /// The sum of the waiting times of all that were completed or expired.
    pub waited: Duration,
}

impl<K: OperationTypes> Purgatory<K> {
    /// An empty purgatory.
    pub fn new(environment: K::Environment) -> Self {
        Self {
            environment,
            watchers: Watchers::new(),
            remaining_checks: RemainingChecks::new(),
            counters: Counters::default(),
            is_abandoned: AtomicBool::new(false),
        }
    }

    /// How many operations wait, and in how many places.
    pub fn counts<H: Locking<K>>(&self, host: &H) -> PurgatoryStats {
        let (keys, watched) = self.watchers.count(host);
        PurgatoryStats {
            waiting: self.counters.waiting(),
            delayed: self.delayed(),
            keys,
            watched,
            completed: load(&self.counters.completed),
            expired: load(&self.counters.expired),
            cancelled: load(&self.counters.cancelled),
            waited: Duration::from_micros(load(&self.counters.waited_us)),
        }
    }

    /// Whether only its owner and the waiting operations hold it: then no operation is ending, and no thread is about to read
    /// the lists. For the garbage collector: it takes no lock, and the answer changes only with the GIL held.
    pub fn is_quiet(this: &Arc<Self>) -> bool {
        let holders = 1 + this.counters.waiting();
        Arc::strong_count(this) as u64 == holders
    }

    /// Whether each waiting operation has a deadline. For the garbage collector, as [`Self::is_quiet`].
    pub fn all_have_deadlines(&self) -> bool {
        self.delayed() as u64 == self.counters.waiting()
    }

    /// Calls `visit` with each reference to an operation on the lists, for the garbage collector; with none if a lock of the
    /// lists is taken.
    ///
    /// # Errors
    /// The first one of `visit`.
    pub fn try_visit<E>(&self, visit: impl FnMut(&K::Op) -> Result<(), E>) -> Result<(), E> {
        self.watchers.try_visit(visit)
    }

    /// The number of operations with a deadline.
    pub fn delayed(&self) -> usize {
        self.counters.delayed.load(Ordering::Relaxed)
    }

    pub(super) fn list_address(self: &Arc<Self>, list: ListId) -> ListAddress {
        (Arc::as_ptr(self) as usize, list)
    }
}
