//! The front: what has left the wheel, by (due instant, add number).
//!
//! The wheel sorts to the tick, the front sorts the last tick (T5, T6). Most of it arrives in order, so it is a run of
//! keys with a tree beside it for the stragglers: O(1) for what comes in order, O(log) for the rest. The run is kept in
//! pages and a tree has nodes, so millions of keys come and go without one long copy. A cancelled entry's key stays until
//! it comes to the head, or until all of its page are dead; of the stragglers a few are looked at for each that dies.
//!
//! Example: keys 3, 5, 4 come in; 3 and 5 join the run, 4 the tree; out they come as 3, 4, 5.

#![forbid(unsafe_code)]

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;

use crate::wheel::Key;

/// Keys in a page of the run.
const PAGE: usize = 1024;
/// So many stragglers are looked at for each that dies: at most about one in three is dead.
const LOOKED_AT: usize = 4;
/// Where a key stands that is a straggler; pages have lower numbers.
const STRAGGLER: u32 = u32::MAX;
/// Pages are numbered in a circle: there are never nearly so many.
const NUMBERS: u32 = u32::MAX >> 1;

#[derive(Debug, Default)]
struct Page {
    keys: Vec<Key>,
    /// How many have been read.
    read: usize,
    live: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Front {
    run: VecDeque<Page>,
    /// The number of the first page of the run.
    first: u32,
    /// The latest key that joined the run, while there is one.
    last: Option<Key>,
    stragglers: BTreeSet<Key>,
    /// The last straggler that was looked at.
    looked_at: Option<Key>,
    live: usize,
    /// Memory for the next page.
    spare: Vec<Key>,
}

impl Front {
    /// How many entries wait here.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Takes a key in; where it stands, for [`Front::cancelled`].
    pub(crate) fn push(&mut self, key: Key) -> u32 {
        let mut stands = STRAGGLER;
        self.extend(&[key], |_, position| stands = position);
        stands
    }

    /// Takes keys in, and says of each slot where it stands. Sorted ones that come after all before join the run at once.
    pub(crate) fn extend(&mut self, mut keys: &[Key], mut stand: impl FnMut(u32, u32)) {
        debug_assert!(keys.is_sorted(), "what joins the run is in order");
        self.live += keys.len();
        while let (Some(key), Some(last)) = (keys.first(), self.last)
            && last >= *key
        {
            self.stragglers.insert(*key);
            stand(key.slot, STRAGGLER);
            keys = &keys[1..];
        }
        while !keys.is_empty() {
            if self.run.back().is_none_or(|page| page.keys.len() == PAGE) {
                self.run.push_back(Page { keys: std::mem::take(&mut self.spare), ..Page::default() });
            }
            let number = self.first.wrapping_add(self.run.len() as u32 - 1) & NUMBERS;
            let Some(page) = self.run.back_mut() else { return };
            let (now, later) = keys.split_at(keys.len().min(PAGE - page.keys.len()));
            for key in now {
                stand(key.slot, number);
            }
            page.keys.extend_from_slice(now);
            page.live += now.len();
            self.last = now.last().copied();
            keys = later;
        }
    }

    /// The earliest key that is alive; dead ones before it are dropped.
    pub(crate) fn peek(&mut self, is_alive: impl Fn(&Key) -> bool) -> Option<Key> {
        loop {
            let (key, is_straggler) = self.head()?;
            if is_alive(&key) {
                return Some(key);
            }
            self.drop_head(is_straggler);
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
            if !self.stragglers.is_empty() {
                let Some((key, is_straggler)) = self.head().filter(|(key, _)| may_go(key)) else { break };
                if take(&key) {
                    self.live -= 1;
                    if let Some(page) = self.run.front_mut().filter(|_| !is_straggler) {
                        page.live -= 1;
                    }
                }
                self.drop_head(is_straggler);
                read += 1;
                continue;
            }
            // Nearly always there are no stragglers, and a page goes in one loop.
            let Some(page) = self.run.front_mut() else { break };
            let keys = page.keys[page.read..].iter().take(limit - read).take_while(|key| may_go(key));
            let (mut looked_at, mut alive) = (0, 0);
            for key in keys {
                looked_at += 1;
                alive += usize::from(take(key));
            }
            page.read += looked_at;
            page.live -= alive;
            self.live -= alive;
            read += looked_at;
            if page.read < page.keys.len() {
                break;
            }
            self.drop_read_pages();
        }
        read
    }

    /// An entry was cancelled that stands there. O(1), of a straggler O(log); at most a page's work.
    pub(crate) fn cancelled(&mut self, position: u32, is_alive: impl Fn(&Key) -> bool) {
        self.live -= 1;
        if position == STRAGGLER {
            self.look_at_stragglers(is_alive);
            return;
        }
        let page = &mut self.run[(position.wrapping_sub(self.first) & NUMBERS) as usize];
        page.live -= 1;
        if page.live == 0 {
            let keys = std::mem::take(&mut page.keys);
            page.read = 0;
            self.keep(keys);
            self.drop_read_pages();
        }
    }

    /// What it takes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let keys: usize = self.run.iter().map(|page| page.keys.capacity()).sum();
        (keys + self.stragglers.len() + self.spare.capacity()) * size_of::<Key>()
            + self.run.capacity() * size_of::<Page>()
    }

    /// Every key in order, dead ones among them. O(n log n).
    pub(crate) fn sorted(&self) -> Vec<Key> {
        let run = self.run.iter().flat_map(|page| &page.keys[page.read..]);
        let mut keys: Vec<_> = run.chain(&self.stragglers).copied().collect();
        keys.sort_unstable();
        keys
    }

