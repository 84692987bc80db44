//! Looking at the buckets: what they have, and when the first of it is due.

use super::level::Level;
use super::{BucketRef, Entry, Place, Slab, Wheel, bucket};

/// How many entries of a bucket are looked at for the earliest of them.
const MAX_LOOKED_AT: usize = 64;

/// A page of reminders, and the bucket that it belongs to: indexes from 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BucketPage {
    pub(crate) level: usize,
    pub(crate) bucket: usize,
    page: u32,
}

impl Wheel {
    /// The earliest instant in an armed bucket of level 1, or when the bucket expires if it has many entries: at that
    /// density a wake-up too early is one for many of them. Never later than the end of the bucket, because an entry
    /// that was moved out of it may be due after the entries of the next bucket.
    pub(crate) fn earliest_us<T>(&self, slab: &Slab<T>, armed: BucketRef) -> u64 {
        let list = bucket::list(self.bucket(armed));
        let begin_us = armed.expiration_ms * 1000;
        if !self.reminders.is_at_most(list, MAX_LOOKED_AT) {
            return begin_us;
        }
        let entries = self.reminders.iter(list).filter_map(|reminder| slab.reminded(reminder));
        let end_us = armed.expiration_ms.saturating_add(self.tick_ms()).saturating_mul(1000);
        entries.map(|entry| entry.due_us).min().map_or(begin_us, |first_us| first_us.min(end_us))
    }

    /// The level of an entry by its instant, from 1; 0 for the front. An entry with this instant would be placed on
    /// this level now.
    pub(crate) fn level_of<T>(&self, entry: &Entry<T>) -> u8 {
        if entry.place() != Place::Bucket {
            return 0;
        }
        let number = self.levels.iter().take_while(|level| entry.due_us >= level.end_us).count() + 1;
        let mut above = self.levels.len() + 1;
        if number == above {
            // The entry uses an earlier reminder, so the level for its own time may not exist yet.
            let top = &self.levels[self.levels.len() - 1];
            let mut tick_ms = top.interval_ms;
            while entry.due_us / 1000 / tick_ms >= top.current_ms / tick_ms + self.size_of_level(above) {
                tick_ms = tick_ms.saturating_mul(self.size_of_level(above));
                above += 1;
            }
            return above as u8;
        }
        number as u8
    }

    /// How many buckets a level has, counted from 1, whether it is there or not.
    pub(crate) fn size_of_level(&self, number: usize) -> u64 {
        self.sizes[(number - 1).min(self.sizes.len() - 1)].into()
    }

    /// The pages of all buckets, for [`Wheel::entries_on`], also after other calls. O(buckets and pages).
    pub(crate) fn pages(&self) -> impl Iterator<Item = BucketPage> {
        self.levels.iter().enumerate().flat_map(move |(level, Level { buckets, .. })| {
            buckets.iter().enumerate().flat_map(move |(bucket, it)| {
                self.reminders.pages_of(bucket::list(it)).map(move |page| BucketPage { level, bucket, page })
            })
        })
    }

    /// How many reminders there are.
    #[cfg(test)]
    pub(crate) fn reminder_count(&self) -> usize {
        self.reminders.len()
    }

    /// The slots and entries that a page reminds of now; a slot more than once if it has reminders that look the same.
    pub(crate) fn entries_on<'a, T>(
        &'a self,
        slab: &'a Slab<T>,
        page: BucketPage,
    ) -> impl Iterator<Item = (u32, &'a Entry<T>)> {
        let reminders = self.reminders.on_page(page.page).iter();
        reminders.filter_map(|reminder| Some((reminder.slot(), slab.reminded(*reminder)?)))
    }
}
