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

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
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

/// Where the earliest key is.
#[derive(Clone, Copy)]
enum Head {
    /// At this position of the run.
    Run(u32),
    /// At this position of the first of the overlapping runs.
    Overlapping(u32),
    Straggler,
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

    /// The keys of a bucket of about so many entries come next, all due in this tick; [`Front::gather`] ends that.
    pub(crate) fn expect(&mut self, entries: usize, begin_us: u64, tick_us: u64) {
        self.parts = Parts::for_entries(entries, begin_us, tick_us).map(Box::new);
    }

    /// Whether [`Front::gather`] has something to do.
    pub(crate) fn is_spread(&self) -> bool {
        self.parts.is_some()
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

    /// Takes the keys of a step of a dense bucket in, in any order.
    #[inline(never)] // rare: [`Front::extend`] needs the registers
    pub(crate) fn spread(&mut self, keys: &[Key], residents: &mut impl Residents<Key>) {
        let Some(parts) = &mut self.parts else { return };
        self.live += keys.len();
        for key in keys {
            let part = parts.part_mut(key.due_us);
            *part = self.pages.push(*part, *key, residents);
        }
    }

    /// All keys of the bucket have come: sorts its parts, at least `limit` keys of them and at most a page more. Returns how
    /// many keys and parts it went over.
    #[inline(never)] // rare, and the loop that calls it needs the registers
    pub(crate) fn gather(&mut self, limit: usize) -> usize {
        let mut read = 0;
        while read < limit
            && let Some(parts) = &mut self.parts
        {
            let Some(part) = parts.take() else {
                self.parts = None;
                break;
            };
            let (page, rest) = self.pages.split_first(part);
            if self.pages.is_empty(rest) {
                self.pages.close(rest);
                parts.go_on();
            } else {
                parts.put_back(rest);
            }
            read += 1 + self.add_page(page);
        }
        read
    }

    /// Makes a page of a part a run, or part of the run; returns how many keys it has.
    fn add_page(&mut self, page: List) -> usize {
        let keys = self.pages.sort(page);
        let (count, Some(first), last) = (keys.len(), keys.first().copied(), keys.last().copied()) else {
            self.pages.close(page);
            return 0;
        };
        if self.follows_the_run(&first) {
            self.run = self.pages.append(self.run, page);
            self.last = last;
        } else {
            self.overlapping.push(Reverse(Run { first, list: page }));
        }
        count
    }

    /// The earliest key that is alive; dead ones before it are dropped.
    pub(crate) fn peek(&mut self, is_alive: impl Fn(&Key) -> bool) -> Option<Key> {
        loop {
            let (key, head) = self.head()?;
            if is_alive(&key) {
                return Some(key);
            }
            self.drop_head(head, false);
        }
    }

    /// Takes keys out, the earliest first, as long as they may go: `take` says whether one was alive. Returns how many were
    /// read, at most `limit`.
    pub(crate) fn pop_while(
        &mut self,
        limit: usize,
        may_go: impl Fn(&Key) -> bool,
        mut take: impl FnMut(&Key) -> bool,
    ) -> usize {
        let mut read = 0;
        while read < limit {
            if !self.overlapping.is_empty() {
                let merged = self.merge_while(limit - read, &may_go, &mut take);
                read += merged;
                if merged > 0 {
                    continue;
                }
            }
            if !self.stragglers.is_empty() || !self.overlapping.is_empty() {
                let Some((key, head)) = self.head().filter(|(key, _)| may_go(key)) else { break };
                let is_alive = take(&key);
                self.live -= usize::from(is_alive);
                self.drop_head(head, is_alive);
                read += 1;
                continue;
            }
            // Nearly always the run is all there is, and a page goes in one loop.
            let (position, keys) = self.pages.unread(self.run);
            let (mut looked_at, mut alive) = (0, 0);
            for key in keys.iter().take(limit - read).take_while(|key| may_go(key)) {
                looked_at += 1;
                alive += usize::from(take(key));
            }
            if looked_at == 0 {
                break;
            }
            self.pages.read(position, looked_at);
            self.pages.leave(position, alive);
            self.live -= alive;
            read += looked_at;
        }
        read
    }

    /// [`Front::pop_while`] for the overlapping runs alone, as long as nothing else is earlier.
    fn merge_while(
        &mut self,
        limit: usize,
        may_go: impl Fn(&Key) -> bool,
        mut take: impl FnMut(&Key) -> bool,
    ) -> usize {
        let run = self.pages.unread(self.run).1.first().copied();
        let until = run.into_iter().chain(self.stragglers.first().copied()).min();
        let mut read = 0;
        while read < limit
            && let Some(mut top) = self.overlapping.peek_mut()
        {
            let Run { first, list } = top.0;
            if !may_go(&first) || until.is_some_and(|until| until < first) {
                break;
            }
            let (position, keys) = self.pages.unread(list);
            let mut next = keys.first().copied();
            if next == Some(first) {
                next = keys.get(1).copied();
                let is_alive = take(&first);
                self.live -= usize::from(is_alive);
                self.pages.read(position, 1);
                if is_alive {
                    self.pages.leave(position, 1);
                }
                read += 1;
                if next.is_none() {
                    next = self.pages.unread(list).1.first().copied();
                }
            }
            // Where the first key was cancelled, and is gone with its page, the run takes its right place now.
            match next {
                Some(next) => top.0.first = next,
                None => self.pages.close(PeekMut::pop(top).0.list),
            }
        }
        read
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

    /// The earliest key, dead or alive, and where it is.
    fn head(&mut self) -> Option<(Key, Head)> {
        debug_assert!(self.parts.is_none(), "a bucket is flushed before anything is released");
        let (position, keys) = self.pages.unread(self.run);
        let run = keys.first().map(|key| (*key, Head::Run(position)));
        let straggler = self.stragglers.first().map(|key| (*key, Head::Straggler));
        let overlapping = self.first_overlapping();
        run.into_iter().chain(overlapping).chain(straggler).min_by_key(|(key, _)| *key)
    }

    /// The first key of the overlapping runs. The heap is put right where keys died that it went by.
    fn first_overlapping(&mut self) -> Option<(Key, Head)> {
        loop {
            let mut top = self.overlapping.peek_mut()?;
            let (position, keys) = self.pages.unread(top.0.list);
            match keys.first() {
                Some(first) if *first == top.0.first => return Some((*first, Head::Overlapping(position))),
                Some(first) => top.0.first = *first,
                None => self.pages.close(PeekMut::pop(top).0.list),
            }
        }
    }

    /// Moves past the earliest key.
    fn drop_head(&mut self, head: Head, was_alive: bool) {
        match head {
            Head::Straggler => {
                self.stragglers.pop_first();
            }
            Head::Run(position) | Head::Overlapping(position) => {
                self.pages.read(position, 1);
                if was_alive {
                    self.pages.leave(position, 1);
                }
            }
        }
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
