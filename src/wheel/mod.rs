//! The wheel: the levels and their buckets. The data structure alone: no lock, no clock, no thread.
//!
//! A bucket has a [reminder](reminder) of each of its entries; the entries are in the [`Slab`], which the caller passes. The
//! wheel calls nothing above it: [`Wheel::remind`] and [`Wheel::flush_step`] return which buckets must be armed and which entries
//! are for the front. The caller has the bucket queue and the front, and says what time it is.
//!
//! Example (Kafka's own; unit 1, size 3, start 0): level 1 covers `[0, 3)`, level 2 `[0, 9)`, level 3 `[0, 27)`. A task
//! that expires at 4 goes to level 2, bucket 1, `[3, 6)`. When that bucket expires at 3, level 1 covers `[3, 6)`, and the
//! task cascades to its bucket 1, `[4, 5)`.

mod bucket;
mod flush;
mod flush_state;
mod garbage;
mod level;
mod looking;
mod placed;
mod reminder;
mod slab;

pub(crate) use bucket::expiration_ms;
pub(crate) use flush_state::Flushed;
use flush_state::Flushing;
use level::Level;
pub(crate) use looking::BucketPage;
pub(crate) use placed::{BucketRef, Placed};
use reminder::{Mark, Reminder, Reminders};

use crate::lists::Lists;
#[cfg(test)]
pub(crate) use slab::MAX_NUMBER;
pub(crate) use slab::{Entry, Place, ReleaseKey, Removed, Slab, WaitBy};
pub use slab::{Handle, Ticket};

/// How many free pages of reminders keep their memory: as many as the buckets of a few levels need.
const KEPT_PAGES: usize = 64;

#[derive(Debug)]
pub(crate) struct Wheel {
    /// Those of all buckets.
    reminders: Reminders,
    /// The finest first.
    levels: Vec<Level>,
    /// When the current tick of level 1 ends, in microseconds. An entry that is due before is for the front.
    tick_end_us: u64,
    /// The size of each level; the last one is repeated.
    sizes: Vec<u32>,
    flushing: Option<Flushing>,
    /// How many entries left each level for a lower one or for the front. In a large bucket, cancelled entries count
    /// too. A moved entry leaves a level when its old instant comes.
    pub(crate) cascaded: Vec<u64>,
    /// The buckets that were flushed, while a recording runs.
    pub(crate) flushed: Option<Vec<Flushed>>,
}

impl Wheel {
    pub(crate) fn new(tick_ms: u64, sizes: &[u32], start_ms: u64) -> Self {
        let level = Level::new(1, tick_ms, sizes[0], start_ms);
        Self {
            reminders: Lists::new(KEPT_PAGES),
            tick_end_us: level.tick_end_ms().saturating_mul(1000),
            levels: vec![level],
            sizes: sizes.to_vec(),
            flushing: None,
            cascaded: vec![0],
            flushed: None,
        }
    }

    /// Gives an entry a reminder that was taken out of the wheel, unless it is for the front: `None`.
    fn place<T>(&mut self, slab: &mut Slab<T>, key: &ReleaseKey) -> Option<Placed> {
        match slab.wait_again(key, self.tick_end_us) {
            WaitBy::NewReminder(mark) => Some(self.remind(key.slot, mark, key.due_us)),
            WaitBy::Front | WaitBy::OldReminder => None,
        }
    }

    /// Puts a reminder with this mark on the lowest level that covers the instant (T3). O(levels).
    #[expect(clippy::inline_always, reason = "a call that answers through memory is a third of a cascade")]
    #[inline(always)]
    pub(crate) fn remind(&mut self, slot: u32, mark: Mark, due_us: u64) -> Placed {
        let index = self.levels.iter().position(|level| due_us < level.end_us);
        let index = index.unwrap_or_else(|| self.add_levels(due_us));
        self.levels[index].place(&mut self.reminders, Reminder::new(slot, mark), due_us)
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
    #[inline]
    pub(crate) fn tick_end_us(&self) -> u64 {
        self.tick_end_us
    }

    /// Disarms an empty bucket, which the caller has removed from the bucket queue.
    pub(crate) fn disarm(&mut self, armed: BucketRef) {
        let bucket = std::mem::replace(self.bucket_mut(armed), bucket::NEW);
        self.reminders.free_list(bucket::list(&bucket));
    }

    /// Its memory in bytes. O(pages and levels).
    pub(crate) fn bytes(&self) -> usize {
        let buckets: usize = self.levels.iter().map(|level| level.buckets.len()).sum();
        self.reminders.bytes() + buckets * size_of::<bucket::Bucket>()
    }

    /// The levels, the finest first.
    pub(crate) fn levels(&self) -> &[Level] {
        &self.levels
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

    fn bucket(&self, armed: BucketRef) -> &bucket::Bucket {
        &self.levels[usize::from(armed.level) - 1].buckets[armed.bucket as usize]
    }

    fn bucket_mut(&mut self, armed: BucketRef) -> &mut bucket::Bucket {
        &mut self.levels[usize::from(armed.level) - 1].buckets[armed.bucket as usize]
    }
}

#[cfg(test)]
mod tests;
