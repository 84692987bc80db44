//! The front: the entries that have left the wheel and wait for their instants, by (due instant, add number).
//!
//! The wheel sorts to the tick, the front sorts within the last tick (T5, T6). It has keys, which name the entries:
//!
//! - The **run** is one sorted list. Most keys follow its end and are appended.
//! - Each step of a flush brings sorted keys. If they overlap the run, they become an **overlapping run** of their own. The
//!   runs are merged as they are read: O(log runs) a key. The keys of a dense bucket are partitioned before, so that they do
//!   not overlap (`partitions.rs`).
//! - A single key before the end of the run is **out of order**. Such keys are in a tree: O(log n).
//!
//! No call sorts more than one step. A run is a list in pages, so no call copies millions of keys. The key of a cancelled
//! entry stays until it is the first, or until its page has no live key. For each cancelled key in the tree, a few keys of
//! the tree are checked.
//!
//! Example: keys 3 and 5 come together, then 4. The run is 3 and 5, key 4 is out of order. They leave as 3, 4, 5.

mod dense_bucket;
mod lists;
mod partitions;
mod release;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Bound;

use lists::{List, ListPool, NO_POSITION, Positions};
use partitions::Partitions;

use crate::wheel::{ReleaseKey, Slab};

/// How many keys of the tree are checked for each cancelled key. So at most about a third of the keys are cancelled.
const CHECKED_PER_CANCEL: usize = 4;
/// How many keys of a step may come before the end of the run: they go to the tree, and the others are appended to the run.
const MAX_EARLY_KEYS: usize = 8;
/// The position of a key in the tree.
const IN_TREE: u32 = NO_POSITION;

#[derive(Debug, Default)]
pub(crate) struct Front {
    /// The lists of all runs and partitions.
    lists: ListPool<ReleaseKey>,
    /// The run that most keys follow.
    run: List,
    /// The last key that was appended to it.
    run_end: Option<ReleaseKey>,
    /// The runs that overlap it or each other, by the first key of each.
    overlapping: BinaryHeap<Reverse<OverlappingRun>>,
    /// The keys that were out of order when they came.
    tree: BTreeSet<ReleaseKey>,
    /// The key of the tree that was checked last.
    last_checked: Option<ReleaseKey>,
    /// The keys of a dense bucket while it is flushed.
    partitions: Option<Box<Partitions>>,
    live_count: usize,
}

/// A run that overlaps another. Its first key may have been cancelled, and may not be in the list any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct OverlappingRun {
    first: ReleaseKey,
    list: List,
}

/// A key names its entry by itself.
impl<T> Positions<ReleaseKey> for Slab<T> {
    fn is_at_position(&self, key: ReleaseKey, _position: u32) -> bool {
        self.is_in_front(&key)
    }

    #[inline]
    fn set_position(&mut self, key: ReleaseKey, position: u32) {
        self.set_in_front(key.slot, position);
    }
}

impl Front {
    /// How many entries wait here.
    pub(crate) fn len(&self) -> usize {
        self.live_count
    }

    /// Adds a key, and sets the position of its entry for [`Front::remove`].
    pub(crate) fn push(&mut self, key: ReleaseKey, positions: &mut impl Positions<ReleaseKey>) {
        self.live_count += 1;
        if self.follows_run(&key) {
            self.append_to_run(&[key], positions);
        } else {
            self.insert_into_tree(key, positions);
        }
    }

    /// Adds the sorted keys of a step, and sets the positions of their entries.
    pub(crate) fn extend(&mut self, keys: &[ReleaseKey], positions: &mut impl Positions<ReleaseKey>) {
        debug_assert!(keys.is_sorted(), "the keys of a run are in order");
        self.live_count += keys.len();
        let early = keys.iter().take(MAX_EARLY_KEYS + 1).take_while(|key| !self.follows_run(key)).count();
        if early <= MAX_EARLY_KEYS {
            keys[..early].iter().for_each(|key| self.insert_into_tree(*key, positions));
            self.append_to_run(&keys[early..], positions);
        } else {
            let list = self.lists.extend(List::default(), keys, positions);
            self.overlapping.push(Reverse(OverlappingRun { first: keys[0], list }));
        }
    }

    /// The entry at this position was cancelled or moved. O(1), in the tree O(log n); at most the work of a page.
    pub(crate) fn remove(&mut self, position: u32, is_live: impl Fn(&ReleaseKey) -> bool) {
        self.live_count -= 1;
        if position != IN_TREE {
            self.lists.remove(position);
        } else if self.live_count > 0 {
            self.check_tree(is_live);
        }
        if self.live_count == 0 {
            self.clear();
        }
    }

    /// Whether all keys are in the run.
    #[cfg(test)]
    pub(crate) fn is_one_run(&self) -> bool {
        self.overlapping.is_empty() && self.tree.is_empty()
    }

    /// Its memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let runs = self.overlapping.capacity() * size_of::<OverlappingRun>();
        let partitions = self.partitions.as_ref().map_or(0, |partitions| partitions.bytes());
        self.lists.bytes() + runs + partitions + self.tree.len() * size_of::<ReleaseKey>()
    }

    /// All keys in order, cancelled ones among them. O(n log n).
    #[cfg(test)]
    pub(crate) fn sorted(&self) -> Vec<ReleaseKey> {
        let unsorted = self.partitions.iter().flat_map(|partitions| partitions.unsorted()).copied();
        let lists = self.overlapping.iter().map(|Reverse(run)| run.list).chain([self.run]).chain(unsorted);
        let keys = lists.flat_map(|list| self.lists.iter_unread(list)).map(|(_, key)| key);
        let mut keys: Vec<_> = keys.chain(&self.tree).copied().collect();
        keys.sort_unstable();
        keys
    }

    fn follows_run(&self, key: &ReleaseKey) -> bool {
        self.run_end.is_none_or(|end| end < *key) || self.lists.is_empty(self.run)
    }

    fn append_to_run(&mut self, keys: &[ReleaseKey], positions: &mut impl Positions<ReleaseKey>) {
        self.run = self.lists.extend(self.run, keys, positions);
        self.run_end = keys.last().copied().or(self.run_end);
    }

    fn insert_into_tree(&mut self, key: ReleaseKey, positions: &mut impl Positions<ReleaseKey>) {
        self.tree.insert(key);
        positions.set_position(key, IN_TREE);
    }

    /// Checks the next few keys of the tree, and drops the cancelled ones. After the last key it starts again at the first.
    fn check_tree(&mut self, is_live: impl Fn(&ReleaseKey) -> bool) {
        for _ in 0..CHECKED_PER_CANCEL {
            let after = self.last_checked.map_or(Bound::Unbounded, Bound::Excluded);
            self.last_checked = self.tree.range((after, Bound::Unbounded)).next().copied();
            if let Some(key) = self.last_checked.filter(|key| !is_live(key)) {
                self.tree.remove(&key);
            }
        }
    }

    /// Drops all keys that are left when none is live.
    fn clear(&mut self) {
        self.tree.clear();
        for Reverse(run) in self.overlapping.drain() {
            self.lists.free_list(run.list);
        }
    }
}

#[cfg(test)]
mod tests;
