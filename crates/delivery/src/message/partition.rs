//! The partitions of a hand-off (rule S5). All messages of a key are in the same partition. Each partition belongs to
//! one deliverer at a time.
//!
//! The partition of a message with a key is the number of its lane, unsigned, modulo 64. For a message without a key
//! it is the number of its name, modulo 64. Occurrences are in the partition of their recurring message. Checkpoints
//! keep partitions, so this rule never changes.
//!
//! Example: key `customer 3` is in partition 13 with all its messages. Message `a` without a key is in partition 1,
//! and so are `a@2026-01-31T08:00:00.000Z` and `a@2026-01-31T08:00:00.000Z#2`.

use crate::message::incoming::{Digest, Incoming, lane_of};
use crate::message::recurrence::recurring_id;

/// The number of partitions.
pub const PARTITIONS: u8 = 64;

/// The partition of a message without a key. `number` is the number of its name.
pub(crate) fn partition_of_id(number: i64, id: &str) -> u8 {
    partition_of(recurring_id(id).map_or(number, |of| Digest::of(None, of).number()))
}

/// The partition of a message whose hashes are known.
pub(crate) fn partition_of_incoming(incoming: &Incoming) -> u8 {
    match incoming.lane {
        Some(lane) => partition_of(lane),
        None => partition_of_id(incoming.digest.number(), incoming.message.id()),
    }
}

/// The partition of the message with this name. Costs a hash.
pub(crate) fn partition_of_name(key: Option<&str>, id: &str) -> u8 {
    match lane_of(key) {
        Some(lane) => partition_of(lane),
        None => partition_of(Digest::of(None, recurring_id(id).unwrap_or(id)).number()),
    }
}

/// The partition for the number of a lane, or of a name.
pub(crate) fn partition_of(number: i64) -> u8 {
    (number as u64 % u64::from(PARTITIONS)) as u8
}

/// A number for each partition.
pub(crate) type PerPartition = [i64; PARTITIONS as usize];

/// The earliest due time in each partition, from which the marks are made (rule S4). Empty at first. Takes 512 bytes.
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
    pub(crate) fn latest_ms(&self) -> i64 {
        self.0.into_iter().max().expect("there are partitions")
    }

    /// For each partition, the last millisecond before the earliest due time and before `now_ms`.
    pub(crate) fn marks(&self, now_ms: i64) -> PerPartition {
        self.0.map(|earliest_ms| earliest_ms.min(now_ms) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Body, Message};

    #[test]
    fn the_partition_of_a_name_never_changes__s5() {
        let names =
            [(Some("customer 3"), "a"), (Some("customer 3"), "b"), (Some("k"), "a"), (Some("é"), "a"), (None, "a")];
        let more = [(None, "order 7"), (None, ""), (Some(""), "")];
        let found: Vec<u8> = names.iter().chain(&more).map(|(key, id)| partition_of_name(*key, id)).collect();
        assert_eq!(found, [13, 13, 44, 11, 1, 26, 48, 36]);
    }

    #[test]
    fn a_message_has_the_partition_of_its_name__s5() {
        for key in [None, Some("k"), Some("another")] {
            for id in ["a", "b", "a@2026-01-31T08:00:00.000Z"] {
                let message = Message { body: Body::new(key, id, b"1", true), due_ms: 5, delay_ms: None };
                assert_eq!(partition_of_incoming(&Incoming::of(message)), partition_of_name(key, id));
            }
        }
    }

    #[test]
    fn an_occurrence_is_where_its_recurring_message_is__s5_d19() {
        for id in ["a", "a@b", "a#1", ""] {
            for steps in ["", "#1", "#9223372036854775807"] {
                let occurrence = format!("{id}@2026-01-31T08:00:00.000Z{steps}");
                assert_eq!(partition_of_name(None, &occurrence), partition_of_name(None, id));
            }
        }
        let others = ["a@2026-01-31T08:00:00.000", "a@2026-13-31T08:00:00.000Z", "a@2026-01-31T09:00:00.00+01:00"];
        let at_home = others.iter().filter(|id| partition_of_name(None, id) == partition_of_name(None, "a")).count();
        assert_eq!(at_home, 0, "by chance each is elsewhere");
    }

    #[test]
    fn numbers_are_taken_as_unsigned__s5() {
        assert_eq!([0, 63, 64, -1, -64, i64::MIN, i64::MAX].map(partition_of), [0, 63, 0, 63, 0, 0, 63]);
    }
}
