//! What becomes of reminders that mean nothing any more: of entries that were cancelled, or moved.

use super::reminder::Reminder;
use super::{BucketRef, Placed, Slab, Wheel, bucket};

/// A sweep begins if there are more reminders than this, and this many times as many as slots. Slots keep their memory until a
/// whole page of them is free, so with fewer reminders little would be won.
const MIN_GARBAGE: usize = 4096;
const MAX_REMINDERS_PER_SLOT: usize = 2;

impl Wheel {
    /// Drops useless reminders if there are too many of them. Call it when there is one more. O(1): at most the work of some pages.
    ///
    /// If a whole page of slots has gone, its reminders go too, without a look at each slot.
    #[inline]
    pub(crate) fn sweep_if_needed<T>(&mut self, slab: &mut Slab<T>) {
        let limit = MAX_REMINDERS_PER_SLOT * slab.capacity() + MIN_GARBAGE;
        self.reminders.sweep_if_above(limit, 2 * limit, |reminder| slab.is_awaited(reminder));
    }

    /// Drops useless reminders at the head of an armed bucket, and places entries again that were moved out of the
    /// bucket. Handles at most `limit`, and subtracts their number from it. Appends the buckets that must be armed for
    /// those. Returns whether the bucket is empty now.
    pub(crate) fn trim<T>(
        &mut self,
        slab: &mut Slab<T>,
        armed: BucketRef,
        limit: &mut usize,
        newly_armed: &mut Vec<BucketRef>,
    ) -> bool {
        let tick_ms = self.levels[usize::from(armed.level) - 1].tick_ms;
        let end_us = armed.expiration_ms.saturating_add(tick_ms).saturating_mul(1000);
        let list = bucket::list(self.bucket(armed));
        while let Some(reminder) = self.reminders.peek(list) {
            if *limit == 0 || slab.reminded(reminder).is_some_and(|entry| entry.due_us < end_us) {
                return false;
            }
            *limit -= 1;
            self.reminders.read(list, &mut [Reminder::default()]);
            if let Some(key) = slab.take_reminded(reminder)
                && let Some(Placed::NewlyArmed(armed)) = self.place(slab, &key)
            {
                newly_armed.push(armed);
            }
        }
        true
    }
}
