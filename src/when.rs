//! When a task is to run: after a delay, or at an instant of the timer's clock.

use std::time::Duration;

/// When a task is to run. A [`Duration`] converts into it, as a delay.
///
/// ```
/// use std::time::Duration;
/// use tickwheel::When;
///
/// assert_eq!(When::from(Duration::from_millis(5)), When::AfterUs(5_000));
/// // A part of a microsecond is rounded up, so that the task is never early.
/// assert_eq!(When::from(Duration::from_nanos(1_001)), When::AfterUs(2));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum When {
    /// This many microseconds from now.
    AfterUs(u64),
    /// At this reading of the timer's [`Clock`](crate::Clock), in microseconds. One in the past means now.
    AtUs(u64),
}

impl When {
    /// When that is, in microseconds of the timer's clock. `now` is what the clock reads, rounded down and rounded up: a
    /// delay counts from the second, so that it is never short.
    #[inline]
    pub(crate) fn due_us(self, (now_us, now_up_us): (u64, u64)) -> u64 {
        match self {
            Self::AfterUs(delay_us) => now_up_us.saturating_add(delay_us),
            Self::AtUs(due_us) => due_us.max(now_us),
        }
    }
}

impl From<Duration> for When {
    #[inline]
    fn from(delay: Duration) -> Self {
        Self::AfterUs(rounded_up_us(delay))
    }
}

/// A duration in microseconds, rounded up; one that does not fit is the largest.
#[inline]
pub(crate) fn rounded_up_us(duration: Duration) -> u64 {
    let part_us = u64::from(duration.subsec_nanos().div_ceil(1000));
    duration.as_secs().saturating_mul(1_000_000).saturating_add(part_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_rounded_up_to_a_microsecond__t1() {
        for (duration, us) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_micros(1), 1),
            (Duration::new(3, 999_999_001), 4_000_000),
            (Duration::MAX, u64::MAX),
        ] {
            assert_eq!(rounded_up_us(duration), us, "{duration:?}");
        }
    }
}
