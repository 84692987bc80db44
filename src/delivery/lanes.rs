//! The lane of a key: its messages in memory in the order of delivery, at most one of them on its way (rule D4).
//!
//! Nothing here has a lock: [`Window`](super::window::Window) owns the lanes, and the dispatcher's lock guards all of it.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::store::Position;

/// The place of a message in the window.
pub(super) type Slot = u32;

/// The messages of one key.
///
/// - `in_flight` is being sent, or waits to be tried again: nothing else of the lane goes out.
/// - `uncommitted` counts those that ended without being delivered and whose outcome is not on disk: until it is, nothing
///   else goes out either. After a crash they would come before what went out meanwhile.
/// - From `more_from` on, all others of the lane are in the store alone.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) number: i64,
    pub(super) in_flight: Option<Slot>,
    pub(super) uncommitted: u32,
    pub(super) more_from: Option<Position>,
    /// The timer has released what is due until then.
    pub(super) due_until_ms: i64,
    /// It is in the queue of what can be sent.
    pub(super) is_offered: bool,
    /// Bytes of the messages that wait.
    pub(super) size: usize,
    order: Order,
}

impl Lane {
    pub(super) fn new(number: i64, is_global: bool) -> Self {
        let order = if is_global { Order::Many(BTreeMap::new()) } else { Order::Few(Vec::new()) };
        Self {
            number,
            in_flight: None,
            uncommitted: 0,
            more_from: None,
            due_until_ms: i64::MIN,
            is_offered: false,
            size: 0,
            order,
        }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        match &self.order {
            Order::Few(list) => list.len(),
            Order::Many(map) => map.len(),
        }
    }

    /// Whether the window can let go of it.
    pub(super) fn is_unused(&self) -> bool {
        self.len() == 0
            && self.in_flight.is_none()
            && self.uncommitted == 0
            && self.more_from.is_none()
            && !self.is_offered
    }

    /// Whether its first message may go out, if that is due.
    pub(super) fn is_free(&self) -> bool {
        self.in_flight.is_none() && self.uncommitted == 0
    }

    pub(super) fn insert(&mut self, position: Position, slot: Slot, size: usize) {
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

    pub(super) fn remove(&mut self, position: Position, size: usize) {
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
    pub(super) fn first(&self) -> Option<(Position, Slot)> {
        match &self.order {
            Order::Few(list) => list.last().copied(),
            Order::Many(map) => map.first_key_value().map(|(position, slot)| (*position, *slot)),
        }
    }

    /// The one to be sent last.
    pub(super) fn last(&self) -> Option<(Position, Slot)> {
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
