//! Flushing a due bucket: its entries go to lower levels or to the front, in steps of bounded size.
//!
//! The wheel takes the whole list out of the bucket in O(1), then reads it from the beginning. Between the steps a cancel
//! still finds its entry, in the list or in its new place.

use super::flush_state::{Flushed, Flushing};
use super::{BucketRef, Placed, ReleaseKey, Slab, Wheel, bucket};

/// How many entries of a bucket are read before the first of them is placed.
const CASCADE_BATCH: usize = 64;

impl Wheel {
    /// Takes the list of a due bucket out of it; [`Wheel::flush_step`] moves its entries. Returns about how many there are,
    /// if they fill more than two pages.
    pub(crate) fn start_flush(&mut self, due: BucketRef) -> Option<usize> {
        debug_assert!(self.flushing.is_none(), "one bucket at a time");
        let bucket = std::mem::replace(self.bucket_mut(due), bucket::NEW);
        let (list, level_index) = (bucket::list(&bucket), usize::from(due.level) - 1);
        self.flushing = Some(Flushing { list, level_index, expiration_ms: due.expiration_ms, entries: 0 });
        self.lists.len_if_long(list)
    }

    pub(crate) fn is_flushing(&self) -> bool {
        self.flushing.is_some()
    }

    /// Moves up to `limit` entries of the bucket. Appends the buckets that must be armed to `newly_armed`, and the keys of
    /// the entries that are for the front to `for_front`; the caller puts them there, which sets their places. Returns how
    /// many slots it read. If they are fewer than `limit`, the flush is complete.
    pub(crate) fn flush_step<T>(
        &mut self,
        slab: &mut Slab<T>,
        limit: usize,
        newly_armed: &mut Vec<BucketRef>,
        for_front: &mut Vec<ReleaseKey>,
    ) -> usize {
        let Some(mut flushing) = self.flushing.take() else { return 0 };
        let mut read = 0;
        while read < limit {
            let (position, slots) = self.lists.unread_items(flushing.list);
            let slots = &slots[..slots.len().min(limit - read).min(CASCADE_BATCH)];
            let count = slots.len();
            if count == 0 {
                self.lists.free_list(flushing.list);
                if let Some(flushed) = &mut self.flushed {
                    let Flushing { level_index, expiration_ms, entries, .. } = flushing;
                    flushed.push(Flushed { expiration_ms, level: level_index as u8 + 1, entries });
                }
                return read;
            }
            let live_count = if flushing.level_index == 0 {
                let before = for_front.len();
                for_front.extend(slab.keys_in_bucket(slots, position));
                self.lists.mark_read(position, count);
                for_front.len() - before
            } else {
                self.cascade(slab, (flushing.level_index, position), count, newly_armed, for_front)
            };
            self.lists.remove_from_page(position, live_count);
            read += count;
            flushing.entries += live_count as u64;
            self.cascaded[flushing.level_index] += live_count as u64;
        }
        self.flushing = Some(flushing);
        limit
    }

    /// Places the next `count` slots of a bucket above level 1 again; returns how many entries are live. It reads all of
    /// them before it places the first, so that the processor fetches them side by side.
    #[inline(never)] // the loops need the registers
    fn cascade<T>(
        &mut self,
        slab: &mut Slab<T>,
        (from_level, position): (usize, u32),
        count: usize,
        newly_armed: &mut Vec<BucketRef>,
        for_front: &mut Vec<ReleaseKey>,
    ) -> usize {
        let (mut live, mut live_count) = ([(0, 0); CASCADE_BATCH], 0);
        let slots = &self.lists.items_at(position)[..count];
        for key in slab.keys_in_bucket(slots, position) {
            live[live_count] = (key.handle.slot(), key.due_us);
            live_count += 1;
        }
        // Before the first entry is placed: a page of which items were read is not merged.
        self.lists.mark_read(position, count);
        // The level below covers the bucket. It takes all entries but those of its own first tick, which go further down.
        let level_index = from_level - 1;
        let begin_us = level_index.checked_sub(1).map_or(self.tick_end_us, |index| self.levels[index].end_us);
        let mut lower_count = 0;
        let Self { lists, levels, .. } = self;
        let level = &mut levels[level_index];
        for index in 0..live_count {
            let (slot, due_us) = live[index];
            if due_us < begin_us {
                live[lower_count] = (slot, due_us);
                lower_count += 1;
            } else if let Placed::NewlyArmed(armed) = level.place(lists, slab, slot, due_us) {
                newly_armed.push(armed);
            }
        }
        for (slot, due_us) in &live[..lower_count] {
            match self.place(slab, *slot, *due_us) {
                Placed::ForFront => for_front.push(slab.entry_in(*slot).key(*slot)),
                Placed::NewlyArmed(armed) => newly_armed.push(armed),
                Placed::AlreadyArmed(_) => {}
            }
        }
        live_count
    }

    /// The slots of the bucket that is being flushed, as far as they were not read.
    pub(crate) fn unread_slots<T>(&self, slab: &Slab<T>) -> impl Iterator<Item = u32> {
        self.flushing.iter().flat_map(|flushing| self.lists.live_items(flushing.list, slab))
    }
}
