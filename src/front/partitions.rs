//! Partitions: the keys of a dense bucket while it is flushed, by due instant.
//!
//! A bucket is flushed in steps, and its entries are in the order in which they joined it. If each step were sorted by
//! itself, the steps of a large bucket would overlap, and would be as many runs to merge. So the keys of such a bucket
//! go to partitions first, unsorted. After the last step the partitions are sorted one after the other, each page by
//! itself, and appended to the run. This takes O(1) for a key, and no call sorts more than a page.
//!
//! Example: 7000 entries in a tick of 1 ms go to 10 partitions of 100 us. An entry that is due 730 us after the begin of the
//! tick goes to partition 7.

use crate::lists::List;

/// A bucket with fewer entries is not dense.
const MIN_DENSE_ENTRIES: usize = 2048;
/// How many entries a partition should have: most partitions fit into one page.
const ENTRIES_PER_PARTITION: usize = 700;

#[derive(Debug)]
pub(super) struct Partitions {
    lists: Vec<List>,
    /// The partition that is sorted next.
    next: usize,
    /// When the tick begins.
    begin_us: u64,
    /// Partitions per microsecond, in units of 2^-32.
    scale: u64,
}

impl Partitions {
    /// For a bucket of about `entries` entries; `None` if it is not dense.
    pub(super) fn for_bucket(entries: usize, begin_us: u64, tick_us: u64) -> Option<Self> {
        if entries < MIN_DENSE_ENTRIES {
            return None;
        }
        let lists = vec![List::default(); entries / ENTRIES_PER_PARTITION];
        let scale = ((lists.len() as u64) << 32) / tick_us;
        Some(Self { lists, next: 0, begin_us, scale })
    }

    /// The partition of a due instant.
    #[inline]
    pub(super) fn partition_mut(&mut self, due_us: u64) -> &mut List {
        let index = self.index_of(due_us);
        &mut self.lists[index]
    }

    #[inline]
    fn index_of(&self, due_us: u64) -> usize {
        let index = due_us.saturating_sub(self.begin_us).saturating_mul(self.scale) >> 32;
        (index as usize).min(self.lists.len() - 1)
    }

    /// Takes out the rest of the next partition, which may be empty; `None` after the last one.
    pub(super) fn take_next(&mut self) -> Option<List> {
        self.lists.get_mut(self.next).map(std::mem::take)
    }

    /// Puts the rest of that partition back.
    pub(super) fn put_back(&mut self, list: List) {
        self.lists[self.next] = list;
    }

    /// That partition is sorted.
    pub(super) fn finish_next(&mut self) {
        self.next += 1;
    }

    /// The partitions that are not yet sorted.
    #[cfg(test)]
    pub(super) fn unsorted(&self) -> &[List] {
        &self.lists[self.next..]
    }

    pub(super) fn bytes(&self) -> usize {
        self.lists.capacity() * size_of::<List>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_in_order_and_cover_the_tick() {
        assert!(Partitions::for_bucket(MIN_DENSE_ENTRIES - 1, 0, 1000).is_none());
        let partitions = Partitions::for_bucket(7000, 5000, 1000).unwrap();
        assert_eq!(partitions.unsorted().len(), 10);
        for (due_us, index) in [(5000, 0), (5099, 0), (5101, 1), (5730, 7), (5999, 9), (7000, 9), (0, 0)] {
            assert_eq!(partitions.index_of(due_us), index, "{due_us}");
        }
        let indexes: Vec<_> = (5000..6000).map(|due_us| partitions.index_of(due_us)).collect();
        assert!(indexes.is_sorted());
    }

    #[test]
    fn a_tick_of_any_length_is_partitioned() {
        for tick_us in [1, 1000, 1 << 40, u64::MAX] {
            let partitions = Partitions::for_bucket(1 << 20, 7, tick_us).unwrap();
            let indexes = [0, 7, 8, 1 << 39, u64::MAX].map(|due_us| partitions.index_of(due_us));
            assert!(indexes.is_sorted(), "{indexes:?}");
        }
    }
}
