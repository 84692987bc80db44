//! The keys of a dense bucket while it is flushed: spread over parts by due instant.
//!
//! A bucket leaves the wheel in steps, and its entries stand in the order in which they joined it. Sorted step by step, the
//! steps of a large bucket overlap, and as many runs would have to be merged as there are steps. So the keys of such a
//! bucket go to parts first, unsorted. When all have come, the parts are sorted one after the other, each page where it
//! is, and join the run in turn. That costs O(1) a key, and sorts no more than a page at a time.
//!
//! Example: 7000 entries in a tick of 1 ms go into 10 parts of 100 us. What is due 730 us after the tick began goes to
//! part 7.

#![forbid(unsafe_code)]

use std::cmp::Reverse;

use super::{Front, Run};
use crate::wheel::{Key, List, Residents};

/// Fewer entries are not spread.
const DENSE: usize = 2048;
/// So many entries should come to a part: most parts fit into one page.
const TO_A_PART: usize = 700;

#[derive(Debug)]
pub(super) struct Parts {
    lists: Vec<List>,
    /// The part that is sorted next.
    next: usize,
    begin_us: u64,
    /// Parts in a microsecond, in units of 2^-32.
    scale: u64,
}

impl Parts {
    /// For a bucket of about so many entries; `None` if that is not dense.
    pub(super) fn for_entries(count: usize, begin_us: u64, tick_us: u64) -> Option<Self> {
        if count < DENSE {
            return None;
        }
        let lists = vec![List::default(); count / TO_A_PART];
        let scale = ((lists.len() as u64) << 32) / tick_us;
        Some(Self { lists, next: 0, begin_us, scale })
    }

    /// The part of what is due then.
    #[inline]
    pub(super) fn part_mut(&mut self, due_us: u64) -> &mut List {
        let number = self.number_of(due_us);
        &mut self.lists[number]
    }

    #[inline]
    fn number_of(&self, due_us: u64) -> usize {
        let number = due_us.saturating_sub(self.begin_us).saturating_mul(self.scale) >> 32;
        (number as usize).min(self.lists.len() - 1)
    }

    /// Takes out what is left of the part that is sorted next, which may be nothing; `None` after the last part.
    pub(super) fn take(&mut self) -> Option<List> {
        self.lists.get_mut(self.next).map(std::mem::take)
    }

    /// Puts the rest of that part back.
    pub(super) fn put_back(&mut self, list: List) {
        self.lists[self.next] = list;
    }

    /// That part is done.
    pub(super) fn go_on(&mut self) {
        self.next += 1;
    }

    /// What is not yet sorted.
    pub(super) fn unsorted(&self) -> &[List] {
        &self.lists[self.next..]
    }

    pub(super) fn bytes(&self) -> usize {
        self.lists.capacity() * size_of::<List>()
    }
}

impl Front {
    /// The keys of a bucket of about so many entries come next, all due in this tick; [`Front::gather`] ends that.
    pub(crate) fn expect(&mut self, entries: usize, begin_us: u64, tick_us: u64) {
        self.parts = Parts::for_entries(entries, begin_us, tick_us).map(Box::new);
    }

    /// Whether [`Front::gather`] has something to do.
    pub(crate) fn is_spread(&self) -> bool {
        self.parts.is_some()
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_and_cover_the_tick() {
        assert!(Parts::for_entries(DENSE - 1, 0, 1000).is_none());
        let parts = Parts::for_entries(7000, 5000, 1000).unwrap();
        assert_eq!(parts.unsorted().len(), 10);
        for (due_us, number) in [(5000, 0), (5099, 0), (5101, 1), (5730, 7), (5999, 9), (7000, 9), (0, 0)] {
            assert_eq!(parts.number_of(due_us), number, "{due_us}");
        }
        let numbers: Vec<_> = (5000..6000).map(|due_us| parts.number_of(due_us)).collect();
        assert!(numbers.is_sorted());
    }

    #[test]
    fn any_tick_can_be_spread() {
        for tick_us in [1, 1000, 1 << 40, u64::MAX] {
            let parts = Parts::for_entries(1 << 20, 7, tick_us).unwrap();
            let numbers = [0, 7, 8, 1 << 39, u64::MAX].map(|due_us| parts.number_of(due_us));
            assert!(numbers.is_sorted(), "{numbers:?}");
        }
    }
}
