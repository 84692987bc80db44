//! An entry on the timer that tries one operation again, so that no event is lost (P6).
//!
//! It is needed where a check could not try the operation, because another thread holds the operation's own lock or makes
//! its last try. Each operation has at most one such entry. The delay is 1 ms, then twice as long each time, at most 16 ms.
//!
//! A flag of the operation says that an entry is on the timer. The entry clears the flag before its try. If an event finds
//! the flag set, it happened before the try, which sees it. If an event finds the flag clear, it puts another entry on the
//! timer.
//!
//! An entry holds its purgatory by a weak reference: without the purgatory no operation waits in it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::operation_state::OperationKind;
use super::purgatory_core::Purgatory;
use crate::sync::{AtomicBool, Ordering};

/// The longest delay, as a power of two of milliseconds.
const LONGEST_DELAY_LOG2_MS: u32 = 4;

/// An entry on the timer that tries an operation again.
pub struct TimerCheck<K: OperationKind> {
    pub(super) purgatory: Weak<Purgatory<K>>,
    pub(super) op: K::Op,
    /// The number of such entries in a row that could not try the operation.
    pub(super) fruitless_runs: u32,
    pub(super) has_run: AtomicBool,
}

impl<K: OperationKind> TimerCheck<K> {
    pub(super) fn new(purgatory: &Arc<Purgatory<K>>, op: K::Op, fruitless_runs: u32) -> Self {
        Self { purgatory: Arc::downgrade(purgatory), op, fruitless_runs, has_run: AtomicBool::new(false) }
    }

    /// The delay with which it is added to the timer.
    pub fn delay(&self) -> Duration {
        Duration::from_millis(1 << self.fruitless_runs.min(LONGEST_DELAY_LOG2_MS))
    }

    /// The operation that it tries again.
    pub fn operation(&self) -> &K::Op {
        &self.op
    }
}

/// Dropped without a run, it clears the flag. It takes no lock, as it may be dropped in a forked child.
impl<K: OperationKind> Drop for TimerCheck<K> {
    fn drop(&mut self) {
        if !self.has_run.load(Ordering::Relaxed) {
            K::state(&self.op).clear_recheck_scheduled();
        }
    }
}
