//! The purgatory: operations that wait for an event on a key, or for their deadline, whichever comes first.
//!
//! After Kafka's `DelayedOperationPurgatory`. `README.md` in this folder has the protocol: who may hold what, why no event
//! is lost and nothing deadlocks. `operation` is what the protocol keeps in each of them, `watchers` who waits on a key,
//! `here` what this thread is in the middle of, `asked` the checks that it makes after that. On these stand the three
//! things that happen to an operation: `watching`, `checking` and `leaving`; `later` is what the timer does after a check.
//! `kind` is what all that needs of its side; `side` is that of Rust programs, which see `native`.

#![forbid(unsafe_code)]

mod check_requests;
mod checking;
mod host;
mod in_progress;
mod leaving;
mod operation_state;
mod rust;
mod timer_check;
mod watchers;
mod watching;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering}; // a model needs no switch of threads at a counter

pub(crate) use check_requests::{Asked, Rounds};
pub(crate) use host::{Armed, Attempt, Cause, Host, Kind};
pub(crate) use leaving::{cancel, expire, force_complete};
#[cfg(feature = "python")]
pub(crate) use leaving::{is_idle, sync_deadline};
pub(crate) use operation_state::{Completer, Life};
pub use rust::{DelayedOperation, DelayedOperationPurgatory, Operation, PurgatoryStats};
pub(crate) use timer_check::Later;

use timer_check::LeftOver;
use watchers::Watchers;
#[cfg(feature = "python")]
pub(crate) use watchers::shrink;
pub(crate) use watchers::{Few, ListName};
#[cfg(feature = "python")]
pub(crate) use watching::Watched;

/// How often at most a thread gives way before it tries a marked operation again.
pub(crate) const MOST_YIELDS: u32 = 100;

/// How often a thread tries a marked operation again: the try after that takes no marks.
const MOST_ROUNDS: u32 = if cfg!(tickwheel_model) { 2 } else { 8 };

/// How often a thread gives way to one that makes its last try, before the check is put off.
const MOST_WAITS: u32 = if cfg!(tickwheel_model) { 2 } else { 16 };

/// A purgatory, whichever side it is used from.
pub(crate) struct Purgatory<K: Kind> {
    pub(crate) home: K::Home,
    watchers: Watchers<K>,
    left_over: LeftOver,
    counters: Counters,
    /// No key can be checked any more.
    is_abandoned: AtomicBool,
}

/// Relaxed: they are for people.
#[derive(Default)]
struct Counters {
    arrived: AtomicU64,
    /// Arrived, but refused before they waited.
    refused: AtomicU64,
    cancelled: AtomicU64,
    completed: AtomicU64,
    expired: AtomicU64,
    delayed: AtomicUsize,
    waited_us: AtomicU64,
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

/// What a purgatory counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) waiting: u64,
    pub(crate) delayed: usize,
    pub(crate) keys: usize,
    pub(crate) watched: usize,
    pub(crate) completed: u64,
    pub(crate) expired: u64,
    pub(crate) cancelled: u64,
    pub(crate) waited_us: u64,
}

/// Why an operation cannot be watched.
#[derive(Debug)]
pub(crate) enum Refused<E> {
    /// It waits already, here or in another purgatory.
    Waiting,
    /// The purgatory was shut down.
    Closed,
    /// Its deadline cannot be set.
    Timer(E),
    /// Its `try_complete` failed.
    Failed(E),
}

impl<K: Kind> Purgatory<K> {
    pub(crate) fn new(home: K::Home) -> Self {
        Self {
            home,
            watchers: Watchers::new(),
            left_over: LeftOver::new(),
            counters: Counters::default(),
            is_abandoned: AtomicBool::new(false),
        }
    }

    pub(crate) fn counts<H: Host<K>>(&self, host: &H) -> Counts {
        let (keys, watched) = self.watchers.count(host);
        Counts {
            waiting: self.counters.waiting(),
            delayed: self.delayed(),
            keys,
            watched,
            completed: load(&self.counters.completed),
            expired: load(&self.counters.expired),
            cancelled: load(&self.counters.cancelled),
            waited_us: load(&self.counters.waited_us),
        }
    }

    /// Whether it is held only by its owner and by what waits in it: no operation is ending, and no thread is
    /// about to read the lists. For the garbage collector, so it takes no lock; it changes only with the GIL held.
    #[cfg(feature = "python")]
    pub(crate) fn is_quiet(this: &std::sync::Arc<Self>) -> bool {
        let holders = 1 + this.counters.waiting();
        std::sync::Arc::strong_count(this) as u64 == holders
    }

    /// Whether each operation that waits is on a timer too. As [`Self::is_quiet`].
    #[cfg(feature = "python")]
    pub(crate) fn all_have_deadlines(&self) -> bool {
        self.delayed() as u64 == self.counters.waiting()
    }

    /// Calls `see` with every reference to an operation that the lists hold, for the garbage collector: not at all where a
    /// lock of theirs is taken.
    #[cfg(feature = "python")]
    pub(crate) fn try_see<E>(&self, see: impl FnMut(&K::Op) -> Result<(), E>) -> Result<(), E> {
        self.watchers.try_see(see)
    }

    /// Operations on the timer.
    pub(crate) fn delayed(&self) -> usize {
        self.counters.delayed.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, tickwheel_model))]
mod model;
