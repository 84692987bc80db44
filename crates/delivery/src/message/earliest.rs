//! The earliest due time in each partition. The marks are made from it (rule S4).

use crate::message::partition::PARTITIONS;

/// A number for each partition.
pub(crate) type PerPartition = [i64; PARTITIONS as usize];

/// Empty at first. Takes 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Earliest(PerPartition);

impl Default for Earliest {
    fn default() -> Self {
        Self([i64::MAX; PARTITIONS as usize])
    }
}

impl Earliest {
    /// Adds a message with this due time.
    pub(crate) fn add(&mut self, partition: u8, due_ms: i64) {
        let earliest_ms = &mut self.0[usize::from(partition)];
        *earliest_ms = due_ms.min(*earliest_ms);
    }

    /// Adds a message with this due time to each partition, because its partition is not known.
    pub(crate) fn add_to_all(&mut self, due_ms: i64) {
        for earliest_ms in &mut self.0 {
            *earliest_ms = due_ms.min(*earliest_ms);
        }
    }

    /// Adds the times of another value.
    pub(crate) fn add_all(&mut self, other: &Self) {
        for (earliest_ms, other_ms) in self.0.iter_mut().zip(other.0) {
            *earliest_ms = other_ms.min(*earliest_ms);
        }
    }

    /// The latest of these times. A message due at this time or later changes nothing, whatever its partition.
    #[must_use]
    pub(crate) fn latest_ms(&self) -> i64 {
        self.0.into_iter().max().expect("there are partitions")
    }

    /// For each partition, the last millisecond before the earliest due time and before `now_ms`.
    #[must_use]
    pub(crate) fn marks(&self, now_ms: i64) -> PerPartition {
        self.0.map(|earliest_ms| earliest_ms.min(now_ms) - 1)
    }
}
