//! How a store is opened, and the sizes of its steps.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::base::open_stores::FileId;
use crate::store::replica::{Lease, Replicate};

/// A clock in milliseconds.
pub(crate) type ClockMs = Box<dyn Fn() -> i64 + Send>;

/// The lock by which one process owns the file. It is dropped after the file is closed.
pub(crate) type Guard = Option<Arc<dyn Any + Send + Sync>>;

/// How a store is opened.
pub(crate) struct Options {
    /// How long a message stays known after its outcome.
    pub keep_ids_ms: i64,
    /// A clock that no step of the wall clock moves. It may start at any value.
    pub monotonic_ms: ClockMs,
    /// The wall clock. It tells how long the store was closed.
    pub wall_ms: ClockMs,
    /// Sizes of steps; the defaults are for production.
    pub limits: Limits,
    /// Kept by the store and by its checkpoints until their connections are closed.
    pub guard: Guard,
    /// This process had it open before, as this file, and knows the outcome of each send: nothing is made anew, and nothing
    /// may have been sent besides.
    pub before: Option<FileId>,
    /// Where each transaction is before it is committed.
    pub replicate: Option<(Replicate, Arc<Lease>)>,
}

impl Options {
    /// With the default limits, and no guard.
    pub(crate) fn new(keep_ids_ms: i64, monotonic_ms: ClockMs, wall_ms: ClockMs) -> Self {
        Self {
            keep_ids_ms,
            monotonic_ms,
            wall_ms,
            limits: Limits::default(),
            guard: None,
            before: None,
            replicate: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("keep_ids_ms", &self.keep_ids_ms)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Sizes of data in memory and of single steps. A test makes them small, so that everything happens soon.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Names in memory before they are written as a run.
    pub names_in_memory: usize,
    /// Names of one block of a run: one row of its table, which fills a page.
    pub names_in_block: usize,
    /// Blocks of a run that are written, merged, read or deleted in one step.
    pub blocks_in_step: usize,
    /// For each name added since the last step, a step may write this many more names, because each name is written
    /// up to three times.
    pub writes_of_name: usize,
    /// Neighbouring runs that are merged into one.
    pub runs_in_merge: usize,
    /// The most names of one run.
    pub names_in_run: u64,
    /// If there are more runs than this, runs of different days are merged too.
    pub runs_by_day: usize,
    /// Bytes of all filters.
    pub filter_bytes: usize,
    /// Messages of one chunk, at most 2,048.
    pub chunk: usize,
    /// Chunks with an open near message. If there are more, the messages of the oldest chunks must be held.
    pub chunks_open: usize,
    /// Finished messages in memory whose payloads are to be deleted. If there are more, they are read from the ledger
    /// again.
    pub bodies_in_memory: usize,
    /// The number of payloads in a batch, if they are smaller than a page.
    pub bodies_in_batch: usize,
    /// The bytes of payloads in such a batch.
    pub body_bytes_in_batch: u64,
    /// Payloads deleted in one step.
    pub bodies_in_step: usize,
    /// Bytes of payloads deleted in one step.
    pub body_bytes_in_step: u64,
    /// Rows of the ledger forgotten in one step.
    pub forgotten_in_step: usize,
    /// Pages given back to the disk in one step.
    pub vacuum_pages: u32,
    /// Free pages that the file may keep.
    pub free_pages: u32,
    /// The shortest part of time by which messages are forgotten.
    pub shortest_part_ms: i64,
    /// Named destinations of which it is known when their first message is due.
    pub first_due_times: usize,
    /// Named destinations that stay in memory with nothing to do.
    pub idle_shares: usize,
    /// The fewest bytes of rows after which a replicated store gets another base; 0: one with each look.
    pub base_bytes: u64,
    /// Bytes of one piece of it.
    pub base_piece: usize,
    /// How often it is asked whether there are as many.
    pub base_look_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            names_in_memory: 131_072,
            names_in_block: 250,
            blocks_in_step: 32,
            writes_of_name: 4,
            runs_in_merge: 8,
            names_in_run: 8 << 20,
            runs_by_day: 64,
            filter_bytes: 32 << 20,
            chunk: 2_048,
            chunks_open: 64,
            bodies_in_memory: 400_000,
            bodies_in_batch: 262_144,
            body_bytes_in_batch: 64 << 20,
            bodies_in_step: 2_000,
            body_bytes_in_step: 4 << 20,
            forgotten_in_step: 5_000,
            vacuum_pages: 200,
            free_pages: 4_000,
            shortest_part_ms: 1_000,
            first_due_times: 100_000,
            idle_shares: 1_000,
            base_bytes: 256 << 20,
            base_piece: 1 << 20,
            base_look_ms: 10_000,
        }
    }
}

#[cfg(test)]
impl Limits {
    /// Very small limits, so that everything happens within a few messages.
    pub(crate) fn tiny() -> Self {
        Self {
            names_in_memory: 4,
            names_in_block: 2,
            blocks_in_step: 1,
            writes_of_name: 0,
            runs_in_merge: 2,
            names_in_run: 16,
            runs_by_day: 3,
            filter_bytes: 40,
            chunk: 4,
            chunks_open: 2,
            bodies_in_memory: 8,
            bodies_in_batch: 5,
            body_bytes_in_batch: 400,
            bodies_in_step: 2,
            body_bytes_in_step: 200,
            forgotten_in_step: 3,
            vacuum_pages: 2,
            free_pages: 2,
            shortest_part_ms: 1_000,
            first_due_times: 1,
            idle_shares: 0,
            base_bytes: 1,
            base_piece: 4_096,
            base_look_ms: 1,
        }
    }
}
