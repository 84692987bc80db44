//! `BucketQueue`: the min-heap of armed buckets.
//!
//! Armed once per tick and level, not once per task, which is what makes an add O(1) on average (seed 000). Of buckets
//! that expire together the highest level comes out first: so if the head is on level 1, nothing else expires with it.
//!
//! Example: tick 1000, size 3 with the seven tasks of seed 002: levels 1, 2 and 3 each have a bucket at 21; level 3's
//! comes out first, level 1's last, and only then the one at 22.

#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::wheel::Armed;

#[derive(Debug, Default)]
pub(crate) struct BucketQueue {
    heap: BinaryHeap<Reverse<(u64, Reverse<u8>, u32)>>,
}

impl BucketQueue {
    /// O(log armed buckets), as is `pop`.
    pub(crate) fn push(&mut self, armed: Armed) {
        self.heap.push(Reverse((armed.expiration_ms, Reverse(armed.level), armed.bucket)));
    }

    pub(crate) fn peek(&self) -> Option<Armed> {
        self.heap.peek().map(unpack)
    }

    pub(crate) fn pop(&mut self) -> Option<Armed> {
        self.heap.pop().map(|key| unpack(&key))
    }

    /// What it takes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.heap.capacity() * size_of::<Reverse<(u64, Reverse<u8>, u32)>>()
    }

    /// All armed buckets by expiration, then level, then bucket.
    pub(crate) fn sorted(&self) -> Vec<Armed> {
        let mut all: Vec<_> = self.heap.iter().map(unpack).collect();
        all.sort_by_key(|armed| (armed.expiration_ms, armed.level, armed.bucket));
        all
    }
}

fn unpack(key: &Reverse<(u64, Reverse<u8>, u32)>) -> Armed {
    let Reverse((expiration_ms, Reverse(level), bucket)) = *key;
    Armed { expiration_ms, level, bucket }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_buckets_that_expire_together_the_highest_level_comes_first() {
        let mut queue = BucketQueue::default();
        for (expiration_ms, level) in [(22, 1), (21, 1), (21, 3), (21, 2)] {
            queue.push(Armed { expiration_ms, level, bucket: 0 });
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|a| (a.expiration_ms, a.level)).collect();
        assert_eq!(order, [(21, 3), (21, 2), (21, 1), (22, 1)]);
    }
}
