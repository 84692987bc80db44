//! The partitions of a hand-off (rule S5). All messages of a key are in the same partition. Each partition belongs to
//! one deliverer at a time.
//!
//! The partition of a message with a key is the number of its lane, unsigned, modulo 64. For a message without a key
//! it is the number of its name, modulo 64. Occurrences are in the partition of their recurring message. Checkpoints
//! keep partitions, so this rule never changes.
//!
//! Example: key `customer 3` is in partition 13 with all its messages. Message `a` without a key is in partition 1,
//! and so is `a@2026-01-31T08:00:00.000Z`.

use crate::message::incoming::{Digest, Incoming, lane_of};
use crate::message::recurrence::recurring_id;

/// The number of partitions.
pub const PARTITIONS: u8 = 64;

/// The partition of messages in this lane.
#[must_use]
pub(crate) fn partition_of_lane(lane: i64) -> u8 {
    partition_of(lane)
}

/// The partition of a message without a key. `number` is the number of its name.
#[must_use]
pub(crate) fn partition_of_id(number: i64, id: &str) -> u8 {
    partition_of(recurring_id(id).map_or(number, |of| Digest::of(None, of).number()))
}

/// The partition of a message whose hashes are known.
#[must_use]
pub(crate) fn partition_of_incoming(incoming: &Incoming) -> u8 {
    match incoming.lane {
        Some(lane) => partition_of_lane(lane),
        None => partition_of_id(incoming.digest.number(), incoming.message.id()),
    }
}

/// The partition of the message with this name. Costs a hash.
#[must_use]
pub(crate) fn partition_of_name(key: Option<&str>, id: &str) -> u8 {
    match lane_of(key) {
        Some(lane) => partition_of_lane(lane),
        None => partition_of(Digest::of(None, recurring_id(id).unwrap_or(id)).number()),
    }
}

fn partition_of(number: i64) -> u8 {
    (number as u64 % u64::from(PARTITIONS)) as u8
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
        for id in ["a", "a@b", ""] {
            assert_eq!(partition_of_name(None, &format!("{id}@2026-01-31T08:00:00.000Z")), partition_of_name(None, id));
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
