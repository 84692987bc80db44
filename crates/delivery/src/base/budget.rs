//! One budget of bytes for what is being accepted and for the messages in memory (rule D8).
//!
//! | | what counts | without room |
//! |---|---|---|
//! | accepting | bodies of requests until they are queued, and what is queued for a group | a request gets 503, a caller waits |
//! | the window | messages in memory | they wait in the store |
//!
//! Each has a third of the budget for itself, and the last third is for the first that comes. So accepting never stops
//! delivery, which makes room, and a backlog never stops accepting. Threads that look at the same moment may go over the budget by one
//! item each. Example: of 96 MiB the window may have 64 MiB while 32 MiB or less are being accepted, and 52 MiB while 44 MiB are.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The allocator puts smaller messages beside others, and uses their places again.
const LARGE: usize = 64 << 10;

/// The counters of a process that delivers. All are plain counts, so no order of memory is needed.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// A third of all.
    part: usize,
    accepting: AtomicUsize,
    window: AtomicUsize,
    /// Bytes of large messages that left memory since the last [`Budget::was_freed`].
    freed: AtomicUsize,
}

impl Budget {
    /// `window`: the most bytes of messages in memory.
    pub(crate) fn new(window: usize) -> Self {
        Self { part: window / 2, ..Self::default() }
    }

    /// Takes `bytes` for something that is being accepted; a negative number gives back. Returns whether there was room.
    pub(crate) fn take(&self, bytes: isize) -> bool {
        let most = self.most_beside(&self.window);
        let add =
            |accepting: usize| Some(accepting.saturating_add_signed(bytes)).filter(|then| bytes <= 0 || *then <= most);
        self.accepting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// Takes `bytes` for a ticket, whatever its size: see [`Budget::is_full`].
    pub(crate) fn add(&self, bytes: usize) {
        self.accepting.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether nothing more should be accepted now.
    pub(crate) fn is_full(&self) -> bool {
        self.accepting.load(Ordering::Relaxed) >= self.most_beside(&self.window)
    }

    /// How many bytes the messages in memory may have, whatever is being accepted.
    pub(crate) fn part(&self) -> usize {
        self.part
    }

    /// How many bytes the messages in memory may have.
    pub(crate) fn most_in_window(&self) -> usize {
        self.most_beside(&self.accepting)
    }

    /// The messages in memory have so many bytes now. `left`: of a message that has just left, or 0.
    pub(crate) fn set_window(&self, bytes: usize, left: usize) {
        self.window.store(bytes, Ordering::Relaxed); // under the dispatcher's lock
        if left >= LARGE {
            self.freed.fetch_add(left, Ordering::Relaxed);
        }
    }

    fn most_beside(&self, other: &AtomicUsize) -> usize {
        self.part.saturating_mul(3).saturating_sub(other.load(Ordering::Relaxed).max(self.part))
    }

    /// Whether an allocator may have much to give back: so many large messages have left memory, or some, and little is left
    /// there. True once for each of these. One thread asks.
    pub(crate) fn was_freed(&self) -> bool {
        let freed = self.freed.load(Ordering::Relaxed);
        let is_quiet = || self.window.load(Ordering::Relaxed) + self.accepting.load(Ordering::Relaxed) <= self.part / 8;
        let was_freed = freed >= self.part || freed > self.part / 8 && is_quiet();
        if was_freed {
            self.freed.fetch_sub(freed, Ordering::Relaxed);
        }
        was_freed
    }
}

#[cfg(test)]
mod tests;
