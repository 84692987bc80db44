//! From wall time to the timer's time (D3): when on the timer's own clock a message is due, and how late it is now.
//!
//! The timer's clock is monotonic, due times are wall time, and the wall clock may be stepped. So the distance between the two is
//! measured and kept: the order on the timer is the order of due times. `read_again` measures anew. Each measurement errs on the
//! late side, by some microseconds: the wall clock is read first and rounded down, then the timer's clock and rounded up. Of
//! five readings the best is taken, as a thread may be held up between the two. Example: the wall clock is at 1,700,000,000,000 ms
//! when the timer's clock reads 5,000 ms; a message due at 1,700,000,000,250 ms has the instant 5,250 ms.
//!
//! Wall times in `_us` are microseconds since 1970, instants in `_us` readings of the timer's clock. The timer owns its clock,
//! so the methods that read it are given it: `timer.clock()`.

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use crate::clock::{Clock, LIMIT_US};

const READINGS: usize = 5;
const US_PER_MS: i64 = 1_000;

/// Reads the wall clock, in microseconds since 1970, rounded down. A test gives its own.
pub type ReadWall = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The wall clock of the system, in microseconds since 1970, rounded down.
#[must_use]
pub fn system_wall_us() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "due times are wall time (D3); the timer itself does not read it")]
    let now = SystemTime::now();
    match now.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos().div_ceil(1000)).map_or(i64::MIN, |us| -us),
    }
}

/// What the dispatcher asks for each message.
pub trait DueClock: fmt::Debug + Send + Sync {
    /// When this is due, on the timer's clock; 0 for anything before that began.
    fn instant_us(&self, due_ms: i64) -> u64;

    /// How late it is now; negative if it would be early. `wall_us` is the wall clock now.
    fn late_us(&self, due_ms: i64, wall_us: i64, timer: &Clock) -> i64;

    /// What is due until then: the latest due time that is at most `ahead_ms` ahead.
    fn due_within(&self, ahead_ms: u64, timer: &Clock) -> i64;

    /// Whether instants are off by a millisecond or more, so that `read_again` is called for.
    fn was_stepped(&self, timer: &Clock) -> bool;

    /// Measures anew. Instants are others than before, and everything that waits on the timer has to be placed anew.
    fn read_again(&mut self, timer: &Clock);
}

/// Messages are due when the wall clock says so.
///
/// ```
/// use std::sync::Arc;
/// use tickwheel::Clock;
/// use tickwheel::delivery::clock::{DueClock, WallClock};
///
/// let timer = Clock::manual(5_000);
/// let clock = WallClock::new(Arc::new(|| 1_700_000_000_000_000), &timer);
/// assert_eq!(clock.instant_us(1_700_000_000_250), 5_250_000);
/// ```
#[derive(Clone)]
pub struct WallClock {
    wall_us: ReadWall,
    /// How far the wall clock is ahead of the timer's.
    ahead_us: i64,
}

impl WallClock {
    /// Measures the distance between the two clocks.
    #[must_use]
    pub fn new(wall_us: ReadWall, timer: &Clock) -> Self {
        let ahead_us = measured_us(&wall_us, timer);
        Self { wall_us, ahead_us }
    }

    /// Of the system's wall clock.
    #[must_use]
    pub fn system(timer: &Clock) -> Self {
        Self::new(Arc::new(system_wall_us), timer)
    }
}

fn measured_us(wall_us: &ReadWall, timer: &Clock) -> i64 {
    let reading = |_| wall_us().saturating_sub_unsigned(timer.now_up_us());
    (0..READINGS).map(reading).max().unwrap_or(0)
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WallClock").field("ahead_us", &self.ahead_us).finish_non_exhaustive()
    }
}

impl DueClock for WallClock {
    /// As last measured.
    fn instant_us(&self, due_ms: i64) -> u64 {
        in_range(due_ms.saturating_mul(US_PER_MS).saturating_sub(self.ahead_us))
    }

    /// By the wall clock itself, not by the measurement.
    fn late_us(&self, due_ms: i64, wall_us: i64, _timer: &Clock) -> i64 {
        wall_us.saturating_sub(due_ms.saturating_mul(US_PER_MS))
    }

