//! The levels together: insert, remove, advance. The data structure alone: no lock, no clock, no thread.
//!
//! The wheel does not push: [`Wheel::insert`] returns what it armed, [`Wheel::flush`] what it armed and what left it. The
//! caller keeps the queue of armed buckets and the front, and tells the wheel where the clock stands.
//!
//! Example (Kafka's own; unit 1, size 3, start 0): level 1 covers `[0, 3)`, level 2 `[0, 9)`, level 3 `[0, 27)`. A task
//! that expires at 4 goes to level 2, bucket 1, `[3, 6)`; when that bucket expires at 3, level 1 covers `[3, 6)`, and the
//! task cascades to its bucket 1, `[4, 5)`.

#![forbid(unsafe_code)]

mod bucket;
mod flush;
mod level;
mod lists;
mod slab;

pub(crate) use bucket::{Bucket, expiration_ms};
pub(crate) use flush::Flushed;
use flush::Flushing;
use level::Level;
pub(crate) use lists::{List, NO_POSITION, Pages, Residents};
pub use slab::Handle;
pub(crate) use slab::{Entry, Key, Place, Slab};

/// So many entries of a bucket are read before they are placed.
const TOUCH: usize = 64;

/// A bucket that entered, or has to enter, the bucket queue. Levels count from 1, buckets from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Armed {
    pub(crate) expiration_ms: u64,
    pub(crate) level: u8,
    pub(crate) bucket: u32,
}

/// Where [`Wheel::insert`] put an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placed {
    /// Nowhere: it is for the front.
    Front,
    /// In a bucket of this level that was armed already.
    InArmed(Armed),
    /// In a bucket that must now enter the queue.
    Arm(Armed),
}

#[derive(Debug)]
pub(crate) struct Wheel {
    /// The lists of all buckets.
    lists: Pages<u32>,
    levels: Vec<Level>,
    /// When the current tick of level 1 ends, in microseconds: what is due before is for the front.
    tick_end_us: u64,
    /// One size per level, the last one repeating.
    sizes: Vec<u32>,
    flushing: Option<Flushing>,
    /// How many entries left each level for a lower one or for the front.
    pub(crate) cascaded: Vec<u64>,
    /// Buckets that were flushed, for whoever records; `None` while nobody does.
    pub(crate) flushed: Option<Vec<Flushed>>,
}

impl Wheel {
    pub(crate) fn new(tick_ms: u64, sizes: &[u32], start_ms: u64) -> Self {
        let level = Level::new(tick_ms, sizes[0], start_ms);
        Self {
            lists: Pages::default(),
            tick_end_us: level.next_ms().saturating_mul(1000),
            levels: vec![level],
            sizes: sizes.to_vec(),
            flushing: None,
            cascaded: vec![0],
            flushed: None,
        }
    }

    /// The finest tick.
    pub(crate) fn tick_ms(&self) -> u64 {
        self.levels[0].tick_ms
    }

    /// The entry at this position of a bucket left it. O(1).
    #[inline]
    pub(crate) fn remove(&mut self, position: u32) {
        self.lists.remove(position);
    }

    /// Whether all levels stand where they would at `now_us`, if nothing were armed: the finest moves first.
    #[inline]
    pub(crate) fn is_at(&self, now_us: u64) -> bool {
        now_us < self.tick_end_us
    }

    /// Moves every level up to `now_ms`, going up only while a level really moved (T4).
    pub(crate) fn advance(&mut self, now_ms: u64) {
        for level in &mut self.levels {
            if !level.advance(now_ms) {
                break;
            }
        }
        self.tick_end_us = self.levels[0].next_ms().saturating_mul(1000);
    }

    /// When the current tick of level 1 ends.
    pub(crate) fn tick_end_us(&self) -> u64 {
        self.tick_end_us
    }

    pub(crate) fn is_flushing(&self) -> bool {
        self.flushing.is_some()
    }

    /// Whether an armed bucket has lost all its entries.
    pub(crate) fn is_empty(&self, armed: Armed) -> bool {
        self.lists.is_empty(bucket::list(self.bucket(armed)))
    }

    /// Disarms a bucket that was taken out of the queue because it is empty.
    pub(crate) fn disarm(&mut self, armed: Armed) {
        bucket::disarm(self.bucket_mut(armed));
    }

