//! Flushing a due bucket: its entries go to lower levels or to the front, in steps of bounded size.
//!
//! The wheel takes the whole list out of the bucket in O(1), then reads it from the beginning. The reminders of a large
//! bucket above level 1 go down as they are: they tell their times, and nobody looks at the entries, which lie anywhere
//! in memory. At level 1 the entries are looked at: only they tell what is due, and in what order. The entries of a
//! small bucket are read too: it costs nothing, and cancelled ones are dropped earlier.

use super::flush_state::{Flushed, Flushing};
use super::reminder::{Mark, Reminder};
use super::{BucketRef, Placed, ReleaseKey, Slab, Wheel, bucket};

/// How many reminders are read at a time.
const BATCH: usize = 64;

impl Wheel {
    /// Takes the list of a due bucket out of it; [`Wheel::flush_step`] moves its entries. Returns about how many there are,
    /// if they fill more than two pages.
    pub(crate) fn start_flush(&mut self, due: BucketRef) -> Option<usize> {
        debug_assert!(self.flushing.is_none(), "one bucket at a time");
        let bucket = std::mem::replace(self.bucket_mut(due), bucket::NEW);
        let (list, level_index) = (bucket::list(&bucket), usize::from(due.level) - 1);
        let looks_at_entries = level_index == 0
            || self.levels[level_index].tick_ms > Mark::MAX_TICK_MS
            || self.reminders.is_at_most(list, BATCH);
        let expiration_ms = due.expiration_ms;
        self.flushing = Some(Flushing { list, level_index, expiration_ms, looks_at_entries, entries: 0 });
        self.reminders.len_of_long(list)
    }

    pub(crate) fn is_flushing(&self) -> bool {
        self.flushing.is_some()
    }

    /// Moves up to `limit` entries of the bucket. Appends the buckets that must be armed to `newly_armed`, and the keys
    /// of the entries for the front to `for_front`. The caller puts the keys into the front, which sets their places.
    /// Returns how many reminders it read. If they are fewer than `limit`, the flush is complete.
    pub(crate) fn flush_step<T>(
        &mut self,
        slab: &mut Slab<T>,
        limit: usize,
        newly_armed: &mut Vec<BucketRef>,
        for_front: &mut Vec<ReleaseKey>,
    ) -> usize {
        let Some(mut flushing) = self.flushing.take() else { return 0 };
        let mut batch = [Reminder::default(); BATCH];
        let mut read = 0;
        while read < limit {
            let count = self.reminders.read(flushing.list, &mut batch[..BATCH.min(limit - read)]);
            if count == 0 {
                self.reminders.free_list(flushing.list);
                if let Some(flushed) = &mut self.flushed {
                    let Flushing { level_index, expiration_ms, entries, .. } = flushing;
                    flushed.push(Flushed { expiration_ms, level: level_index as u8 + 1, entries });
                }
                return read;
            }
            read += count;
            let moved = if flushing.looks_at_entries {
                self.move_entries(slab, &flushing, &batch[..count], newly_armed, for_front)
            } else {
                self.cascade(slab, &flushing, &batch[..count], newly_armed, for_front);
                count
            };
            flushing.entries += moved as u64;
            self.cascaded[flushing.level_index] += moved as u64;
        }
        self.flushing = Some(flushing);
        limit
    }

    /// Moves entries by their instants; returns how many were due in this bucket.
    #[inline(never)] // the loops need the registers
    fn move_entries<T>(
        &mut self,
        slab: &mut Slab<T>,
        flushing: &Flushing,
        batch: &[Reminder],
        newly_armed: &mut Vec<BucketRef>,
        for_front: &mut Vec<ReleaseKey>,
    ) -> usize {
        let (begin, tick_end_us) = (for_front.len(), self.tick_end_us);
        slab.prefetch_reminded(batch);
        for_front.extend(batch.iter().filter_map(|reminder| slab.take_reminded(*reminder)));
        if for_front[begin..].iter().all(|key| key.due_us < tick_end_us) {
            return for_front.len() - begin;
        }
        let level = &self.levels[flushing.level_index];
        let end_us = flushing.expiration_ms.saturating_add(level.tick_ms).saturating_mul(1000);
        let mut in_bucket = 0;
        let mut kept = begin;
        for index in begin..for_front.len() {
            let key = for_front[index];
            in_bucket += usize::from(key.due_us < end_us);
            match self.place(slab, &key) {
                None => {
                    for_front[kept] = key;
                    kept += 1;
                }
                Some(Placed::NewlyArmed(armed)) => newly_armed.push(armed),
                Some(Placed::AlreadyArmed(_)) => {}
            }
        }
        for_front.truncate(kept);
        in_bucket
    }

    /// Moves the reminders of a bucket above level 1 down, without a look at the entries.
    #[inline(never)] // the loops need the registers
    fn cascade<T>(
        &mut self,
        slab: &mut Slab<T>,
        flushing: &Flushing,
        batch: &[Reminder],
        newly_armed: &mut Vec<BucketRef>,
        for_front: &mut Vec<ReleaseKey>,
    ) {
        let begin_ms = flushing.expiration_ms;
        let (mut lower, mut count) = ([Reminder::default(); BATCH], batch.len());
        lower[..count].copy_from_slice(batch);
        self.reminders.count_again(count);
        // The level below covers the bucket. It takes all entries except those of its own first tick, which go further
        // down.
        for level in self.levels[..flushing.level_index].iter_mut().rev() {
            debug_assert_eq!(level.current_ms, begin_ms, "no level moves before the flush is complete");
            let mut left = 0;
            for index in 0..count {
                let reminder = lower[index];
                match level.cascade(&mut self.reminders, reminder, reminder.mark().offset_ms(begin_ms)) {
                    Ok(newly) => newly_armed.extend(newly),
                    Err(reminder) => {
                        lower[left] = reminder;
                        left += 1;
                    }
                }
            }
            count = left;
            if count == 0 {
                return;
            }
        }
        // The entries of the first tick of level 1 are due.
        self.reminders.uncount(count);
        self.move_entries(slab, flushing, &lower[..count], newly_armed, for_front);
    }
}
