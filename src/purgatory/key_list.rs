//! The list of one key: the operations that wait for it, in order of arrival.

use std::collections::BTreeMap;

use smallvec::{SmallVec, smallvec};

use super::operation_types::{Locking, OperationTypes};
use crate::timer::STEP;

/// A list that most often has one item.
pub type ShortList<T> = SmallVec<[T; 1]>;

/// One operation's entry on one list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) list: ListId,
    /// The number of the place in its shard.
    pub(super) number: u64,
}

/// Identifies a list: no other list of the purgatory, earlier or later, has the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListId {
    /// The hash of the key, which leads to the shard.
    pub(super) hash: u64,
    /// The number of the first place on the list.
    pub(super) first: u64,
}

pub(crate) struct List<K: OperationTypes> {
    pub(super) key: K::Key,
    pub(super) id: ListId,
    pub(super) waiting: Waiting<K::Op>,
}

/// The operations by the number of their place. Most keys have one.
pub(crate) enum Waiting<Op> {
    One(u64, Op),
    Many(BTreeMap<u64, Op>),
}

/// The position of a walk along a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk {
    pub(super) list: ListId,
    pub(super) from: u64,
    /// The first place that was added after the walk began, and does not belong to it.
    pub(super) until: u64,
}

/// The next operations of a walk with their places, and whether there may be more.
pub(crate) type Step<K> = (ShortList<(Place, <K as OperationTypes>::Op)>, bool);

impl<K: OperationTypes> List<K> {
    /// The next operations of a walk, at most [`STEP`].
    pub(super) fn step<H: Locking<K>>(&self, host: &H, walk: &mut Walk) -> Step<K> {
        let place = |number: u64| Place { list: self.id, number };
        match &self.waiting {
            Waiting::One(number, op) if (walk.from..walk.until).contains(number) => {
                (smallvec![(place(*number), host.clone_ref(op))], false)
            }
            Waiting::One(..) => (ShortList::new(), false),
            Waiting::Many(waiting) => {
                let range = waiting.range(walk.from..walk.until).take(STEP);
                let step: ShortList<_> = range.map(|(number, op)| (place(*number), host.clone_ref(op))).collect();
                walk.from = step.last().map_or(walk.until, |(place, _)| place.number + 1);
                let more = step.len() == STEP;
                (step, more)
            }
        }
    }
}

impl<Op> Waiting<Op> {
    /// Adds an operation at the end.
    pub(super) fn push(&mut self, number: u64, op: Op) {
        match self {
            Self::Many(waiting) => {
                waiting.insert(number, op);
            }
            Self::One(..) => {
                if let Self::One(first, earlier) = std::mem::replace(self, Self::Many(BTreeMap::new())) {
                    *self = Self::Many(BTreeMap::from([(first, earlier), (number, op)]));
                }
            }
        }
    }
}