    /// The earliest instant that an armed bucket may hold.
    pub(crate) fn earliest_us(&self, armed: Armed) -> u64 {
        bucket::earliest_us(self.bucket(armed))
    }

    /// On which level an entry stands, the finest being 1; 0 for the front. Right only just after it was placed.
    pub(crate) fn level_of<T>(&self, entry: &Entry<T>) -> u8 {
        if !matches!(entry.place, Place::Bucket(_)) {
            return 0;
        }
        self.levels.iter().take_while(|level| entry.due_us >= level.end_us).count() as u8 + 1
    }

    /// What it takes of memory. O(pages and levels).
    pub(crate) fn bytes(&self) -> usize {
        let buckets: usize = self.levels.iter().map(|level| level.buckets.len()).sum();
        self.lists.bytes() + buckets * size_of::<Bucket>()
    }

    /// The levels as they stand, the finest first.
    pub(crate) fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The slots of a bucket, in the order in which they joined it.
    pub(crate) fn slots<T>(&self, slab: &Slab<T>, bucket: &Bucket) -> impl Iterator<Item = u32> {
        self.lists.live_items(bucket::list(bucket), slab)
    }

    /// The slots of the bucket that is being flushed which have not been read.
    pub(crate) fn unread_slots<T>(&self, slab: &Slab<T>) -> impl Iterator<Item = u32> {
        self.flushing.iter().flat_map(|flushing| self.lists.live_items(flushing.list, slab))
    }

    /// Places an entry on the lowest level that covers it (T3), unless it is for the front. O(levels).
    #[expect(clippy::inline_always, reason = "handing its answer over by memory took a third of a cascade")]
    #[inline(always)]
    pub(crate) fn place<T>(&mut self, slab: &mut Slab<T>, slot: u32, due_us: u64) -> Placed {
        if self.is_at(due_us) {
            return Placed::Front;
        }
        let level = self.levels.iter().position(|level| due_us < level.end_us);
        let level = level.unwrap_or_else(|| self.make_levels(due_us));
        seat((slab, &mut self.lists), (&mut self.levels[level], level), slot, due_us)
    }

    /// Makes levels until the last one covers an instant; returns its number.
    #[cold]
    fn make_levels(&mut self, due_us: u64) -> usize {
        loop {
            let below = &self.levels[self.levels.len() - 1];
            let size = self.sizes[self.levels.len().min(self.sizes.len() - 1)];
            let level = Level::new(below.interval_ms, size, below.current_ms);
            let covers = due_us < level.end_us;
            self.levels.push(level);
            self.cascaded.push(0);
            if covers {
                return self.levels.len() - 1;
            }
        }
    }

    fn bucket(&self, armed: Armed) -> &Bucket {
        &self.levels[usize::from(armed.level) - 1].buckets[armed.bucket as usize]
    }

    fn bucket_mut(&mut self, armed: Armed) -> &mut Bucket {
        &mut self.levels[usize::from(armed.level) - 1].buckets[armed.bucket as usize]
    }
}

/// Places an entry in its bucket of a level that covers it.
#[expect(clippy::inline_always, reason = "see `Wheel::place`")]
#[inline(always)]
fn seat<T>(
    (slab, lists): (&mut Slab<T>, &mut Pages<u32>),
    (level, number): (&mut Level, usize),
    slot: u32,
    due_us: u64,
) -> Placed {
    let (index, ticks) = level.bucket_of(due_us);
    let bucket = &mut level.buckets[index as usize];
    bucket::lower_earliest_us(bucket, due_us);
    bucket::set_list(bucket, lists.push(bucket::list(bucket), slot, slab));
    let armed = |expiration_ms| Armed { expiration_ms, level: number as u8 + 1, bucket: index };
    if let Some(expiration_ms) = bucket::expiration_ms(bucket) {
        debug_assert_eq!(expiration_ms, level.expiration_ms(ticks), "an armed bucket left the range of its level");
        return Placed::InArmed(armed(expiration_ms));
    }
    let expiration_ms = level.expiration_ms(ticks);
    bucket::arm(&mut level.buckets[index as usize], expiration_ms);
    Placed::Arm(armed(expiration_ms))
}

#[cfg(test)]
mod tests;
