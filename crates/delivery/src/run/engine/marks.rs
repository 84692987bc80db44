//! Up to which instant every outcome is on disk, for each partition (rule S4).
//!
//! What handed messages in keeps them until a mark has passed them, and hands them to another deliverer if this one is lost with its
//! disk. A mark is the last millisecond before the earliest message that is due and open: accepted, and without an outcome on disk.
//! So it goes back when an overdue message comes.
//!
//! An open message is in memory and *near*, has a row in the store, or is between the two: it has left memory, and the transaction with
//! its row is not committed. The window keeps the due times of the last kind. A call reads the three in this order: memory,
//! in parts; together with its last part, the messages between; then the rows, in one transaction. A message moves in the same direction,
//! so none is missed.
//! `docs/concurrency.md` says more.

use super::Engine;
use crate::base::error::DeliveryError;
use crate::message::earliest::{Earliest, PerPartition};
use crate::store::add_overdue;

/// Places of the window that are looked at under one hold of the dispatcher's lock.
const STEP: usize = 4_096;

impl Engine {
    /// For each partition an instant, in milliseconds since 1970 and before `now_ms`: every message of it that was accepted before the
    /// call, and is due at or before that instant, has its outcome on disk. One that was given another due time counts at its first
    /// one too. Waits for no commit; some milliseconds where memory is full.
    ///
    /// # Errors
    /// The engine has failed or is closed, or the store cannot be read.
    pub fn marks(&self, now_ms: i64) -> Result<PerPartition, DeliveryError> {
        self.marks_by(now_ms, STEP, &mut || ())
    }

    /// The same; `between` is called after each part, where no lock is held.
    pub(crate) fn marks_by(
        &self,
        now_ms: i64,
        step: usize,
        between: &mut dyn FnMut(),
    ) -> Result<PerPartition, DeliveryError> {
        if let Some(failure) = &self.queue.lock().failure {
            return Err(failure.clone());
        }
        let mut earliest = Earliest::default();
        let mut next = Some(0);
        while let Some(from) = next {
            let dispatcher = self.lock_dispatcher();
            let (part, rest) = dispatcher.window.part(from, step);
            for entry in part.filter(|entry| entry.is_near) {
                earliest.add(entry.partition, entry.due_ms);
            }
            if rest.is_none() {
                earliest.add_all(&dispatcher.window.left_uncommitted);
            }
            next = rest;
            drop(dispatcher);
            between();
        }
        let path = self.ownership.upgrade().ok_or(DeliveryError::Closed)?.path().to_owned();
        add_overdue(&mut earliest, &path, now_ms)?;
        Ok(earliest.marks(now_ms))
    }
}
