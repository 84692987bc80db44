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
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// The inverse of [`Handle::to_bits`].
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self { slot: bits as u32, generation: (bits >> 32) as u32 }
    }
}
