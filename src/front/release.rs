//! Releasing the keys of the front in order: the run, the overlapping runs and the tree are merged as they are read.

use std::collections::binary_heap::PeekMut;

use super::{Front, OverlappingRun};
use crate::lists::List;
use crate::wheel::ReleaseKey;

/// Where the first key is.
#[derive(Clone, Copy)]
enum FirstKeyIn {
    /// The run, or an overlapping run.
    List(List),
    Tree,
}

impl Front {
    /// The first live key. Cancelled keys before it are dropped.
    pub(crate) fn first_live(&mut self, is_live: impl Fn(&ReleaseKey) -> bool) -> Option<ReleaseKey> {
        loop {
            let (key, place) = self.first()?;
            if is_live(&key) {
                return Some(key);
            }
            self.drop_first(place);
        }
    }

    /// Takes keys out in order, as long as they are ready. `release` releases the entry, and returns `false` if it was
    /// cancelled. Returns how many keys were read, at most `limit`.
    pub(crate) fn pop_while(
        &mut self,
        limit: usize,
        is_ready: impl Fn(&ReleaseKey) -> bool,
        mut release: impl FnMut(&ReleaseKey) -> bool,
    ) -> usize {
        let mut read = 0;
        while read < limit {
            if !self.overlapping.is_empty() {
                let merged = self.pop_overlapping_while(limit - read, &is_ready, &mut release);
                read += merged;
                if merged > 0 {
                    continue;
                }
            }
            if !self.tree.is_empty() || !self.overlapping.is_empty() {
                let Some((key, place)) = self.first().filter(|(key, _)| is_ready(key)) else { break };
                self.live_count -= usize::from(release(&key));
                self.drop_first(place);
                read += 1;
                continue;
            }
            // Nearly always there is only the run, and one loop reads a page of it.
            let (mut count, mut live_count) = (0, 0);
            for key in self.lists.unread(self.run).iter().take(limit - read).take_while(|key| is_ready(key)) {
                count += 1;
                live_count += usize::from(release(key));
            }
            if count == 0 {
                break;
            }
            self.lists.mark_read(self.run, count);
            self.live_count -= live_count;
            read += count;
        }
        read
    }

    /// As [`Front::pop_while`], but only while the first key is in an overlapping run.
    fn pop_overlapping_while(
        &mut self,
        limit: usize,
        is_ready: impl Fn(&ReleaseKey) -> bool,
        mut release: impl FnMut(&ReleaseKey) -> bool,
    ) -> usize {
        let first_in_run = self.lists.peek(self.run);
        let first_other = first_in_run.into_iter().chain(self.tree.first().copied()).min();
        let mut read = 0;
        while read < limit
            && let Some(mut top) = self.overlapping.peek_mut()
        {
            let OverlappingRun { first, list } = top.0;
            if !is_ready(&first) || first_other.is_some_and(|other| other < first) {
                break;
            }
            let keys = self.lists.unread(list);
            let mut next = keys.first().copied();
            if next == Some(first) {
                next = keys.get(1).copied();
                self.live_count -= usize::from(release(&first));
                self.lists.mark_read(list, 1);
                read += 1;
                if next.is_none() {
                    next = self.lists.peek(list);
                }
            }
            // If the first key was cancelled, and a sweep has dropped it, this gives the run its right place in the heap.
            match next {
                Some(next) => top.0.first = next,
                None => self.lists.free_list(PeekMut::pop(top).0.list),
            }
        }
        read
    }

    /// The first key, live or cancelled, and where it is.
    fn first(&mut self) -> Option<(ReleaseKey, FirstKeyIn)> {
        debug_assert!(self.partitions.is_none(), "a bucket is flushed before any key is released");
        let in_run = self.lists.peek(self.run).map(|key| (key, FirstKeyIn::List(self.run)));
        let in_tree = self.tree.first().map(|key| (*key, FirstKeyIn::Tree));
        let overlapping = self.first_overlapping();
        in_run.into_iter().chain(overlapping).chain(in_tree).min_by_key(|(key, _)| *key)
    }

    /// The first key of the overlapping runs. A run whose first key was cancelled gets its right place in the heap.
    fn first_overlapping(&mut self) -> Option<(ReleaseKey, FirstKeyIn)> {
        loop {
            let mut top = self.overlapping.peek_mut()?;
            let OverlappingRun { first, list } = top.0;
            match self.lists.peek(list) {
                Some(key) if key == first => return Some((first, FirstKeyIn::List(list))),
                Some(key) => top.0.first = key,
                None => self.lists.free_list(PeekMut::pop(top).0.list),
            }
        }
    }

    /// Drops the first key.
    fn drop_first(&mut self, place: FirstKeyIn) {
        match place {
            FirstKeyIn::Tree => {
                self.tree.pop_first();
            }
            FirstKeyIn::List(list) => self.lists.mark_read(list, 1),
        }
    }
}
