//! For each partition: the instant up to which every outcome is on disk (rule S4).
//!
//! The program that submits messages keeps them until a mark has passed them. If this deliverer is lost with its disk,
//! the program gives them to another one. A message is open if it is accepted and has no outcome on disk. A mark is the
//! last millisecond before the earliest open message that is due. So a mark goes back when an overdue message comes.
//!
//! An open message is in one of three places. It is in memory and *near*; or it has a row in the store; or it is
//! between the two: it has left memory, and the transaction with its row is not committed. The window keeps the due
//! times of messages in the last place. A call reads the places in this order: memory, in parts; with the last part,
//! the messages between; then the rows, in one transaction. A message moves in the same direction, so the call misses
//! none. `docs/internals/concurrency-proofs.md` says more.

use super::Engine;
use crate::base::error::DeliveryError;
use crate::message::partition::{Earliest, PerPartition};
use crate::store::add_overdue;

/// How many places of the window are looked at under one hold of the dispatcher's lock.
const STEP: usize = 4_096;

impl Engine {
    /// Returns an instant for each partition, in milliseconds since 1970 and before `now_ms`. If a message of the
    /// partition was accepted before the call and is due at or before that instant, its outcome is on disk. A
    /// rescheduled message also counts at its first due time. The call waits for no commit. It takes some milliseconds
    /// if memory is full.
    ///
    /// # Errors
    /// The engine has failed or is closed, or the store cannot be read.
    pub fn marks(&self, now_ms: i64) -> Result<PerPartition, DeliveryError> {
        self.marks_by(now_ms, STEP, &mut || ())
    }

    /// Does the same. `between` is called after each part, while no lock is held.
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