    /// By the wall clock as it is now.
    fn due_within(&self, ahead_ms: u64, _timer: &Clock) -> i64 {
        (self.wall_us)().div_euclid(US_PER_MS).saturating_add_unsigned(ahead_ms)
    }

    fn was_stepped(&self, timer: &Clock) -> bool {
        measured_us(&self.wall_us, timer).abs_diff(self.ahead_us) >= US_PER_MS.unsigned_abs()
    }

    fn read_again(&mut self, timer: &Clock) {
        self.ahead_us = measured_us(&self.wall_us, timer);
    }
}

/// Recorded times, `speed` times faster: `from_ms` is now, plus a head start in which all messages come onto the timer.
///
/// Steps of the wall clock do not matter, as nothing is due by it. Example: at speed 60, from 08:00, a message due at 08:01 is
/// delivered after 1 s.
///
/// ```
/// use tickwheel::Clock;
/// use tickwheel::delivery::clock::{DueClock, ReplayClock};
///
/// let clock = ReplayClock::new(60.0, 1_000_000, 10, &Clock::manual(5_000));
/// assert_eq!(clock.instant_us(1_060_000), 6_010_000);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ReplayClock {
    speed: f64,
    from_ms: i64,
    start_us: i64,
}

impl ReplayClock {
    /// `speed` is above 0.
    #[must_use]
    pub fn new(speed: f64, from_ms: i64, head_start_ms: u64, timer: &Clock) -> Self {
        let start_us = timer.now_up_us().saturating_add(head_start_ms.saturating_mul(1000));
        Self { speed, from_ms, start_us: i64::try_from(start_us).unwrap_or(i64::MAX) }
    }

    /// Rounded up, so that nothing is early.
    fn due_us(&self, due_ms: i64) -> i64 {
        let since_us = due_ms.saturating_sub(self.from_ms) as f64 * 1000.0 / self.speed;
        self.start_us.saturating_add(since_us.ceil() as i64)
    }
}

impl DueClock for ReplayClock {
    fn instant_us(&self, due_ms: i64) -> u64 {
        in_range(self.due_us(due_ms))
    }

    /// In real time, against the replayed due time.
    fn late_us(&self, due_ms: i64, _wall_us: i64, timer: &Clock) -> i64 {
        0_i64.saturating_add_unsigned(timer.now_us()).saturating_sub(self.due_us(due_ms))
    }

    /// In recorded time, so `speed` times as far; nothing before the start.
    fn due_within(&self, ahead_ms: u64, timer: &Clock) -> i64 {
        let until_us = timer.now_us().saturating_add(ahead_ms.saturating_mul(1000));
        let since_us = 0_i64.saturating_add_unsigned(until_us).saturating_sub(self.start_us);
        self.from_ms.saturating_add((since_us as f64 * self.speed / 1000.0).floor() as i64)
    }

    /// A monotonic clock is not.
    fn was_stepped(&self, _timer: &Clock) -> bool {
        false
    }

    /// Nothing to measure.
    fn read_again(&mut self, _timer: &Clock) {}
}

