//! What a slot holds, and the handle that names it.

use std::cmp::Ordering;

use super::NO_SLOT;

/// Names one scheduled occurrence of a task; stale once that has run or was cancelled. It does not know its timer: given to
/// another one, it may name a task there that has nothing to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Handle {
    /// The handle as one number, to keep it in an atomic; [`Handle::from_bits`] reads it.
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

/// An entry in the order of T6. The add number is unique, so the slot never decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) due_us: u64,
    pub(crate) number: u64,
    pub(crate) handle: Handle,
}

impl Key {
    /// Both in one number, which compares without a branch.
    fn rank(&self) -> u128 {
        u128::from(self.due_us) << 64 | u128::from(self.number)
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Where an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere: its slot is free, and this is the next free slot of the page.
    Free(u32),
    /// Nowhere yet: it is about to be placed.
    Unplaced,
    /// At this position in the list of a bucket.
    Bucket(u32),
    /// At this position in the front: it has left the wheel and waits for its instant.
    Front(u32),
    /// On the executor's queue.
    Released,
}

/// One scheduled occurrence of a task: 40 bytes where `T` is one pointer that is never null.
#[derive(Debug)]
pub(crate) struct Entry<T> {
    /// When it is due, in microseconds of the timer's clock.
    pub(crate) due_us: u64,
    /// The add number: with the due instant, the order of T6.
    pub(crate) number: u64,
    /// `None` in a free slot.
    pub(crate) task: Option<T>,
    pub(crate) generation: u32,
    pub(crate) place: Place,
    /// A number that the owner gave with the task.
    pub(crate) tag: u32,
}

impl<T> Entry<T> {
    /// Of a free slot: the next one.
    #[inline]
    pub(super) fn next_free(&self) -> u32 {
        if let Place::Free(next) = self.place { next } else { NO_SLOT }
    }

    /// Its key, given the slot that it is in.
    #[inline]
    pub(crate) fn key(&self, slot: u32) -> Key {
        Key { due_us: self.due_us, number: self.number, handle: Handle { slot, generation: self.generation } }
    }
}
