//! When a periodic task is called: at `start + n * period`, and what happens to the calls that were missed (T20).
//!
//! An occurrence counts from `start` alone, never from the call before it, so nothing drifts. [`Missed`] has an example.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::clock::LIMIT_US;
use crate::error::Error;
use crate::when::{When, rounded_up_us};

/// How often a periodic task is called, from when on, and what happens to the calls that were missed.
///
/// ```
/// use std::time::Duration;
/// use tickwheel::{Every, Missed};
///
/// let every = Every {
///     start: Some(Duration::ZERO.into()),
///     jitter: Duration::from_secs(5),
///     missed: Missed::Last,
///     ..Every::new(Duration::from_secs(60))
/// };
/// assert_eq!(every.period, Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Every {
    /// The time from one call to the next: a microsecond or more.
    pub period: Duration,
    /// When the first call is due; `None` for one period from now. If that is past, the calls continue from there: the first
    /// one is at the next instant of `start + n * period`.
    pub start: Option<When>,
    /// Each call is later than its instant by a random time up to this one, so that many periodic tasks spread out. It is
    /// shorter than the period, and the jitter of one call does not move the next.
    pub jitter: Duration,
    /// The rule for missed calls.
    pub missed: Missed,
}

/// What happens to the calls of a periodic task that came due while another one ran, or waited for the timer's thread.
///
/// Example: a period of 10 ms from 100. The call at 110 takes until 134, so those of 120 and 130 were missed. The next call is at
/// 140 with `Skip`, at once and then at 140 with `Last`, at once, at once again and then at 140 with `All`.
///
/// A call that is late itself is made once. Between calls that are made up for, other tasks that are due run too; and two of
/// them are at least [`slack_us`](crate::Config::slack_us) apart, so with a shorter period `All` never catches up.
///
/// ```
/// use tickwheel::Missed;
/// assert_eq!(Missed::default(), Missed::Skip);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Missed {
    /// They are left out.
    #[default]
    Skip,
    /// Each is made up for, one after the other.
    All,
    /// One call at once stands for all of them.
    Last,
}

impl Every {
    /// This period, from one period from now, without jitter; calls that were missed are left out.
    #[must_use]
    pub fn new(period: Duration) -> Self {
        Self { period, start: None, jitter: Duration::ZERO, missed: Missed::Skip }
    }
}

impl From<Duration> for Every {
    fn from(period: Duration) -> Self {
        Self::new(period)
    }
}

/// The instants of one series, in microseconds of its timer's clock.
#[derive(Debug)]
pub struct Occurrences {
    start_us: u64,
    period_us: u64,
    jitter_us: u64,
    missed: Missed,
    /// The jitter of a call is a hash of its number, so that asking twice gives the same.
    random: RandomState,
}

impl Occurrences {
    /// `now` is what the clock reads, rounded down and rounded up.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a period or a first instant that is out of range.
    pub fn new(every: &Every, now: (u64, u64)) -> Result<Self, Error> {
        let (period_us, jitter_us) = (rounded_up_us(every.period), rounded_up_us(every.jitter));
        if period_us == 0 {
            return Err(Error::invalid("the period must be a microsecond or more, got 0: give a longer one"));
        }
        if period_us >= LIMIT_US {
            return Err(Error::invalid(format!(
                "the period must be below 2^52 ms, got {} ms: give a shorter one, or a task that runs once",
                period_us / 1000
            )));
        }
        if jitter_us >= period_us {
            return Err(Error::invalid(format!(
                "the jitter must be shorter than the period of {period_us} us, got {jitter_us} us: take less, or a longer \
                 period"
            )));
        }
        let start_us = match every.start {
            Some(When::AtUs(start_us)) => start_us, // in the past too: the instants go on from there
            start => start.unwrap_or(When::AfterUs(period_us)).due_us(now),
        };
        Ok(Self { start_us, period_us, jitter_us, missed: every.missed, random: RandomState::new() })
    }

    /// When call `number`, from 0, is due.
    #[must_use]
    pub fn due_us(&self, number: u64) -> u64 {
        let jitter_us = match self.jitter_us {
            0 => 0,
            most => self.random.hash_one(number) % most.saturating_add(1),
        };
        self.instant_us(number).saturating_add(jitter_us)
    }

