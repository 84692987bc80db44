//! `Handle`: the name of one scheduled occurrence of a task.

use std::fmt;

/// Names one scheduled occurrence of a task, wherever it is moved. It is stale once the task has been claimed or taken out:
/// then it finds nothing.
///
/// A handle does not name its timer. Given to another timer, it may find an unrelated task there.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The generation in the upper half, the slot in the lower one. Two fields of half the size would be written one by one and
    /// read together where a handle passes through memory, which costs more than all else in a short call.
    bits: u64,
}

impl Handle {
    #[inline]
    pub(crate) fn new(slot: u32, generation: u32) -> Self {
        Self { bits: u64::from(generation) << 32 | u64::from(slot) }
    }

    #[inline]
    pub(crate) fn slot(self) -> u32 {
        self.bits as u32
    }

    #[inline]
    pub(crate) fn generation(self) -> u32 {
        (self.bits >> 32) as u32
    }

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
        self.bits
    }

    /// The inverse of [`Handle::to_bits`].
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self { bits }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("slot", &self.slot()).field("generation", &self.generation()).finish()
    }
}
