//! The timer's own clock, in microseconds: monotonic, the one since boot, or moved by hand for tests.
//!
//! Rule T1: never the wall clock. "Now" is rounded down, and the instant that a delay counts from is rounded up. So
//! once `now_us() >= due_us`, a task that is due at `due_us` has waited its whole delay. A reading takes about 20 ns.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::when::rounded_up_us;

/// Instants at or past this many milliseconds (about 142,000 years) are refused, so that no sum overflows.
pub const LIMIT_MS: u64 = 1 << 52;
/// [`LIMIT_MS`] in microseconds.
pub const LIMIT_US: u64 = LIMIT_MS * 1000;

/// A timer's clock: the system's monotonic one, or one that a test moves. Never the wall clock.
///
/// ```
/// use std::time::{Duration, Instant};
/// use tickwheel::Clock;
///
/// let clock = Clock::manual(1_000);
/// clock.set_us(1_500_000);
/// assert_eq!(clock.now_ms(), 1_500);
///
/// let clock = Clock::monotonic(1_000); // or `monotonic_us(1_000_000)`
/// assert!(clock.now_us() >= 1_000_000 && clock.now_us() <= clock.now_up_us());
/// let in_a_minute = Instant::now() + Duration::from_secs(60);
/// assert!(clock.reading_us(in_a_minute) >= 61_000_000);
///
/// # #[cfg(target_os = "linux")]
/// let leases = tickwheel::SystemTimer::on_clock("leases", &Default::default(), Clock::boottime_us(0)?)?;
/// # Ok::<(), tickwheel::Error>(())
/// ```
#[derive(Debug)]
pub struct Clock {
    start_us: u64,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Monotonic(Instant),
    /// What the clock since boot showed at the start.
    #[cfg(target_os = "linux")]
    Boottime(Duration),
    /// Relaxed is enough: a thread that moves the clock takes the timer's lock before it acts on the new time.
    Manual(AtomicU64),
}

impl Clock {
    /// The system's monotonic clock; it reads `start_ms` now.
    #[must_use]
    pub fn monotonic(start_ms: u64) -> Self {
        Self::monotonic_us(start_ms.saturating_mul(1000))
    }

    /// As [`Clock::monotonic`], with a start in microseconds.
    #[must_use]
    pub fn monotonic_us(start_us: u64) -> Self {
        Self { start_us, source: Source::Monotonic(Instant::now()) }
    }

    /// The system's clock since boot, as [`Clock::monotonic_us`]. It goes on while the machine is suspended: what a timer on it
    /// has due by then runs as soon as the machine is awake. A timer that sleeps by it has four open files.
    ///
    /// # Errors
    /// [`Error::Invalid`] except on Linux.
    pub fn boottime_us(start_us: u64) -> Result<Self, Error> {
        #[cfg(target_os = "linux")]
        return Ok(Self { start_us, source: Source::Boottime(since_boot()) });
        #[cfg(not(target_os = "linux"))]
        Err(Error::invalid(format!(
            "only Linux has the clock 'boottime', got a start of {start_us} us: use the monotonic one"
        )))
    }

    /// A clock that stands at `start_ms` until [`Clock::set_us`] moves it.
    #[must_use]
    pub fn manual(start_ms: u64) -> Self {
        let start_us = start_ms.saturating_mul(1000);
        Self { start_us, source: Source::Manual(AtomicU64::new(start_us)) }
    }

