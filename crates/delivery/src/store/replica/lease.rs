//! Where a store is replicated to, and until when a process may send.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use super::Chain;

/// A process may send for so long after the begin of its last confirmed insert.
pub(super) const LEASE_MS: i64 = 2_000;
/// The owner has lost the store if a standby sees nothing new for so long. Its clock may be slower by a tenth.
pub(super) const QUIET_MS: i64 = LEASE_MS + LEASE_MS / 10;
/// How often an idle owner inserts a row.
pub(crate) const BEAT_EVERY_MS: i64 = LEASE_MS / 3;

type Open = Arc<dyn Fn() -> Result<Box<dyn Chain>, String> + Send + Sync>;
/// Milliseconds that also pass while the machine sleeps.
type ClockMs = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Where a store is replicated to: what is accepted is there before it is answered.
#[derive(Clone)]
pub struct Replicate {
    open: Open,
    clock_ms: ClockMs,
}

impl fmt::Debug for Replicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Replicate") // an address has a password
    }
}

impl Replicate {
    pub(crate) fn with(open: Open, clock_ms: ClockMs) -> Self {
        Self { open, clock_ms }
    }

    /// Connects.
    pub(super) fn open(&self) -> Result<Box<dyn Chain>, String> {
        (self.open)()
    }

    pub(super) fn now_ms(&self) -> i64 {
        (self.clock_ms)()
    }

    /// The lease of a process that has not begun.
    pub(crate) fn lease(&self) -> Lease {
        Lease {
            clock_ms: self.clock_ms.clone(),
            until_ms: AtomicI64::new(i64::MIN),
            epoch: AtomicI64::new(-1),
            is_stopping: AtomicBool::new(false),
        }
    }
}

/// Until when this process may send, for all its threads.
pub(crate) struct Lease {
    clock_ms: ClockMs,
    until_ms: AtomicI64,
    /// The number of its last take-over; below 0: there was none.
    epoch: AtomicI64,
    is_stopping: AtomicBool,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("until_ms", &self.until_ms).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Lease {
    /// Whether a send may begin now.
    pub(crate) fn is_held(&self) -> bool {
        self.now_ms() < self.until_ms.load(Ordering::Acquire)
    }

    pub(super) fn now_ms(&self) -> i64 {
        (self.clock_ms)()
    }

    /// An insert that began at this time was confirmed.
    pub(super) fn renew(&self, began_ms: i64) {
        self.until_ms.store(began_ms + LEASE_MS, Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.until_ms.store(i64::MIN, Ordering::Release);
    }

    pub(crate) fn epoch(&self) -> i64 {
        self.epoch.load(Ordering::Relaxed)
    }

    pub(super) fn set_epoch(&self, epoch: i64) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    /// From now on nothing waits for the chain, or for the disk: the process ends.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }
}
