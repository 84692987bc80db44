//! A level: tick, current time, and buckets.
//!
//! A level covers `[current_time, current_time + interval)`, where `interval = tick * size` and `current_time` is a
//! multiple of the tick (T2). An expiration inside belongs to bucket `(e / tick) % size`, which expires at
//! `(e / tick) * tick`.
//!
//! Example: tick 20, size 20 at 123 covers `[120, 520)`; 350 belongs to bucket 17, which expires at 340.

use super::bucket::{self, Bucket};
use super::placed::{BucketRef, Placed};
use super::reminder::{Reminder, Reminders};

#[derive(Debug)]
pub(crate) struct Level {
    /// From 1, the finest.
    pub(super) number: u8,
    pub(crate) tick_ms: u64,
    pub(crate) interval_ms: u64,
    /// The time at which it was added, before rounding.
    pub(crate) start_ms: u64,
    pub(crate) current_ms: u64,
    current_us: u64,
    /// The first instant after what the level covers.
    pub(crate) end_us: u64,
    /// The bucket of the current tick.
    current_bucket: u32,
    tick_divider: TickDivider,
    /// The same for milliseconds.
    ms_divider: TickDivider,
    pub(crate) buckets: Vec<Bucket>,
}

/// Divides by a tick with a multiplication and a shift, as compilers divide by constants: a division takes longer than the
/// rest of an add.
#[derive(Debug, Clone, Copy)]
struct TickDivider {
    /// 2^`(64 + shift)` / (2 * tick), rounded up.
    inverse: u64,
    shift: u32,
}

impl TickDivider {
    fn new(tick: u64) -> Self {
        let shift = tick.ilog2();
        Self { inverse: ((1_u128 << (63 + shift)) / u128::from(tick)) as u64 + 1, shift }
    }

    /// How many full ticks are in `offset`, which is below 2^62, in the same unit. The product is too large by at most
    /// 2 * offset / 2^`(64 + shift)`. The error is less than 1 / tick, not enough to reach the next tick.
    #[inline]
    fn full_ticks(self, offset: u64) -> u64 {
        ((u128::from(2 * offset) * u128::from(self.inverse)) >> 64) as u64 >> self.shift
    }
}

impl Level {
    pub(crate) fn new(number: u8, tick_ms: u64, size: u32, start_ms: u64) -> Self {
        // Past the range of instants a level covers all of them, so saturating is exact enough.
        let mut level = Self {
            number,
            tick_ms,
            interval_ms: tick_ms.saturating_mul(u64::from(size)),
            start_ms,
            current_ms: 0,
            current_us: 0,
            end_us: 0,
            current_bucket: 0,
            tick_divider: TickDivider::new(tick_ms.saturating_mul(1000)),
            ms_divider: TickDivider::new(tick_ms),
            buckets: vec![bucket::NEW; size as usize],
        };
        level.move_to(start_ms);
        level
    }

    /// When the current tick ends.
    pub(crate) fn tick_end_ms(&self) -> u64 {
        self.current_ms.saturating_add(self.tick_ms)
    }

    /// The first instant after what the level covers.
    pub(crate) fn end_ms(&self) -> u64 {
        self.current_ms.saturating_add(self.interval_ms)
    }

    /// Puts a reminder into the bucket of this instant, which the level covers.
    #[expect(clippy::inline_always, reason = "see `Wheel::remind`")]
    #[inline(always)]
    pub(super) fn place(&mut self, reminders: &mut Reminders, reminder: Reminder, due_us: u64) -> Placed {
        let (index, ticks) = self.bucket_of(due_us);
        let bucket = &mut self.buckets[index as usize];
        bucket::set_list(bucket, reminders.push(bucket::list(bucket), reminder));
        let is_armed = bucket::expiration_ms(bucket).is_some();
        let bucket_ref = self.bucket_ref(index, ticks);
        if is_armed {
            debug_assert_eq!(bucket::expiration_ms(&self.buckets[index as usize]), Some(bucket_ref.expiration_ms));
            return Placed::AlreadyArmed(bucket_ref);
        }
        bucket::arm(&mut self.buckets[index as usize], bucket_ref.expiration_ms);
        Placed::NewlyArmed(bucket_ref)
    }

