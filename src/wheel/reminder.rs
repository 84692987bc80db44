//! `Reminder`: what a bucket has of an entry, eight bytes: its slot, and a mark.
//!
//! A reminder says: look at this slot at that time. Only the slot has the truth. A cancel and a move to a later time
//! therefore write to the slot alone. A reminder without a meaning does no harm:
//!
//! - An entry in the wheel keeps the mark of one reminder, which comes no later than the entry is due.
//! - If the entry is not due yet when its reminder comes, because it was moved, it gets another one.
//! - If the slot is free by then, or has another mark, the reminder is dropped.
//! - A free slot keeps its reminder, and the next entry in that slot may use it.
//!
//! The mark is the lower 24 bits of the time in milliseconds, and a count of 8 bits. A reminder is in a bucket, and the time of
//! the bucket gives the upper bits. The count goes up with each reminder of a slot. So the reminders of a slot for one millisecond
//! differ, or they would all look good and none would be dropped. Every 256th looks like the first: it is dropped when it comes.
//!
//! Example: slot 7 is added for 30 s, cancelled, and used again for 31 s. Its reminder for 30 s stays where it is. When it comes,
//! the slot gets one for 31 s.

use crate::lists::Lists;

/// The lower bits of the time that a mark has.
const TIME_BITS: u32 = 24;
const TIME_MASK: u32 = (1 << TIME_BITS) - 1;

/// Tells a reminder from the other reminders of its slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mark(pub(super) u32);

impl Mark {
    /// The longest tick of a bucket whose reminders tell their time.
    pub(super) const MAX_TICK_MS: u64 = 1 << TIME_BITS;

    /// The mark of a slot that had no reminder since its page got memory. Its entries had others before, as often as its generation
    /// says at least.
    #[inline]
    pub(super) fn first(generation: u32) -> Self {
        Self(generation << TIME_BITS)
    }

    /// The mark of the slot's next reminder, for this time.
    #[inline]
    pub(super) fn next(self, due_ms: u64) -> Self {
        let count = (self.0 & !TIME_MASK).wrapping_add(1 << TIME_BITS);
        Self(count | due_ms as u32 & TIME_MASK)
    }

    #[inline]
    fn time_bits(self) -> u64 {
        u64::from(self.0 & TIME_MASK)
    }

    /// How long after `begin_ms` its time is: less than [`Mark::MAX_TICK_MS`].
    #[inline]
    pub(super) fn offset_ms(self, begin_ms: u64) -> u64 {
        self.time_bits().wrapping_sub(begin_ms) & u64::from(TIME_MASK)
    }

    /// The latest time up to `end_ms` that it may have.
    #[inline]
    pub(super) fn latest_ms(self, end_ms: u64) -> u64 {
        end_ms.wrapping_sub(end_ms.wrapping_sub(self.time_bits()) & u64::from(TIME_MASK))
    }
}

/// The slot in the upper half, the mark in the lower one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reminder(u64);

/// The lists of all buckets, in pages of 512.
pub(super) type Reminders = Lists<Reminder, 512>;

impl Reminder {
    #[inline]
    pub(super) fn new(slot: u32, mark: Mark) -> Self {
        Self(u64::from(slot) << 32 | u64::from(mark.0))
    }

    #[inline]
    pub(super) fn slot(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    pub(super) fn mark(self) -> Mark {
        Mark(self.0 as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_tells_its_time_from_the_bucket() {
        for (due_ms, begin_ms) in
            [(0, 0), (350, 340), ((1 << 24) + 5, 1 << 24), ((1 << 24) + 5, 6), (1 << 51, (1 << 51) - 9)]
        {
            assert_eq!(begin_ms + Mark::first(7).next(due_ms).offset_ms(begin_ms), due_ms);
        }
    }

    #[test]
    fn the_latest_time_is_never_before_the_real_one() {
        for (due_ms, end_ms) in [(0, 0), (350, 350), (350, 5000), (350, (1 << 30) + 17), (1 << 51, 1 << 51)] {
            let latest_ms = Mark::first(7).next(due_ms).latest_ms(end_ms);
            assert!((due_ms..=end_ms).contains(&latest_ms), "{due_ms} {end_ms}");
            assert_eq!((latest_ms - due_ms) % (1 << 24), 0);
        }
    }

    #[test]
    fn a_slot_that_had_no_memory_goes_on_with_another_count() {
        assert_ne!(Mark::first(7).next(350), Mark::first(8).next(350));
    }

    #[test]
    fn the_reminders_of_a_slot_for_one_millisecond_differ() {
        let marks: Vec<_> =
            std::iter::successors(Some(Mark::first(7)), |mark| Some(mark.next(350))).skip(1).take(257).collect();
        assert!((1..256).all(|later| marks[later] != marks[0]));
        assert_eq!(marks[256], marks[0]);
    }
}
