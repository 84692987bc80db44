//! The state of a bucket while it is flushed, and after that.

use crate::lists::List;

/// A bucket that was flushed, and how many entries it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flushed {
    pub(crate) expiration_ms: u64,
    pub(crate) level: u8,
    pub(crate) entries: u64,
}

/// The bucket that is being flushed, and the list that was in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flushing {
    pub(super) list: List,
    /// From 0.
    pub(super) level_index: usize,
    pub(super) expiration_ms: u64,
    /// Whether its entries are looked at, or only their reminders.
    pub(super) looks_at_entries: bool,
    /// How many were moved so far.
    pub(super) entries: u64,
}