    /// The earliest key, dead or alive, and whether it is a straggler.
    fn head(&self) -> Option<(Key, bool)> {
        let run = self.run.front().map(|page| page.keys[page.read]);
        match (run, self.stragglers.first().copied()) {
            (Some(run), Some(straggler)) => Some((run.min(straggler), straggler < run)),
            (Some(run), None) => Some((run, false)),
            (None, straggler) => straggler.map(|key| (key, true)),
        }
    }

    /// Moves past the earliest key.
    fn drop_head(&mut self, is_straggler: bool) {
        if is_straggler {
            self.stragglers.pop_first();
        } else if let Some(page) = self.run.front_mut() {
            page.read += 1;
            if page.read == page.keys.len() {
                self.drop_read_pages();
            }
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

    /// Keeps the memory of a page for the next one, if it is the larger.
    fn keep(&mut self, mut keys: Vec<Key>) {
        if keys.capacity() > self.spare.capacity() {
            keys.clear();
            self.spare = keys;
        }
    }

    /// Drops pages at the head of the run that have nothing left to read.
    fn drop_read_pages(&mut self) {
        while self.run.front().is_some_and(|page| page.read == page.keys.len())
            && let Some(page) = self.run.pop_front()
        {
            self.first = self.first.wrapping_add(1) & NUMBERS;
            self.keep(page.keys);
        }
        if self.run.is_empty() {
            self.last = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(due_us: u64, number: u64) -> Key {
        Key { due_us, number, slot: number as u32, generation: 0 }
    }

    /// The earliest key that is alive.
    fn pop(front: &mut Front, is_alive: impl Fn(&Key) -> bool) -> Option<Key> {
        let mut popped = None;
        let mut read = 1;
        while popped.is_none() && read == 1 {
            read = front.pop_while(1, |_| true, |key| is_alive(key) && popped.replace(*key).is_none());
        }
        popped
    }

    #[test]
    fn keys_come_out_by_instant_then_by_add_number__t6() {
        let mut front = Front::default();
        for key in [key(3, 1), key(5, 2), key(4, 3), key(5, 0), key(9, 4), key(4, 5)] {
            front.push(key);
        }
        let mut out = Vec::new();
        while let Some(key) = pop(&mut front, |_| true) {
            out.push((key.due_us, key.number));
        }
        assert_eq!(out, [(3, 1), (4, 3), (4, 5), (5, 0), (5, 2), (9, 4)]);
        assert_eq!(front.len(), 0);
    }

    #[test]
    fn what_may_not_go_stays() {
        let mut front = Front::default();
        front.push(key(3, 1));
        assert_eq!(front.pop_while(9, |key| key.due_us < 3, |_| unreachable!("it may not go")), 0);
        assert_eq!((front.peek(|_| true), front.len()), (Some(key(3, 1)), 1));
    }

    /// Everything at once, against a sorted list: pages that fill, die and go, stragglers, pops in between.
    #[test]
    fn any_mix_of_pushes_cancels_and_pops_comes_out_in_order() {
        let mut front = Front { first: NUMBERS - 3, ..Front::default() };
        let mut alive = std::collections::BTreeMap::new();
        let mut seed = 1_u64;
        for number in 0..60_000_u64 {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let random = seed >> 33;
            let due_us = if random.is_multiple_of(16) { number / 2 } else { number };
            let position = front.push(key(due_us, number));
            alive.insert((due_us, number), position);
            // In turn mostly more comes than goes, and the other way round; cancels take from anywhere.
            let cancels = if number / 5000 % 2 == 0 { random % 2 } else { 1 + random % 2 };
            for turn in 0..cancels {
                let from = (due_us.saturating_sub(random % 4000 + turn), 0);
                if let Some((&(due, number), &position)) = alive.range(from..).next() {
                    alive.remove(&(due, number));
                    front.cancelled(position, |key| alive.contains_key(&(key.due_us, key.number)));
                }
            }
            if random.is_multiple_of(3) {
                let popped = pop(&mut front, |key| alive.contains_key(&(key.due_us, key.number)));
                assert_eq!(popped.map(|key| (key.due_us, key.number)), alive.pop_first().map(|(key, _)| key));
            }
            assert_eq!(front.len(), alive.len());
        }
        while let Some(popped) = pop(&mut front, |key| alive.contains_key(&(key.due_us, key.number))) {
            assert_eq!(Some((popped.due_us, popped.number)), alive.pop_first().map(|(key, _)| key));
        }
        assert!(alive.is_empty() && front.run.is_empty());
    }

    #[test]
    fn cancelled_keys_give_their_memory_back() {
        let mut front = Front::default();
        let positions: Vec<_> = (0..100_000).map(|number| front.push(key(number, number))).collect();
        let full = front.bytes();
        for (number, position) in (0..).zip(&positions[..99_000]) {
            front.cancelled(*position, |key| key.number > number);
        }
        assert_eq!(front.len(), 1000);
        assert!(front.bytes() < full / 20, "{} of {full}", front.bytes());
    }

    #[test]
    fn cancelled_stragglers_go_too() {
        let mut front = Front::default();
        let positions: Vec<_> = (0..1000).rev().map(|number| front.push(key(number, number))).collect();
        for (number, position) in (0..1000).rev().zip(positions).take(990) {
            front.cancelled(position, |key| key.number < number);
        }
        assert_eq!(front.len(), 10);
        assert!(front.sorted().len() < 200);
    }
}
