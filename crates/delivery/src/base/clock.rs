//! Converts wall time to the timer's time (rule D3): when a message is due on the timer's own clock, and how late it
//! is now.
//!
//! Due times are wall time, but the timer's clock is monotonic, and the wall clock may be stepped. `measure` takes
//! the distance between the two clocks. While the stored distance stays the same, messages have the same order on the
//! timer as by their due times. `read_again` measures the distance anew.
//!
//! Every measurement errs on the late side, by some microseconds. It reads the wall clock first and rounds down. Then
//! it reads the timer's clock and rounds up. It takes the best of a few readings.
//!
//! Example: the wall clock shows 1,700,000,000,000 ms when the timer's clock reads 5,000 ms. A message due at
//! 1,700,000,000,250 has the instant 5,250.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tickwheel::Clock;

const READINGS: usize = 5;
const US_PER_MS: i64 = 1_000;

/// Reads the wall clock, in microseconds since 1970.
pub trait WallTime: Send + Sync {
    /// Now.
    fn now_us(&self) -> i64;
}

/// The system's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemWallTime;

impl WallTime for SystemWallTime {
    fn now_us(&self) -> i64 {
        #[expect(
            clippy::disallowed_methods,
            reason = "due times are wall time (D3); the timer itself does not read it"
        )]
        let now = SystemTime::now();
        match now.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_nanos().div_ceil(1000)).map_or(i64::MIN, |us| -us),
        }
    }
}

impl<F: Fn() -> i64 + Send + Sync> WallTime for F {
    fn now_us(&self) -> i64 {
        self()
    }
}

/// The clock by which messages are due: the wall clock, or a replay of recorded times.
#[derive(Clone, Copy, Debug)]
pub enum DueClock {
    /// Messages are due by the wall clock.
    Wall {
        /// How far the wall clock was ahead of the timer's clock at the last measurement, in microseconds.
        ahead_us: i64,
    },
    /// Messages are due by recorded times, which pass `speed` times faster. Steps of the wall clock do not matter.
    Replay {
        /// How many times faster recorded time passes.
        speed: f64,
        /// The recorded time at the start, in milliseconds.
        from_ms: i64,
        /// The start on the timer's clock, in microseconds.
        start_us: i64,
    },
}

impl DueClock {
    /// A clock that follows the wall clock.
    pub(crate) fn wall(timer: &Clock, wall: &dyn WallTime) -> Self {
        Self::Wall { ahead_us: measure(timer, wall) }
    }

    /// A replay that begins at the recorded time `from_ms`, `head_start_ms` from now. Example: with speed 60, from
    /// 08:00, a message due at 08:01 comes one second after the start.
    #[must_use]
    pub fn replay(timer: &Clock, speed: f64, from_ms: i64, head_start_ms: f64) -> Self {
        let start_us = (timer.now_up_us() as i64).saturating_add((head_start_ms * 1000.0).round() as i64);
        Self::Replay { speed, from_ms, start_us }
    }

    /// The instant of this due time on the timer's clock, in microseconds. 0 for a due time before the clock's start.
    pub(crate) fn instant_us(&self, due_ms: i64) -> u64 {
        let instant_us = match *self {
            Self::Wall { ahead_us } => due_ms.saturating_mul(US_PER_MS).saturating_sub(ahead_us),
            Self::Replay { .. } => self.replayed_us(due_ms),
        };
        u64::try_from(instant_us).unwrap_or(0).min(tickwheel::LIMIT_US - 1)
    }

    /// How late a message is now, in microseconds; negative before its due time. On the wall clock, `wall_us`
    /// decides. In a replay, lateness is real time after the replayed due time.
    pub(crate) fn late_us(&self, due_ms: i64, timer_us: u64, wall_us: i64) -> i64 {
        match *self {
            Self::Wall { .. } => wall_us.saturating_sub(due_ms.saturating_mul(US_PER_MS)),
            Self::Replay { .. } => (timer_us as i64).saturating_sub(self.replayed_us(due_ms)),
        }
    }

    /// The latest due time at most `ms` ahead of now. In a replay `ms` is real time, so the answer lies `speed` times
    /// as far ahead.
    pub(crate) fn due_within(&self, ms: f64, timer_us: u64, wall_us: i64) -> i64 {
        match *self {
            Self::Wall { .. } => wall_us.saturating_add((ms * 1000.0) as i64).div_euclid(US_PER_MS),
            Self::Replay { speed, from_ms, start_us } => {
                let ahead_us = (timer_us as i64 - start_us) as f64 + ms * 1000.0;
                from_ms.saturating_add((ahead_us * speed / 1000.0).floor() as i64)
            }
        }
    }

    /// Whether the stored distance is off by a millisecond or more. Then call [`DueClock::read_again`].
    pub(crate) fn was_stepped(&self, timer: &Clock, wall: &dyn WallTime) -> bool {
        match *self {
            Self::Wall { ahead_us } => measure(timer, wall).abs_diff(ahead_us) >= US_PER_MS as u64,
            Self::Replay { .. } => false,
        }
    }

    /// Measures the distance again, and returns how many milliseconds the wall clock was stepped by. Instants change,
    /// so the caller must place all waiting messages anew.
    pub(crate) fn read_again(&mut self, timer: &Clock, wall: &dyn WallTime) -> i64 {
        let Self::Wall { ahead_us } = self else { return 0 };
        let before_us = std::mem::replace(ahead_us, measure(timer, wall));
        ahead_us.saturating_sub(before_us) / US_PER_MS
    }

