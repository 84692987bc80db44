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
//! entry leaves the tree at once. In a run it stays until it is the first, or is swept. A sweep begins if more than half of
//! the keys are useless.
//!
//! Example: keys 3 and 5 come together, then 4. The run is 3 and 5, key 4 is out of order. They leave as 3, 4, 5.

mod dense_bucket;
mod partitions;
mod release;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use partitions::Partitions;

use crate::lists::{List, Lists};
use crate::wheel::ReleaseKey;

/// Keys in a page.
const PAGE_SIZE: usize = 1024;
/// How many free pages keep their memory.
const KEPT_PAGES: usize = 8;
/// There is a sweep if the lists have more keys than this, and more than twice as many as are live.
const MIN_GARBAGE: usize = 1024;
/// How many keys of a step may come before the end of the run: they go to the tree, and the others are appended to the run.
const MAX_EARLY_KEYS: usize = 8;

#[derive(Debug)]
pub(crate) struct Front {
    /// The lists of all runs and partitions.
    lists: Lists<ReleaseKey, PAGE_SIZE>,
    /// The run that most keys follow.
    run: List,
    /// The last key that was appended to it.
    run_end: Option<ReleaseKey>,
    /// The runs that overlap it or each other, by the first key of each.
    overlapping: BinaryHeap<Reverse<OverlappingRun>>,
    /// The keys that were out of order when they came.
    tree: BTreeSet<ReleaseKey>,
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

impl Default for Front {
    fn default() -> Self {
        Self {
            lists: Lists::new(KEPT_PAGES),
            run: List::default(),
            run_end: None,
            overlapping: BinaryHeap::new(),
            tree: BTreeSet::new(),
            partitions: None,
            live_count: 0,
        }
    }
}

impl Front {
    /// How many entries wait here.
    pub(crate) fn len(&self) -> usize {
        self.live_count
    }

    /// Adds a key.
    pub(crate) fn push(&mut self, key: ReleaseKey) {
        self.live_count += 1;
        if self.follows_run(&key) {
            self.append_to_run(&[key]);
        } else {
            self.tree.insert(key);
        }
    }

    /// Adds the sorted keys of a step.
    pub(crate) fn extend(&mut self, keys: &[ReleaseKey]) {
        debug_assert!(keys.is_sorted(), "the keys of a run are in order");
        self.live_count += keys.len();
        let early = keys.iter().take(MAX_EARLY_KEYS + 1).take_while(|key| !self.follows_run(key)).count();
        if early <= MAX_EARLY_KEYS {
            self.tree.extend(&keys[..early]);
            self.append_to_run(&keys[early..]);
        } else {
            let list = self.lists.extend(List::default(), keys);
            self.overlapping.push(Reverse(OverlappingRun { first: keys[0], list }));
        }
    }

    /// The entry of this key was cancelled or moved. O(1), in the tree O(log n); at most the work of some pages.
    pub(crate) fn remove(&mut self, key: &ReleaseKey, is_live: impl Fn(&ReleaseKey) -> bool) {
        self.live_count -= 1;
        if !self.tree.remove(key) {
            // Never more pages for one call: all keys are read when the tick is over.
            self.lists.sweep_if_above(2 * self.live_count + MIN_GARBAGE, usize::MAX, |key| is_live(&key));
        }
        if self.live_count == 0 {
            self.free_overlapping();
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
        let mut keys: Vec<_> = lists.flat_map(|list| self.lists.iter(list)).chain(self.tree.iter().copied()).collect();
        keys.sort_unstable();
        keys
    }

    fn follows_run(&mut self, key: &ReleaseKey) -> bool {
        self.run_end.is_none_or(|end| end < *key) || self.lists.unread(self.run).is_empty()
    }

    fn append_to_run(&mut self, keys: &[ReleaseKey]) {
        self.run = self.lists.extend(self.run, keys);
        self.run_end = keys.last().copied().or(self.run_end);
    }

    /// No key is live, so only the overlapping runs are left that sweeps have emptied, or nearly.
    fn free_overlapping(&mut self) {
        for Reverse(run) in self.overlapping.drain() {
            self.lists.free_list(run.list);
        }
    }
}

#[cfg(test)]
mod tests;
