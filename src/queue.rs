//! `BucketQueue`: the min-heap of the armed buckets, by expiration.
//!
//! A bucket is armed once, not once for each of its tasks: so an add is O(1) on average. Of the buckets that expire together
//! the highest level is the first. So if the first bucket is on level 1, no other bucket expires with it.
//!
//! Example: in seven tasks a second apart (tick 1000, size 3) levels 1, 2 and 3 each have a bucket that expires at
//! 21. The bucket of level 3 comes first, then level 2, then level 1, and after them the bucket that expires at 22.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::wheel::BucketRef;

/// Expiration in milliseconds, level, bucket.
type HeapItem = Reverse<(u64, Reverse<u8>, u32)>;

#[derive(Debug, Default)]
pub(crate) struct BucketQueue {
    heap: BinaryHeap<HeapItem>,
}

impl BucketQueue {
    /// O(log armed buckets), as is `pop`.
    pub(crate) fn push(&mut self, armed: BucketRef) {
        self.heap.push(Reverse((armed.expiration_ms, Reverse(armed.level), armed.bucket)));
    }

    pub(crate) fn peek(&self) -> Option<BucketRef> {
        self.heap.peek().map(bucket_ref)
    }

    pub(crate) fn pop(&mut self) -> Option<BucketRef> {
        self.heap.pop().map(|item| bucket_ref(&item))
    }

    /// Its memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.heap.capacity() * size_of::<HeapItem>()
    }
}

fn bucket_ref(item: &HeapItem) -> BucketRef {
    let Reverse((expiration_ms, Reverse(level), bucket)) = *item;
    BucketRef { expiration_ms, level, bucket }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_buckets_that_expire_together_the_highest_level_comes_first() {
        let mut queue = BucketQueue::default();
        for (expiration_ms, level) in [(22, 1), (21, 1), (21, 3), (21, 2)] {
            queue.push(BucketRef { expiration_ms, level, bucket: 0 });
        }
        let order: Vec<_> =
            std::iter::from_fn(|| queue.pop()).map(|bucket| (bucket.expiration_ms, bucket.level)).collect();
        assert_eq!(order, [(21, 3), (21, 2), (21, 1), (22, 1)]);
    }
}
