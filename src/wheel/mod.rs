//! The wheel: the levels and their buckets. The data structure alone: no lock, no clock, no thread.
//!
//! A bucket has the slots of its entries; the entries are in the [`Slab`], which the caller passes. The wheel calls nothing
//! above it: [`Wheel::place`] and [`Wheel::flush_step`] return which buckets must be armed and which entries are for the
//! front. The caller has the bucket queue and the front, and says what time it is.
//!
//! Example (Kafka's own; unit 1, size 3, start 0): level 1 covers `[0, 3)`, level 2 `[0, 9)`, level 3 `[0, 27)`. A task
//! that expires at 4 goes to level 2, bucket 1, `[3, 6)`. When that bucket expires at 3, level 1 covers `[3, 6)`, and the
//! task cascades to its bucket 1, `[4, 5)`.

#![forbid(unsafe_code)]

mod bucket;
mod flush;
mod flush_state;
mod level;
mod lists;
mod page_numbering;
mod placed;
mod slab;

pub(crate) use bucket::{Bucket, expiration_ms};
pub(crate) use flush_state::Flushed;
use flush_state::Flushing;
use level::Level;
pub(crate) use lists::{List, ListPool, NO_POSITION, Positions};
pub(crate) use placed::{BucketRef, Placed};
pub use slab::Handle;
pub(crate) use slab::{Entry, Place, ReleaseKey, Slab};

#[derive(Debug)]
pub(crate) struct Wheel {
    /// The lists of all buckets.
    lists: ListPool<u32>,
    /// The finest first.
    levels: Vec<Level>,
    /// When the current tick of level 1 ends, in microseconds. An entry that is due before is for the front.
    tick_end_us: u64,
    /// The size of each level; the last one is repeated.
    sizes: Vec<u32>,
    flushing: Option<Flushing>,
    /// How many entries left each level for a lower one or for the front.
    pub(crate) cascaded: Vec<u64>,
    /// The buckets that were flushed, while a recording runs.
    pub(crate) flushed: Option<Vec<Flushed>>,
}

impl Wheel {
    pub(crate) fn new(tick_ms: u64, sizes: &[u32], start_ms: u64) -> Self {
        let level = Level::new(1, tick_ms, sizes[0], start_ms);
        Self {
            lists: ListPool::default(),
            tick_end_us: level.tick_end_ms().saturating_mul(1000),
            levels: vec![level],
            sizes: sizes.to_vec(),
            flushing: None,
            cascaded: vec![0],
            flushed: None,
        }
    }

    /// Places an entry on the lowest level that covers it (T3), unless it is for the front. O(levels).
    #[expect(clippy::inline_always, reason = "a call that answers through memory is a third of a cascade")]
    #[inline(always)]
    pub(crate) fn place<T>(&mut self, slab: &mut Slab<T>, slot: u32, due_us: u64) -> Placed {
        if self.is_before_tick_end(due_us) {
            return Placed::ForFront;
        }
        let index = self.levels.iter().position(|level| due_us < level.end_us);
        let index = index.unwrap_or_else(|| self.add_levels(due_us));
        self.levels[index].place(&mut self.lists, slab, slot, due_us)
    }

    /// The entry at this position of a bucket is not there any more. O(1).
    #[inline]
    pub(crate) fn remove(&mut self, position: u32) {
        self.lists.remove(position);
    }

    /// Whether an instant is before the end of the current tick of level 1. If now is, no level has to advance.
    #[inline]
    pub(crate) fn is_before_tick_end(&self, instant_us: u64) -> bool {
        instant_us < self.tick_end_us
    }

    /// Advances every level to `now_ms`; a level is looked at only if the one below it moved (T4).
    pub(crate) fn advance(&mut self, now_ms: u64) {
        for level in &mut self.levels {
            if !level.advance(now_ms) {
                break;
            }
        }
        self.tick_end_us = self.levels[0].tick_end_ms().saturating_mul(1000);
    }

    /// The tick of level 1.
    pub(crate) fn tick_ms(&self) -> u64 {
        self.levels[0].tick_ms
    }

    /// When the current tick of level 1 ends.
    pub(crate) fn tick_end_us(&self) -> u64 {
        self.tick_end_us
    }

    /// Whether an armed bucket has no entries any more.
    pub(crate) fn is_bucket_empty(&self, armed: BucketRef) -> bool {
        self.lists.is_empty(bucket::list(self.bucket(armed)))
    }

    /// Disarms an empty bucket, which the caller has removed from the bucket queue.
    pub(crate) fn disarm(&mut self, armed: BucketRef) {
        bucket::disarm(self.bucket_mut(armed));
    }

    /// No entry of an armed bucket is due before this instant.
    pub(crate) fn earliest_us(&self, armed: BucketRef) -> u64 {
        bucket::earliest_us(self.bucket(armed))
    }

    /// The level of an entry that was just placed, from 1; 0 for the front.
    pub(crate) fn level_of<T>(&self, entry: &Entry<T>) -> u8 {
        if !matches!(entry.place, Place::Bucket(_)) {
            return 0;
        }
        self.levels.iter().take_while(|level| entry.due_us >= level.end_us).count() as u8 + 1
    }

    /// Its memory in bytes. O(pages and levels).
    pub(crate) fn bytes(&self) -> usize {
        let buckets: usize = self.levels.iter().map(|level| level.buckets.len()).sum();
        self.lists.bytes() + buckets * size_of::<Bucket>()
    }

    /// The levels, the finest first.
    pub(crate) fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The slots of a bucket, in the order in which the entries joined it.
    pub(crate) fn bucket_slots<T>(&self, slab: &Slab<T>, bucket: &Bucket) -> impl Iterator<Item = u32> {
        self.lists.live_items(bucket::list(bucket), slab)
    }

    /// How many entries a bucket has. O(pages).
    pub(crate) fn bucket_len(&self, bucket: &Bucket) -> usize {
        self.lists.exact_len(bucket::list(bucket))
    }

    /// Adds levels until the last one covers an instant; returns its index.
    #[cold]
    fn add_levels(&mut self, due_us: u64) -> usize {
        loop {
            let below = &self.levels[self.levels.len() - 1];
            let size = self.sizes[self.levels.len().min(self.sizes.len() - 1)];
            let level = Level::new(below.number + 1, below.interval_ms, size, below.current_ms);
            let covers = due_us < level.end_us;
            self.levels.push(level);
            self.cascaded.push(0);
            if covers {
                return self.levels.len() - 1;
            }
        }
    }

    fn bucket(&self, armed: BucketRef) -> &Bucket {
        &self.levels[usize::from(armed.level) - 1].buckets[armed.bucket as usize]
    }

    fn bucket_mut(&mut self, armed: BucketRef) -> &mut Bucket {
        &mut self.levels[usize::from(armed.level) - 1].buckets[armed.bucket as usize]
    }
}

#[cfg(test)]
mod tests;
