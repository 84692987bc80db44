//! How the keys of a dense bucket come to the front: partitioned while the bucket is flushed, then sorted in steps.

use std::cmp::Reverse;

use super::partitions::Partitions;
use super::{Front, OverlappingRun};
use crate::lists::List;
use crate::wheel::ReleaseKey;

impl Front {
    /// The next keys are those of a bucket of about `entries` entries, all due in one tick. If it is dense, they are
    /// partitioned until [`Front::sort_partitions`] is complete.
    pub(crate) fn start_bucket(&mut self, entries: usize, begin_us: u64, tick_us: u64) {
        self.partitions = Partitions::for_bucket(entries, begin_us, tick_us).map(Box::new);
    }

    /// Whether the keys of a dense bucket are being added or sorted.
    pub(crate) fn has_partitions(&self) -> bool {
        self.partitions.is_some()
    }

    /// Adds the keys of a step of a dense bucket, in any order.
    #[inline(never)] // rare: `Front::extend` needs the registers
    pub(crate) fn extend_unsorted(&mut self, keys: &[ReleaseKey]) {
        let Some(partitions) = &mut self.partitions else { return };
        self.live_count += keys.len();
        for key in keys {
            let partition = partitions.partition_mut(key.due_us);
            *partition = self.lists.push(*partition, *key);
        }
    }

    /// Sorts the partitions after the last step of the bucket: at least `limit` keys, and at most a page more. Returns how
    /// many keys and partitions it read.
    #[inline(never)] // rare: the loop that calls it needs the registers
    pub(crate) fn sort_partitions(&mut self, limit: usize) -> usize {
        let mut read = 0;
        while read < limit
            && let Some(partitions) = &mut self.partitions
        {
            let Some(partition) = partitions.take_next() else {
                self.partitions = None;
                break;
            };
            let (page, rest) = self.lists.split_first_page(partition);
            if rest == List::default() {
                partitions.finish_next();
            } else {
                partitions.put_back(rest);
            }
            read += 1 + self.sort_page(page);
        }
        read
    }

    /// Sorts a page of a partition, and makes it part of the run or an overlapping run. Returns how many keys it has.
    fn sort_page(&mut self, page: List) -> usize {
        let keys = self.lists.sort_page(page);
        let (count, Some(first), last) = (keys.len(), keys.first().copied(), keys.last().copied()) else {
            self.lists.free_list(page);
            return 0;
        };
        if self.follows_run(&first) {
            self.run = self.lists.append(self.run, page);
            self.run_end = last;
        } else {
            self.overlapping.push(Reverse(OverlappingRun { first, list: page }));
        }
        count
    }
}
