//! The earliest due time in each partition: what marks are made of (rule S4).

use crate::message::partition::PARTITIONS;

/// A number for each partition.
pub(crate) type PerPartition = [i64; PARTITIONS as usize];

/// Empty at first. 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Earliest(PerPartition);

impl Default for Earliest {
    fn default() -> Self {
        Self([i64::MAX; PARTITIONS as usize])
    }
}

impl Earliest {
    /// There is a message that is due then.
    pub(crate) fn add(&mut self, partition: u8, due_ms: i64) {
        let earliest_ms = &mut self.0[usize::from(partition)];
        *earliest_ms = due_ms.min(*earliest_ms);
    }

    /// There may be one in each partition.
    pub(crate) fn add_to_all(&mut self, due_ms: i64) {
        for earliest_ms in &mut self.0 {
            *earliest_ms = due_ms.min(*earliest_ms);
        }
    }

    /// All of both.
    pub(crate) fn add_all(&mut self, other: &Self) {
        for (earliest_ms, other_ms) in self.0.iter_mut().zip(other.0) {
            *earliest_ms = other_ms.min(*earliest_ms);
        }
    }

    /// From this due time on a message changes nothing, in whichever partition it is.
    #[must_use]
    pub(crate) fn latest_ms(&self) -> i64 {
        self.0.into_iter().max().expect("there are partitions")
    }

    /// For each partition the last millisecond before both.
    #[must_use]
    pub(crate) fn marks(&self, now_ms: i64) -> PerPartition {
        self.0.map(|earliest_ms| earliest_ms.min(now_ms) - 1)
    }
}
