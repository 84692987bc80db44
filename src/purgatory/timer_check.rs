//! An entry on the timer that makes checks, so that no event is lost (P6).
//!
//! - A **recheck** tries one operation again. It is needed where a check could not try the operation, because another
//!   thread holds the operation's own lock or makes its last try. Each operation has at most one recheck on the timer. The
//!   delay is 1 ms, then twice as long each time, at most 16 ms.
//! - The **remaining checks** of a purgatory are those that the rounds of a call did not make (see `rounds`). Each purgatory
//!   has at most one entry for them. It makes them in one round, and leaves to the next entry what that round requests. The
//!   delay is 1 ms, then twice as long each time in which nothing was completed, at most a second. So n operations whose
//!   tries always request checks cost n tries per second.
//!
//! A flag says that an entry is on the timer. The entry clears the flag before its tries. If an event finds the flag
//! set, it happened before the tries, and they see it. If an event finds the flag clear, it puts another entry on the
//! timer.
//!
//! An entry holds its purgatory by a weak reference: without the purgatory no operation waits in it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::operation_state::OperationKind;
use super::purgatory_core::Purgatory;
use crate::sync::{AtomicBool, Ordering};

/// The longest delays, as powers of two of milliseconds.
const LONGEST_RECHECK_DELAY_LOG2_MS: u32 = 4;
const LONGEST_REMAINING_DELAY_LOG2_MS: u32 = 10;

/// An entry on the timer that makes checks.
pub struct TimerCheck<K: OperationKind> {
    pub(super) purgatory: Weak<Purgatory<K>>,
    pub(super) target: Target<K>,
    /// The number of such entries in a row that could not try the operation, or that completed none.
    pub(super) fruitless_runs: u32,
    pub(super) has_run: AtomicBool,
}

/// What an entry checks.
pub(super) enum Target<K: OperationKind> {
    Operation(K::Op),
    RemainingChecks,
}

impl<K: OperationKind> TimerCheck<K> {
    pub(super) fn new(purgatory: &Arc<Purgatory<K>>, target: Target<K>, fruitless_runs: u32) -> Self {
        Self { purgatory: Arc::downgrade(purgatory), target, fruitless_runs, has_run: AtomicBool::new(false) }
    }

    /// The delay with which it is added to the timer.
    pub fn delay(&self) -> Duration {
        let ms: u64 = match self.target {
            Target::Operation(_) => 1 << self.fruitless_runs.min(LONGEST_RECHECK_DELAY_LOG2_MS),
            Target::RemainingChecks => (1 << self.fruitless_runs.min(LONGEST_REMAINING_DELAY_LOG2_MS)).min(1000),
        };
        Duration::from_millis(ms)
    }

    /// The operation that it checks again.
    pub fn operation(&self) -> Option<&K::Op> {
        match &self.target {
            Target::Operation(op) => Some(op),
            Target::RemainingChecks => None,
        }
    }
}

/// Dropped without a run, it clears its flag. It takes no lock, as it may be dropped in a forked child.
impl<K: OperationKind> Drop for TimerCheck<K> {
    fn drop(&mut self) {
        if self.has_run.load(Ordering::Relaxed) {
            return;
        }
        match &self.target {
            Target::Operation(op) => K::state(op).clear_recheck_scheduled(),
            Target::RemainingChecks => {
                if let Some(purgatory) = self.purgatory.upgrade() {
                    purgatory.remaining_checks.clear_scheduled();
                }
            }
        }
    }
}