    /// Which call comes after call `number` ended at `now_us`.
    #[must_use]
    pub fn after(&self, number: u64, now_us: u64) -> u64 {
        let next = number.saturating_add(1);
        match self.missed {
            Missed::All => next,
            Missed::Skip => next.max(self.first_from(now_us)),
            Missed::Last => next.max(self.first_from(now_us).saturating_sub(1)),
        }
    }

    /// The first call that is due at `now_us` or later. The jitter is shorter than a period. So the call belongs to the
    /// last instant before that time, or to the next one.
    #[must_use]
    pub fn first_from(&self, now_us: u64) -> u64 {
        let last = now_us.saturating_sub(self.start_us) / self.period_us;
        if self.due_us(last) >= now_us { last } else { last + 1 }
    }

    fn instant_us(&self, number: u64) -> u64 {
        self.start_us.saturating_add(number.saturating_mul(self.period_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occurrences(every: Every) -> Occurrences {
        Occurrences::new(&every, (0, 0)).expect("the settings are allowed")
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The example above.
    #[test]
    fn calls_that_were_missed_are_left_out_or_made_up_for_or_made_once__t20() {
        let every = Every { start: Some(ms(100).into()), ..Every::new(ms(10)) };
        for (missed, then) in [
            (Missed::Skip, vec![140_000, 150_000]),
            (Missed::Last, vec![130_000, 140_000]),
            (Missed::All, vec![120_000, 130_000, 140_000]),
        ] {
            let occurrences = occurrences(Every { missed, ..every });
            let (mut number, mut dues) = (1, Vec::new()); // the call at 110
            for _ in 0..then.len() {
                number = occurrences.after(number, 134_000);
                dues.push(occurrences.due_us(number));
            }
            assert_eq!(dues, then, "{missed:?}");
        }
    }

    #[test]
    fn a_start_in_the_past_keeps_its_instants__t20() {
        let every = Every { start: Some(When::AtUs(5_000)), ..Every::new(ms(10)) };
        let occurrences = Occurrences::new(&every, (37_000, 37_000)).expect("the settings are allowed");
        assert_eq!(occurrences.due_us(occurrences.first_from(37_000)), 45_000);
    }

    #[test]
    fn a_call_that_is_due_right_now_was_not_missed__t20() {
        let occurrences = occurrences(Every::new(ms(10)));
        assert_eq!(occurrences.due_us(0), 10_000, "one period from now");
        assert_eq!(occurrences.due_us(occurrences.after(0, 30_000)), 30_000);
        assert_eq!(occurrences.due_us(occurrences.after(0, 30_001)), 40_000);
    }

    #[test]
    fn a_call_comes_neither_before_its_instant_nor_after_its_jitter_and_nothing_drifts__t20() {
        let occurrences = occurrences(Every { start: Some(ms(0).into()), jitter: ms(4), ..Every::new(ms(10)) });
        let late: Vec<_> = (0..1000).map(|number| occurrences.due_us(number) - number * 10_000).collect();
        assert!(late.iter().all(|late_us| *late_us <= 4_000));
        assert!(late.iter().any(|late_us| *late_us < 1_000) && late.iter().any(|late_us| *late_us > 3_000));
        for number in 0..1000 {
            let due_us = occurrences.due_us(number);
            assert_eq!(occurrences.first_from(due_us), number, "it is still to come at its own instant");
            assert_eq!(occurrences.first_from(due_us + 1), number + 1);
            assert_eq!(occurrences.after(number, due_us + 5), number + 1);
        }
    }

    #[test]
    fn the_last_instants_of_the_range_do_not_overflow__t13() {
        let longest = Duration::from_micros(LIMIT_US - 1);
        let occurrences = occurrences(Every { start: Some(When::AtUs(u64::MAX)), ..Every::new(longest) });
        assert_eq!(occurrences.due_us(u64::MAX), u64::MAX);
        assert_eq!(occurrences.after(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn a_period_of_nothing_and_a_jitter_of_a_period_are_refused__t13() {
        for (every, says) in [
            (Every::new(Duration::ZERO), "the period must be a microsecond or more, got 0"),
            (Every::new(Duration::MAX), "the period must be below 2^52 ms, got 18446744073709551 ms"),
            (
                Every { jitter: ms(1), ..Every::new(ms(1)) },
                "the jitter must be shorter than the period of 1000 us, got 1000 us",
            ),
        ] {
            let error = Occurrences::new(&every, (0, 0)).expect_err(says);
            assert!(error.to_string().starts_with(says), "{error}");
        }
    }
}