    fn replayed_us(&self, due_ms: i64) -> i64 {
        match *self {
            Self::Replay { speed, from_ms, start_us } => {
                let offset_us = due_ms.saturating_sub(from_ms) as f64 * 1000.0 / speed;
                start_us.saturating_add(offset_us.ceil() as i64)
            }
            Self::Wall { .. } => unreachable!("only a replay has replayed times"),
        }
    }
}

/// How far the wall clock is ahead of the timer's clock, in microseconds. The answer is never too large.
fn measure(timer: &Clock, wall: &dyn WallTime) -> i64 {
    let read = || {
        let wall_us = wall.now_us();
        wall_us.saturating_sub(timer.now_up_us() as i64)
    };
    // A pause between the two readings makes the distance too small, so the largest distance is the best.
    (0..READINGS).map(|_| read()).max().expect("there are some")
}

/// A time in milliseconds, rounded up.
pub(crate) fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

    use super::*;
    use tickwheel::LIMIT_US;

    const WALL_US: i64 = 1_700_000_000_000_000;
    const DUE_MS: i64 = 1_700_000_000_250;

    /// A clock measured when the timer reads 5,000 ms. After each reading of the wall clock, `costs_us` passes on the
    /// timer.
    fn slow(timer: &Arc<Clock>, costs_us: impl Fn(u64) -> u64 + Send + Sync) -> DueClock {
        let (moved, count, start_us) = (timer.clone(), AtomicU64::new(0), timer.now_us());
        let wall = move || {
            let passed_us = moved.now_us() - start_us;
            moved.set_us(moved.now_us() + costs_us(count.fetch_add(1, Ordering::Relaxed)));
            WALL_US + passed_us as i64
        };
        DueClock::wall(timer, &wall)
    }

    #[test]
    fn the_example_of_the_module_holds__d3() {
        let timer = Clock::manual(5_000);
        let clock = DueClock::wall(&timer, &|| WALL_US);
        assert_eq!(clock.instant_us(DUE_MS), 5_250_000);
        assert_eq!(clock.late_us(DUE_MS, 0, (DUE_MS + 1) * 1000), 1_000);
        assert_eq!(clock.late_us(DUE_MS, 0, DUE_MS * 1000 - 1), -1);
        assert_eq!(clock.due_within(10_000.0, 0, WALL_US), 1_700_000_010_000);
        assert_eq!(clock.due_within(0.0, 0, WALL_US - 1), 1_699_999_999_999, "nothing that is early");
    }

    #[test]
    fn an_instant_outside_the_timers_time_is_its_beginning_or_end__d3() {
        let timer = Clock::manual(0);
        let clock = DueClock::wall(&timer, &|| WALL_US);
        assert_eq!(clock.instant_us(5), 0);
        assert_eq!(clock.instant_us(i64::MIN), 0);
        assert_eq!(clock.instant_us(i64::MAX), LIMIT_US - 1);
        let replay = DueClock::replay(&timer, 0.001, 0, 0.0);
        assert_eq!((replay.instant_us(i64::MIN), replay.instant_us(i64::MAX)), (0, LIMIT_US - 1));
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
    fn a_reading_of_the_timer_is_rounded_up__d3() {
        // Both readings come from one clock. If `measure` rounded down, the distance would sometimes be a microsecond
        // too large.
        let timer = Clock::monotonic(0);
        for _ in 0..10_000 {
            let wall = || timer.now_us() as i64;
            assert!(measure(&timer, &wall) <= 0);
        }
    }

    #[test]
    fn steps_add_up_until_the_clock_is_read_again__d3() {
        let timer = Clock::manual(0);
        let wall_us = Arc::new(AtomicI64::new(WALL_US));
        let read = wall_us.clone();
        let wall = move || read.load(Ordering::Relaxed);
        let mut clock = DueClock::wall(&timer, &wall);
        wall_us.fetch_add(600, Ordering::Relaxed);
        assert!(!clock.was_stepped(&timer, &wall));
        wall_us.fetch_add(600, Ordering::Relaxed);
        assert!(clock.was_stepped(&timer, &wall));
        assert_eq!(clock.read_again(&timer, &wall), 1);
        assert!(!clock.was_stepped(&timer, &wall));
        wall_us.fetch_sub(1_000, Ordering::Relaxed);
        assert!(clock.was_stepped(&timer, &wall));
        assert_eq!(clock.instant_us(1_700_000_000_100), 98_800);
    }

    #[test]
    fn a_replay_maps_recorded_time_to_the_timers__d11() {
        let timer = Clock::manual(5_000);
        let clock = DueClock::replay(&timer, 60.0, 1_000_000, 10.0);
        assert_eq!(clock.instant_us(1_060_000), 5_000_000 + 10_000 + 1_000_000);
        assert_eq!(clock.late_us(1_000_000, timer.now_us(), 0), -10_000);
        assert_eq!(clock.due_within(0.0, timer.now_us(), 0), 999_400); // no recorded message is due yet
        timer.set_us(5_015_000);
        assert_eq!(clock.late_us(1_000_000, timer.now_us(), 0), 5_000);
        assert_eq!(clock.due_within(1_000.0, timer.now_us(), 0), 1_000_000 + 60 * 1_005);
        assert!(!clock.was_stepped(&timer, &|| WALL_US));
    }

    #[test]
    fn a_replayed_instant_is_rounded_up__d3() {
        let clock = DueClock::replay(&Clock::manual(0), 3.0, 0, 0.0);
        assert_eq!([1, 2, 3].map(|due_ms| clock.instant_us(due_ms)), [334, 667, 1_000]);
    }

    #[test]
    fn the_wall_clock_of_the_system_is_read_in_microseconds() {
        assert!((1_600_000_000_000_000..4_000_000_000_000_000).contains(&SystemWallTime.now_us()));
    }
}