    /// Now, rounded down to a microsecond.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.now_down_and_up_us().0
    }

    /// Now, rounded up to a microsecond: what a delay counts from.
    #[must_use]
    pub fn now_up_us(&self) -> u64 {
        self.now_down_and_up_us().1
    }

    /// Now, rounded down and rounded up to a microsecond, for the price of one reading.
    #[inline]
    #[doc(hidden)]
    pub fn now_down_and_up_us(&self) -> (u64, u64) {
        match &self.source {
            Source::Monotonic(origin) => self.after_start(origin.elapsed()),
            Source::Manual(now) => {
                let now_us = now.load(Ordering::Relaxed);
                (now_us, now_us)
            }
            #[cfg(target_os = "linux")]
            Source::Boottime(origin) => self.boottime_reading(*origin),
        }
    }

    #[cfg(target_os = "linux")]
    #[cold] // for those who have another clock
    fn boottime_reading(&self, origin: Duration) -> (u64, u64) {
        self.after_start(since_boot().saturating_sub(origin))
    }

    #[inline]
    fn after_start(&self, elapsed: Duration) -> (u64, u64) {
        let whole_us = elapsed.as_secs().saturating_mul(1_000_000);
        let down_us = self.start_us.saturating_add(whole_us).saturating_add(elapsed.subsec_micros().into());
        let is_between = !elapsed.subsec_nanos().is_multiple_of(1000);
        (down_us, down_us.saturating_add(is_between.into()))
    }

    /// Now, rounded down to a millisecond.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_us() / 1000
    }

    /// What this clock reads at `instant`, in microseconds, rounded up: for [`When::AtUs`](crate::When::AtUs). For an instant
    /// before the clock began, that is its start. Other clocks do not follow the monotonic one: there it is what the clock reads
    /// now, plus the time until `instant`.
    #[must_use]
    pub fn reading_us(&self, instant: Instant) -> u64 {
        match &self.source {
            Source::Monotonic(origin) => {
                self.start_us.saturating_add(rounded_up_us(instant.saturating_duration_since(*origin)))
            }
            _ => self.now_up_us().saturating_add(rounded_up_us(instant.saturating_duration_since(Instant::now()))),
        }
    }

    /// Moves a manual clock, never backwards. On a monotonic clock, which moves by itself, this does nothing.
    pub fn set_us(&self, now_us: u64) {
        if let Source::Manual(now) = &self.source {
            now.fetch_max(now_us, Ordering::Relaxed);
        }
    }

    /// Whether it stands until it is moved.
    pub(crate) fn is_manual(&self) -> bool {
        matches!(self.source, Source::Manual(_))
    }

    /// Whether a thread that waits for it needs an alarm: a condition variable does not follow it.
    #[cfg(any(target_os = "linux", tickwheel_model))]
    pub(crate) fn needs_alarm(&self) -> bool {
        let is_in_model = cfg!(tickwheel_model) && self.is_manual() && self.start_us == ALARM_START_US;
        is_in_model || matches!(self.source, Source::Boottime(_))
    }

    /// When to wake a thread that waits for `at_us`; `None` for another clock, or past what the system can name.
    pub(crate) fn instant_of(&self, at_us: u64) -> Option<Instant> {
        let Source::Monotonic(origin) = &self.source else { return None };
        origin.checked_add(Duration::from_micros(at_us.saturating_sub(self.start_us)))
    }

    /// The same in time since boot.
    #[cfg(target_os = "linux")]
    pub(crate) fn since_boot(&self, at_us: u64) -> Option<Duration> {
        let Source::Boottime(origin) = &self.source else { return None };
        origin.checked_add(Duration::from_micros(at_us.saturating_sub(self.start_us)))
    }
}

/// A manual clock of a model that starts here wakes its threads by alarms.
pub(crate) const ALARM_START_US: u64 = 1_000;

#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn now_rounds_down_and_a_delay_counts_from_now_rounded_up__t1() {
        let clock = Clock::monotonic(5);
        let (down, up) = (clock.now_us(), clock.now_up_us());
        assert!((5_000..=up).contains(&down));
        let manual = Clock::manual(7);
        manual.set_us(7_999);
        assert_eq!((manual.now_ms(), manual.now_us(), manual.now_up_us()), (7, 7_999, 7_999));
    }

    #[test]
    fn a_manual_clock_never_goes_back__t1() {
        let clock = Clock::manual(10);
        clock.set_us(3);
        assert_eq!(clock.now_us(), 10_000);
    }
}
