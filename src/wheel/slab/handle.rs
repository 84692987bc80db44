//! `Handle`: the name of one scheduled occurrence of a task.

/// Names one scheduled occurrence of a task. It is stale once the task has been claimed, cancelled or rescheduled: then it
/// finds nothing.
///
/// A handle does not name its timer. Given to another timer, it may find an unrelated task there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Handle {
    /// The handle as one number, to keep it in an atomic. [`Handle::from_bits`] reads it.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use std::time::Duration;
    /// use tickwheel::{Clock, Config, Handle, Timer};
    ///
    /// let timer = Timer::new(&Config::default(), Clock::manual(0))?;
    /// let timeout = AtomicU64::new(timer.add(Duration::from_secs(30), "timeout")?.to_bits());
    /// let handle = Handle::from_bits(timeout.load(Ordering::Relaxed));
    /// assert_eq!(timer.cancel(handle), Some("timeout"));
    /// # Ok::<(), tickwheel::Error>(())
    /// ```
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// The inverse of [`Handle::to_bits`].
    ///
    /// ```
    /// use tickwheel::Handle;
    /// assert_eq!(Handle::from_bits(42).to_bits(), 42);
    /// ```
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self { slot: bits as u32, generation: (bits >> 32) as u32 }
    }
}
