//! The lane of a key: its messages in memory in the order of delivery, at most one of them on its way (rule D4).
//!
//! Nothing here has a lock: [`Window`](super::window::Window) owns the lanes, and the dispatcher's lock guards all of it.

use std::collections::BTreeMap;

use crate::store::Position;

/// The place of a message in the window.
pub(crate) type Slot = u32;

/// The messages of one key.
///
/// - `in_flight` is being sent, or waits to be tried again: nothing else of the lane goes out.
/// - `uncommitted` counts those that ended without being delivered and whose outcome is not on disk: until it is, nothing
///   else goes out either. After a crash they would come before what went out meanwhile.
/// - From `more_from` on, all others of the lane are in the store alone.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) number: i64,
    pub(crate) in_flight: Option<Slot>,
    pub(crate) uncommitted: u32,
    pub(crate) more_from: Option<Position>,
    /// The timer has released what is due until then.
    pub(crate) due_until_ms: i64,
    /// It is in the queue of what can be sent.
    pub(crate) is_offered: bool,
    /// Its key is paused: nothing goes out.
    pub(crate) is_paused: bool,
    /// Bytes of the messages that wait.
    pub(crate) size: usize,
    order: Order,
}

impl Lane {
    pub(crate) fn new(number: i64, is_global: bool) -> Self {
        let order = if is_global { Order::Many(BTreeMap::new()) } else { Order::Few(Vec::new()) };
        Self {
            number,
            in_flight: None,
            uncommitted: 0,
            more_from: None,
            due_until_ms: i64::MIN,
            is_offered: false,
            is_paused: false,
            size: 0,
            order,
        }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        match &self.order {
            Order::Few(list) => list.len(),
            Order::Many(map) => map.len(),
        }
    }

    /// Whether the window can let go of it.
    pub(crate) fn is_unused(&self) -> bool {
        self.len() == 0
            && self.in_flight.is_none()
            && self.uncommitted == 0
            && self.more_from.is_none()
            && !self.is_offered
    }

    /// Whether its first message may go out, if that is due.
    pub(crate) fn is_free(&self) -> bool {
        self.in_flight.is_none() && self.uncommitted == 0 && !self.is_paused
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

    /// The next to be sent.
    pub(crate) fn first(&self) -> Option<(Position, Slot)> {
        match &self.order {
            Order::Few(list) => list.last().copied(),
            Order::Many(map) => map.first_key_value().map(|(position, slot)| (*position, *slot)),
        }
    }

    /// The one to be sent last.
    pub(crate) fn last(&self) -> Option<(Position, Slot)> {
        match &self.order {
            Order::Few(list) => list.first().copied(),
            Order::Many(map) => map.last_key_value().map(|(position, slot)| (*position, *slot)),
        }
    }
}

/// A key has a few messages in memory, and a lane of all messages has all.
#[derive(Debug)]
enum Order {
    /// The last one first, so that the next to be sent is taken off the end.
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
            let (mut lane, mut expected) = (Lane::new(7, is_global), BTreeMap::new());
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
        let unused = || Lane::new(7, false);
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