    /// As [`Level::place`] while the bucket above is flushed that begins where this level stands: the reminder is for
    /// `offset_ms` after that. Returns the bucket if it must be armed; an error if it is for the first tick, and goes further down.
    #[expect(clippy::inline_always, reason = "see `Wheel::remind`")]
    #[inline(always)]
    pub(super) fn cascade(
        &mut self,
        reminders: &mut Reminders,
        reminder: Reminder,
        offset_ms: u64,
    ) -> Result<Option<BucketRef>, Reminder> {
        let ticks = self.ms_divider.full_ticks(offset_ms);
        if ticks == 0 {
            return Err(reminder);
        }
        let index = self.wrapped(self.current_bucket + ticks as u32);
        let bucket = &mut self.buckets[index as usize];
        bucket::set_list(bucket, reminders.push_uncounted(bucket::list(bucket), reminder));
        if bucket::expiration_ms(bucket).is_some() {
            return Ok(None);
        }
        let newly_armed = self.bucket_ref(index, ticks);
        bucket::arm(&mut self.buckets[index as usize], newly_armed.expiration_ms);
        Ok(Some(newly_armed))
    }

    #[inline]
    fn bucket_ref(&self, bucket: u32, ticks: u64) -> BucketRef {
        BucketRef { expiration_ms: self.expiration_ms(ticks), level: self.number, bucket }
    }

    /// The bucket of an instant that the level covers, and its distance from the current bucket in ticks.
    #[inline]
    fn bucket_of(&self, due_us: u64) -> (u32, u64) {
        let ticks = self.tick_divider.full_ticks(due_us - self.current_us);
        (self.wrapped(self.current_bucket + ticks as u32), ticks)
    }

    #[inline]
    fn wrapped(&self, bucket: u32) -> u32 {
        let size = self.buckets.len() as u32;
        if bucket < size { bucket } else { bucket - size }
    }

    /// When the bucket expires that is this many ticks after the current one.
    #[inline]
    fn expiration_ms(&self, ticks: u64) -> u64 {
        self.current_ms + ticks * self.tick_ms
    }

    /// Advances to `now_ms` rounded down to the tick; `false` if no full tick has passed.
    pub(crate) fn advance(&mut self, now_ms: u64) -> bool {
        let moves = now_ms >= self.tick_end_ms();
        if moves {
            self.move_to(now_ms);
        }
        moves
    }

    fn move_to(&mut self, now_ms: u64) {
        let ticks = now_ms / self.tick_ms;
        self.current_bucket = (ticks % self.buckets.len() as u64) as u32;
        self.current_ms = ticks * self.tick_ms;
        self.current_us = self.current_ms * 1000;
        self.end_us = self.end_ms().saturating_mul(1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_US: u64 = (1 << 52) * 1000;

    /// The bucket of an instant, and when that bucket expires.
    fn bucket_of(level: &Level, due_ms: u64) -> (u32, u64) {
        let (bucket, ticks) = level.bucket_of(due_ms * 1000);
        (bucket, level.expiration_ms(ticks))
    }

    #[test]
    fn a_level_rounds_down_to_its_tick__t2() {
        let level = Level::new(1, 20, 20, 123);
        assert_eq!((level.current_ms, level.end_ms(), level.interval_ms), (120, 520, 400));
        assert_eq!(bucket_of(&level, 350), (17, 340));
    }

    #[test]
    fn an_expiration_of_237_is_in_the_bucket_from_220__t2() {
        assert_eq!(bucket_of(&Level::new(1, 20, 20, 0), 237), (11, 220));
    }

    #[test]
    fn a_level_moves_only_by_full_ticks__t4() {
        let mut level = Level::new(1, 20, 20, 0);
        assert!(!level.advance(19));
        assert!(level.advance(59));
        assert_eq!(level.current_ms, 40);
    }

    #[test]
    fn every_tick_begins_and_ends_where_a_division_says() {
        let ticks_us = [1000, 2000, 3000, 1 << 20, 999_000, (1 << 40) + 8, 12_345_678_901_000, LIMIT_US - 1, u64::MAX];
        for tick_us in ticks_us {
            let ticks = TickDivider::new(tick_us);
            for count in [0, 1, 2, 3, 1000, 32_767, 65_535, LIMIT_US / tick_us] {
                let begin_us = count.saturating_mul(tick_us);
                for offset_us in [begin_us.saturating_sub(1), begin_us, begin_us.saturating_add(tick_us / 2)] {
                    let offset_us = offset_us.min(LIMIT_US - 1);
                    assert_eq!(ticks.full_ticks(offset_us), offset_us / tick_us, "{offset_us} by {tick_us}");
                }
            }
        }
    }

    #[test]
    fn the_widest_level_covers_everything() {
        let level = Level::new(1, 1 << 51, 65_536, 0);
        assert!(level.end_us > LIMIT_US);
        assert_eq!(level.bucket_of(LIMIT_US - 1).0, 1);
    }
}
