//! One wheel: its tick, its current time, and its buckets.
//!
//! A level covers `[current_time, current_time + interval)`, where `interval = tick * size` and `current_time` is a
//! multiple of the tick (T2). An expiration inside belongs to bucket `(e / tick) % size`, which expires at
//! `(e / tick) * tick`.
//!
//! Example: tick 20, size 20 at 123 covers `[120, 520)`; 350 belongs to bucket 17, which expires at 340.

use super::bucket::Bucket;

#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) tick_ms: u64,
    pub(crate) interval_ms: u64,
    /// The time it was made at, before rounding.
    pub(crate) start_ms: u64,
    pub(crate) current_ms: u64,
    /// The first instant after what the level covers.
    pub(crate) end_ms: u64,
    /// The bucket of the current tick.
    current: u32,
    pub(crate) buckets: Vec<Bucket>,
}

impl Level {
    pub(crate) fn new(tick_ms: u64, size: u32, start_ms: u64) -> Self {
        // Past the range of instants a level covers whatever there is, so saturating is exact enough.
        let interval_ms = tick_ms.saturating_mul(u64::from(size));
        let buckets = vec![Bucket::NEW; size as usize];
        let mut level = Self { tick_ms, interval_ms, start_ms, current_ms: 0, end_ms: 0, current: 0, buckets };
        level.move_to(start_ms);
        level
    }

    /// The first instant after the current tick.
    pub(crate) fn next_ms(&self) -> u64 {
        self.current_ms.saturating_add(self.tick_ms)
    }

    /// The bucket of an expiration that the level covers, and when that bucket expires. Counted from the current tick,
    /// which takes one division and not two.
    pub(crate) fn bucket_of(&self, expiration_ms: u64) -> (u32, u64) {
        let offset_ms = expiration_ms - self.current_ms;
        // A division takes longer than all the rest, and most adds of a wheel of milliseconds can do without.
        let ticks = if self.tick_ms == 1 { offset_ms } else { offset_ms / self.tick_ms };
        let (bucket, size) = (self.current + ticks as u32, self.buckets.len() as u32);
        (if bucket < size { bucket } else { bucket - size }, self.current_ms + ticks * self.tick_ms)
    }

    /// Moves to `now_ms` rounded down to the tick; `false` if no full tick has passed.
    pub(crate) fn advance(&mut self, now_ms: u64) -> bool {
        let moves = now_ms >= self.next_ms();
        if moves {
            self.move_to(now_ms);
        }
        moves
    }

    fn move_to(&mut self, now_ms: u64) {
        let virtual_id = now_ms / self.tick_ms;
        self.current = (virtual_id % self.buckets.len() as u64) as u32;
        self.current_ms = virtual_id * self.tick_ms;
        self.end_ms = self.current_ms.saturating_add(self.interval_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_rounds_down_to_its_tick__t2() {
        let level = Level::new(20, 20, 123);
        assert_eq!((level.current_ms, level.end_ms, level.interval_ms), (120, 520, 400));
        assert_eq!(level.bucket_of(350), (17, 340));
    }

    #[test]
    fn an_expiration_of_237_is_in_the_bucket_from_220__t2() {
        assert_eq!(Level::new(20, 20, 0).bucket_of(237), (11, 220));
    }

    #[test]
    fn a_level_moves_only_by_full_ticks__t4() {
        let mut level = Level::new(20, 20, 0);
        assert!(!level.advance(19));
        assert!(level.advance(59));
        assert_eq!(level.current_ms, 40);
    }

    #[test]
    fn the_widest_level_covers_everything() {
        let level = Level::new(1 << 51, 65_536, 0);
        assert!(level.end_ms > 1 << 52);
    }
}