/// An instant that the timer takes: from its beginning to its end.
fn in_range(instant_us: i64) -> u64 {
    u64::try_from(instant_us).unwrap_or(0).min(LIMIT_US - 1)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    const WALL_US: i64 = 1_700_000_000_000_000;
    const DUE_MS: i64 = 1_700_000_000_250;

    fn standing(wall_us: i64) -> ReadWall {
        Arc::new(move || wall_us)
    }

    /// Reads 5,000 ms on the timer; between each reading of the wall clock and the next of the timer's, so much time passes.
    fn slow(timer: &Arc<Clock>, costs_us: impl Fn(u64) -> u64 + Send + Sync + 'static) -> WallClock {
        let (moved, count) = (Arc::clone(timer), AtomicI64::new(0));
        let start_us = timer.now_us();
        let wall = move || {
            let passed_us = moved.now_us() - start_us;
            moved.set_us(moved.now_us() + costs_us(count.fetch_add(1, Ordering::Relaxed) as u64));
            WALL_US + passed_us as i64
        };
        WallClock::new(Arc::new(wall), timer)
    }

    #[test]
    fn the_example_of_the_module_holds__d3() {
        let timer = Clock::manual(5_000);
        let clock = WallClock::new(standing(WALL_US), &timer);
        assert_eq!(clock.instant_us(DUE_MS), 5_250_000);
        assert_eq!(clock.late_us(DUE_MS, (DUE_MS + 1) * 1000, &timer), 1_000);
        assert_eq!(clock.late_us(DUE_MS, DUE_MS * 1000 - 1, &timer), -1);
        assert_eq!(clock.due_within(10_000, &timer), 1_700_000_010_000);
    }

    #[test]
    fn an_instant_outside_the_timers_time_is_its_beginning_or_end__d3() {
        let clock = WallClock::new(standing(WALL_US), &Clock::manual(0));
        assert_eq!(clock.instant_us(5), 0);
        assert_eq!(clock.instant_us(i64::MIN), 0);
        assert_eq!(clock.instant_us(i64::MAX), LIMIT_US - 1);
        let replay = ReplayClock::new(0.001, 0, 0, &Clock::manual(0));
        assert_eq!((replay.instant_us(i64::MIN), replay.instant_us(i64::MAX)), (0, LIMIT_US - 1));
        assert_eq!(replay.due_within(u64::MAX, &Clock::manual(0)), i64::MAX / 1_000_000);
    }

    #[test]
    fn slow_readings_make_nothing_early__d3() {
        let timer = Arc::new(Clock::manual(5_000));
        assert_eq!(slow(&timer, |_| 7).instant_us(DUE_MS), 5_250_007);
    }

    #[test]
    fn one_reading_that_was_held_up_does_not_count__d3() {
        let timer = Arc::new(Clock::manual(5_000));
        let clock = slow(&timer, |number| if number == 0 { 50_000 } else { 0 });
        assert_eq!(clock.instant_us(DUE_MS), 5_250_000);
    }

    #[test]
    fn steps_add_up_until_the_clock_is_read_again__d3() {
        let timer = Clock::manual(0);
        let wall_us = Arc::new(AtomicI64::new(WALL_US));
        let read = Arc::clone(&wall_us);
        let mut clock = WallClock::new(Arc::new(move || read.load(Ordering::Relaxed)), &timer);
        wall_us.fetch_add(600, Ordering::Relaxed);
        assert!(!clock.was_stepped(&timer));
        wall_us.fetch_add(600, Ordering::Relaxed);
        assert!(clock.was_stepped(&timer));
        clock.read_again(&timer);
        assert!(!clock.was_stepped(&timer));
        wall_us.fetch_sub(1_000, Ordering::Relaxed);
        assert!(clock.was_stepped(&timer));
        assert_eq!(clock.instant_us(1_700_000_000_100), 98_800);
        assert_eq!(clock.due_within(0, &timer), 1_700_000_000_000);
    }

    #[test]
    fn a_replay_maps_recorded_time_to_the_timers__d11() {
        let timer = Clock::manual(5_000);
        let clock = ReplayClock::new(60.0, 1_000_000, 10, &timer);
        assert_eq!(clock.instant_us(1_060_000), 5_000_000 + 10_000 + 1_000_000);
        assert_eq!(clock.late_us(1_000_000, 0, &timer), -10_000);
        assert_eq!(clock.due_within(0, &timer), 999_400); // nothing that is recorded
        timer.set_us(5_015_000);
        assert_eq!(clock.late_us(1_000_000, 0, &timer), 5_000);
        assert_eq!(clock.due_within(1_000, &timer), 1_000_000 + 60 * 1_005);
        assert!(!clock.was_stepped(&timer));
    }

    #[test]
    fn a_replayed_instant_is_rounded_up__d3() {
        let clock = ReplayClock::new(3.0, 0, 0, &Clock::manual(0));
        assert_eq!([1, 2, 3].map(|due_ms| clock.instant_us(due_ms)), [334, 667, 1_000]);
    }

    #[test]
    fn the_wall_clock_of_the_system_is_read_in_microseconds() {
        let first = system_wall_us();
        assert!((1_600_000_000_000_000..4_000_000_000_000_000).contains(&first));
        let timer = Clock::monotonic(0);
        let clock = WallClock::system(&timer);
        assert!(!clock.was_stepped(&timer));
    }
}
