//! The checks of a purgatory that its timer must make, because the rounds of a call ended before they were made.

use super::check_requests::CheckRequests;
use crate::sync::{AtomicBool, Mutex, Ordering};

pub(super) struct RemainingChecks {
    /// Whether the timer has an entry for them.
    pub(super) is_scheduled: AtomicBool,
    pub(super) checks: Mutex<CheckRequests<()>>,
}

impl RemainingChecks {
    pub(super) fn new() -> Self {
        Self { is_scheduled: AtomicBool::new(false), checks: Mutex::new(CheckRequests::new()) }
    }

    /// A read-modify-write: the thread that makes the checks sees all that happened before the calls that found the flag set.
    pub(super) fn clear_scheduled(&self) {
        self.is_scheduled.swap(false, Ordering::AcqRel);
    }
}
