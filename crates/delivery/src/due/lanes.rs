//! The lane of a key: its messages in memory, in the order of delivery. At most one message is on its way (rule D4).
//!
//! A lane has no lock. [`Window`](super::window::Window) owns the lanes, and the dispatcher's lock guards the window.

use std::collections::BTreeMap;

use crate::store::Position;

/// The place of a message in the window.
pub(crate) type Slot = u32;

/// The messages of one key.
///
/// - `in_flight` is being sent, or waits for its next attempt. Meanwhile no other message of the lane goes out.
/// - `uncommitted` counts the messages that ended without a delivery, and whose outcome is not on disk. While there are
///   such messages, no other message goes out: after a crash, the older messages would be sent again, out of order.
/// - From `more_from` on, all messages of the lane are only in the store.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(crate) struct Lane {
    pub(crate) number: i64,
    /// The number of its share in the window.
    pub(crate) share: u32,
    pub(crate) in_flight: Option<Slot>,
    pub(crate) uncommitted: u32,
    pub(crate) more_from: Option<Position>,
    /// The timer has released all messages that are due until then.
    pub(crate) due_until_ms: i64,
    /// It is in a queue for sending.
    pub(crate) is_offered: bool,
    /// Its key is paused: no message goes out.
    pub(crate) is_paused: bool,
    /// Its key waits after a send that was not accepted: no message goes out.
    pub(crate) is_waiting: bool,
    /// Its key fails again and again: no message comes into memory behind the message that is being tried.
    pub(crate) is_away: bool,
    /// Bytes of the waiting messages.
    pub(crate) size: usize,
    order: Order,
}

impl Lane {
    pub(crate) fn new(number: i64, share: u32, is_global: bool) -> Self {
        let order = if is_global { Order::Many(BTreeMap::new()) } else { Order::Few(Vec::new()) };
        Self {
            number,
            share,
            in_flight: None,
            uncommitted: 0,
            more_from: None,
            due_until_ms: i64::MIN,
            is_offered: false,
            is_paused: false,
            is_waiting: false,
            is_away: false,
            size: 0,
            order,
        }
    }

    /// How many messages wait.
    pub(crate) fn len(&self) -> usize {
        match &self.order {
            Order::Few(list) => list.len(),
            Order::Many(map) => map.len(),
        }
    }

    /// Whether the window can forget the lane.
    pub(crate) fn is_unused(&self) -> bool {
        self.len() == 0
            && self.in_flight.is_none()
            && self.uncommitted == 0
            && self.more_from.is_none()
            && !self.is_offered
            && !self.is_away // a message that is not in memory keeps its place
    }

    /// Whether its first message may go out once it is due.
    pub(crate) fn is_free(&self) -> bool {
        self.in_flight.is_none() && self.uncommitted == 0 && !self.is_paused && !self.is_waiting
    }

    /// No message is on its way any more. If the key does not wait, its messages may come into memory again.
    pub(crate) fn none_in_flight(&mut self) {
        self.in_flight = None;
        self.is_away &= self.is_waiting;
    }

    pub(crate) fn insert(&mut self, position: Position, slot: Slot, size: usize) {
        self.size += size;
        match &mut self.order {
            Order::Few(list) => {
                let place = list.partition_point(|(other, _)| *other > position);
                list.insert(place, (position, slot));
            }
            Order::Many(map) => {
                map.insert(position, slot);
            }
        }
    }

    pub(crate) fn remove(&mut self, position: Position, size: usize) {
        self.size -= size;
        match &mut self.order {
            Order::Few(list) => {
                let place = list.partition_point(|(other, _)| *other > position);
                debug_assert!(list.get(place).is_some_and(|(other, _)| *other == position));
                list.remove(place);
            }
            Order::Many(map) => {
                map.remove(&position);
            }
        }
    }

    /// The next message to send.
    pub(crate) fn first(&self) -> Option<(Position, Slot)> {
        match &self.order {
            Order::Few(list) => list.last().copied(),
            Order::Many(map) => map.first_key_value().map(|(position, slot)| (*position, *slot)),
        }
    }

    /// The last message to send.
    pub(crate) fn last(&self) -> Option<(Position, Slot)> {
        match &self.order {
            Order::Few(list) => list.first().copied(),
            Order::Many(map) => map.last_key_value().map(|(position, slot)| (*position, *slot)),
        }
    }
}

/// The waiting messages of a lane. The lane of a key has few in memory. The lane of all messages may have very many.
#[derive(Debug)]
enum Order {
    /// The last message comes first, so that the next one to send is at the end.
    Few(Vec<(Position, Slot)>),
    Many(BTreeMap<Position, Slot>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_keeps_the_order_of_delivery_whatever_comes_and_goes__d4() {
        for is_global in [false, true] {
            let mut random = fastrand::Rng::with_seed(3);
            let (mut lane, mut expected) = (Lane::new(7, 0, is_global), BTreeMap::new());
            for seq in 0..2_000_u32 {
                let position = (random.i64(0..20), i64::from(seq));
                lane.insert(position, seq, 3);
                expected.insert(position, seq);
                while expected.len() > random.usize(1..12) {
                    let place = random.usize(0..expected.len());
                    let gone = *expected.keys().nth(place).unwrap();
                    expected.remove(&gone);
                    lane.remove(gone, 3);
                }
                assert_eq!((lane.len(), lane.size), (expected.len(), 3 * expected.len()));
                assert_eq!(lane.first(), expected.first_key_value().map(|(position, slot)| (*position, *slot)));
                assert_eq!(lane.last(), expected.last_key_value().map(|(position, slot)| (*position, *slot)));
            }
        }
    }

    #[test]
    fn a_lane_is_needed_while_anything_is_known_of_it__d4() {
        let unused = || Lane::new(7, 0, false);
        assert!(unused().is_unused() && unused().is_free());
        let mut lane = unused();
        lane.in_flight = Some(1);
        assert!(!lane.is_unused() && !lane.is_free());
        let mut lane = unused();
        lane.uncommitted = 1;
        assert!(!lane.is_unused() && !lane.is_free());
        let mut lane = unused();
        lane.more_from = Some((1, 1));
        assert!(!lane.is_unused() && lane.is_free());
        let mut lane = unused();
        lane.is_offered = true;
        assert!(!lane.is_unused() && lane.is_free());
        let mut lane = unused();
        lane.insert((1, 1), 0, 10);
        assert!(!lane.is_unused() && lane.is_free());
    }
}
