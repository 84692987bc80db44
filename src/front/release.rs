//! Releasing the keys of the front in order: the run, the overlapping runs and the tree are merged as they are read.

use std::collections::binary_heap::PeekMut;

use super::{Front, OverlappingRun};
use crate::wheel::ReleaseKey;

/// Where the first key is.
#[derive(Clone, Copy)]
enum FirstKeyIn {
    /// At this position of the run.
    Run(u32),
    /// At this position of the first overlapping run.
    Overlapping(u32),
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
            self.drop_first(place, false);
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
                let was_live = release(&key);
                self.live_count -= usize::from(was_live);
                self.drop_first(place, was_live);
                read += 1;
                continue;
            }
            // Nearly always there is only the run, and one loop reads a page of it.
            let (position, keys) = self.lists.unread_items(self.run);
            let (mut count, mut live_count) = (0, 0);
            for key in keys.iter().take(limit - read).take_while(|key| is_ready(key)) {
                count += 1;
                live_count += usize::from(release(key));
            }
            if count == 0 {
                break;
            }
            self.lists.mark_read(position, count);
            self.lists.remove_from_page(position, live_count);
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
        let first_in_run = self.lists.unread_items(self.run).1.first().copied();
        let first_other = first_in_run.into_iter().chain(self.tree.first().copied()).min();
        let mut read = 0;
        while read < limit
            && let Some(mut top) = self.overlapping.peek_mut()
        {
            let OverlappingRun { first, list } = top.0;
            if !is_ready(&first) || first_other.is_some_and(|other| other < first) {
                break;
            }
            let (position, keys) = self.lists.unread_items(list);
            let mut next = keys.first().copied();
            if next == Some(first) {
                next = keys.get(1).copied();
                let was_live = release(&first);
                self.live_count -= usize::from(was_live);
                self.lists.mark_read(position, 1);
                if was_live {
                    self.lists.remove_from_page(position, 1);
                }
                read += 1;
                if next.is_none() {
                    next = self.lists.unread_items(list).1.first().copied();
                }
            }
            // If the first key was cancelled, and its page was freed, this gives the run its right place in the heap.
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
        let (position, keys) = self.lists.unread_items(self.run);
        let in_run = keys.first().map(|key| (*key, FirstKeyIn::Run(position)));
        let in_tree = self.tree.first().map(|key| (*key, FirstKeyIn::Tree));
        let overlapping = self.first_overlapping();
        in_run.into_iter().chain(overlapping).chain(in_tree).min_by_key(|(key, _)| *key)
    }

    /// The first key of the overlapping runs. A run whose first key was cancelled gets its right place in the heap.
    fn first_overlapping(&mut self) -> Option<(ReleaseKey, FirstKeyIn)> {
        loop {
            let mut top = self.overlapping.peek_mut()?;
            let (position, keys) = self.lists.unread_items(top.0.list);
            match keys.first() {
                Some(first) if *first == top.0.first => return Some((*first, FirstKeyIn::Overlapping(position))),
                Some(first) => top.0.first = *first,
                None => self.lists.free_list(PeekMut::pop(top).0.list),
            }
        }
    }

    /// Drops the first key.
    fn drop_first(&mut self, place: FirstKeyIn, was_live: bool) {
        match place {
            FirstKeyIn::Tree => {
                self.tree.pop_first();
            }
            FirstKeyIn::Run(position) | FirstKeyIn::Overlapping(position) => {
                self.lists.mark_read(position, 1);
                if was_live {
                    self.lists.remove_from_page(position, 1);
                }
            }
        }
    }
}
