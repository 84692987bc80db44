//! Release.

#![forbid(unsafe_code)]

use std::collections::binary_heap::PeekMut;

use super::{Front, Run};
use crate::wheel::Key;

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
}
