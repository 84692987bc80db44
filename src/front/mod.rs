//! The front: what has left the wheel, by (due instant, add number).
//!
//! The wheel sorts to the tick, the front sorts the last tick (T5, T6). Keys arrive a step of a bucket at a time, and are
//! sorted. Most often they follow all that came before, and join one run. The keys of a dense bucket are spread over parts
//! before ([`partitions`]), so they do so too. Keys that overlap the run become a run of their own, and the runs are merged as they
//! are read: O(log runs) a key. No call sorts more than one step. Single keys that come out of order are stragglers, in a
//! tree: O(log n).
//!
//! A run is a list in pages, so millions of keys come and go without one long copy. A cancelled entry's key stays until it
//! comes to the head or until all of its page are dead; of the stragglers a few are looked at for each that dies.
//!
//! Example: keys 3 and 5 come in together, then 4: 3 and 5 are the run, 4 is a straggler; out they come as 3, 4, 5.

#![forbid(unsafe_code)]

mod partitions;
mod release;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Bound;

use partitions::Parts;

use crate::wheel::{Key, List, NO_POSITION, Pages, Residents};

/// So many stragglers are looked at for each that dies: at most about one in three is dead.
const LOOKED_AT: usize = 4;
/// So many keys of a step may come before the end of the run: they become stragglers, and the others join it.
const FEW: usize = 8;
/// Where a straggler stands.
const STRAGGLER: u32 = NO_POSITION;

#[derive(Debug, Default)]
pub(crate) struct Front {
    pages: Pages<Key>,
    /// The run that most keys join.
    run: List,
    /// The latest key that joined it.
    last: Option<Key>,
    /// The runs that overlap it or each other, by the first key of each.
    overlapping: BinaryHeap<Reverse<Run>>,
    stragglers: BTreeSet<Key>,
    /// Where the keys of a dense bucket go while it is flushed.
    parts: Option<Box<Parts>>,
    /// The last straggler that was looked at.
    looked_at: Option<Key>,
    live: usize,
}

/// An overlapping run. Its first key may have been cancelled, and be gone from the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    first: Key,
    list: List,
}

impl Front {
    /// How many entries wait here.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Takes a key in, and tells its entry where it stands, for [`Front::cancelled`].
    pub(crate) fn push(&mut self, key: Key, residents: &mut impl Residents<Key>) {
        self.live += 1;
        if self.follows_the_run(&key) {
            self.join_the_run(&[key], residents);
        } else {
            self.stray(key, residents);
        }
    }

    /// Takes the keys of a step in, and tells their entries where they stand.
    pub(crate) fn extend(&mut self, keys: &[Key], residents: &mut impl Residents<Key>) {
        debug_assert!(keys.is_sorted(), "what makes a run is in order");
        self.live += keys.len();
        let early = keys.iter().take(FEW + 1).take_while(|key| !self.follows_the_run(key)).count();
        if early <= FEW {
            keys[..early].iter().for_each(|key| self.stray(*key, residents));
            self.join_the_run(&keys[early..], residents);
        } else {
            let list = self.pages.extend(List::default(), keys, residents);
            self.overlapping.push(Reverse(Run { first: keys[0], list }));
        }
    }

    /// An entry was cancelled that stands there. O(1), of a straggler O(log); at most a page's work.
    pub(crate) fn cancelled(&mut self, position: u32, is_alive: impl Fn(&Key) -> bool) {
        self.live -= 1;
        if position != STRAGGLER {
            self.pages.remove(position);
        } else if self.live > 0 {
            self.look_at_stragglers(is_alive);
        }
        if self.live == 0 {
            self.drop_the_dead();
        }
    }

    /// Whether nothing has to be merged.
    #[cfg(test)]
    pub(crate) fn is_one_run(&self) -> bool {
        self.overlapping.is_empty() && self.stragglers.is_empty()
    }

    /// What it takes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let runs = self.overlapping.capacity() * size_of::<Run>();
        let parts = self.parts.as_ref().map_or(0, |parts| parts.bytes());
        self.pages.bytes() + runs + parts + self.stragglers.len() * size_of::<Key>()
    }

    /// Every key in order, dead ones among them. O(n log n).
    pub(crate) fn sorted(&self) -> Vec<Key> {
        let unsorted = self.parts.iter().flat_map(|parts| parts.unsorted()).copied();
        let lists = self.overlapping.iter().map(|Reverse(run)| run.list).chain([self.run]).chain(unsorted);
        let keys = lists.flat_map(|list| self.pages.iter(list)).map(|(_, key)| key);
        let mut keys: Vec<_> = keys.chain(&self.stragglers).copied().collect();
        keys.sort_unstable();
        keys
    }

    fn follows_the_run(&self, key: &Key) -> bool {
        self.last.is_none_or(|last| last < *key) || self.pages.is_empty(self.run)
    }

    fn join_the_run(&mut self, keys: &[Key], residents: &mut impl Residents<Key>) {
        self.run = self.pages.extend(self.run, keys, residents);
        self.last = keys.last().copied().or(self.last);
    }

    fn stray(&mut self, key: Key, residents: &mut impl Residents<Key>) {
        self.stragglers.insert(key);
        residents.stand(key, STRAGGLER);
    }

    /// Nothing is alive any more.
    fn drop_the_dead(&mut self) {
        self.stragglers.clear();
        for Reverse(run) in self.overlapping.drain() {
            self.pages.close(run.list);
        }
    }

    /// Goes round among the stragglers, a few at a time, and drops the dead.
    fn look_at_stragglers(&mut self, is_alive: impl Fn(&Key) -> bool) {
        for _ in 0..LOOKED_AT {
            let after = self.looked_at.map_or(Bound::Unbounded, Bound::Excluded);
            self.looked_at = self.stragglers.range((after, Bound::Unbounded)).next().copied();
            if let Some(key) = self.looked_at.filter(|key| !is_alive(key)) {
                self.stragglers.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
