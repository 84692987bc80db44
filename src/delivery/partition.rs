//! The partitions of what is handed off (rule S5): all messages of a key are in one, and each belongs to one deliverer at a time.
//!
//! A message's partition is the number of its lane, as an unsigned number, modulo 64; without a key, the number of its name. It is
//! kept in checkpoints: it never changes.
//!
//! Example: key `customer 3` is in partition 13 with all its messages; message `a` without a key is in partition 1.

#![forbid(unsafe_code)]

use crate::delivery::incoming::{Digest, Incoming, lane_of};

/// How many there are.
pub(crate) const PARTITIONS: u8 = 64;

/// Of the message with this lane, or, without one, with this number of its name.
#[must_use]
pub(crate) fn partition_of(number: i64) -> u8 {
    (number as u64 % u64::from(PARTITIONS)) as u8
}

/// Of a message whose hashes are known.
#[must_use]
pub(crate) fn partition_of_incoming(incoming: &Incoming) -> u8 {
    partition_of(incoming.lane.unwrap_or_else(|| incoming.digest.number()))
}

/// Of the message with this name. Costs a hash.
#[must_use]
pub(crate) fn partition_of_name(key: Option<&str>, id: &str) -> u8 {
    partition_of(lane_of(key).unwrap_or_else(|| Digest::of(None, id).number()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::message::{Body, Message};

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
            for id in ["a", "b"] {
                let message = Message { body: Body::new(key, id, b"1", true), due_ms: 5, delay_ms: None };
                assert_eq!(partition_of_incoming(&Incoming::of(message)), partition_of_name(key, id));
            }
        }
    }

    #[test]
    fn numbers_are_taken_as_unsigned__s5() {
        assert_eq!([0, 63, 64, -1, -64, i64::MIN, i64::MAX].map(partition_of), [0, 63, 0, 63, 0, 0, 63]);
    }
}
