//! When a periodic task is called (T20): at `start + n * period`, or a gap after the end of the call before.
//!
//! `start + n * period` counts from `start` alone, never from the call before, so nothing drifts. [`Missed`] has an example. The
//! rules are here alone, for the timers' periodic tasks and for `aio.every`.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, RandomState};
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
/// let five_polls = Every { times: Some(5), ..Every::with_gap(Duration::from_secs(1)) };
/// assert!(five_polls.from_end);
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
    /// Whether the period is a gap: from the end of a call to the next one. Then no call is missed.
    pub from_end: bool,
    /// How many calls there are; `None` for a series without an end.
    pub times: Option<u64>,
    /// No call is due after this.
    pub until: Option<When>,
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
        let (jitter, missed) = (Duration::ZERO, Missed::Skip);
        Self { period, start: None, jitter, missed, from_end: false, times: None, until: None }
    }

    /// This time from the end of a call to the next one; the first call is due after such a time too.
    #[must_use]
    pub fn with_gap(gap: Duration) -> Self {
        Self { from_end: true, ..Self::new(gap) }
    }
}

impl From<Duration> for Every {
    fn from(period: Duration) -> Self {
        Self::new(period)
    }
}

/// The call of a series that comes next, in microseconds of its timer's clock. The default has no call.
#[derive(Debug, Clone, Default)]
pub struct Occurrences {
    start_us: u64,
    period_us: u64,
    jitter_us: u64,
    missed: Missed,
    from_end: bool,
    /// The number of the next instant, from 0 at the start.
    number: u64,
    /// How many calls may still come.
    left: u64,
    until_us: u64,
    /// The jitter of an instant is a hash of it and of this, so that asking twice gives the same.
    seed: u64,
}

impl Occurrences {
    /// Before the first call. `now` is what the clock reads, rounded down and rounded up.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a period out of range, and for an end before the first call.
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
        let (missed, from_end, seed) = (every.missed, every.from_end, RandomState::new().hash_one(0));
        let left = every.times.unwrap_or(u64::MAX);
        let until_us = every.until.map_or(u64::MAX, |until| until.due_us(now));
        let mut first = Self { start_us, period_us, jitter_us, missed, from_end, number: 0, left, until_us, seed };
        first.number = first.first_from(now.0);
        let due_us = first.due_of(first.number);
        if left == 0 {
            return Err(Error::invalid("a series has a call or more, got 0 times: leave the number out for no end"));
        }
        if due_us > until_us {
            return Err(Error::invalid(format!(
                "the first call is due at {due_us} us, after the end at {until_us} us: give a later end"
            )));
        }
        Ok(first)
    }

    /// When the next call is due; `None` after the last one.
    #[must_use]
    pub fn due_us(&self) -> Option<u64> {
        let due_us = self.due_of(self.number);
        (self.left > 0 && due_us <= self.until_us).then_some(due_us)
    }

    /// As [`Self::due_us`], without the jitter.
    #[must_use]
    pub fn instant_us(&self) -> u64 {
        self.start_us.saturating_add(self.number.saturating_mul(self.period_us))
    }

    /// The call has ended at `now`: on to the next one.
    pub fn end_call(&mut self, now: (u64, u64)) {
        self.left = self.left.saturating_sub(u64::from(self.left < u64::MAX)); // added anew in its last call, it has none left
        if self.from_end {
            self.rest_from(now);
        } else {
            self.go_on(self.number.saturating_add(1), now);
        }
    }

    /// The wait for the call was given up, and begins again at `now`: what is past is missed.
    pub fn wait_again(&mut self, now: (u64, u64)) {
        if !self.from_end {
            self.go_on(self.number, now);
        }
    }

    fn go_on(&mut self, next: u64, now: (u64, u64)) {
        self.number = match self.missed {
            Missed::All => next,
            Missed::Skip => next.max(self.first_from(now.0)),
            Missed::Last => next.max(self.first_from(now.0).saturating_sub(1)),
        }
    }

    /// Leaves out what was due before `now`, as no call was to come until then.
    pub fn resume(&mut self, now: (u64, u64)) {
        if self.from_end {
            self.rest_from(now);
        } else {
            self.number = self.number.max(self.first_from(now.0));
        }
    }

    fn rest_from(&mut self, (_, now_up_us): (u64, u64)) {
        (self.start_us, self.number) = (now_up_us.saturating_add(self.period_us), 0);
    }

    /// The first instant whose call is due at `now_us` or later. The jitter is shorter than a period. So the call belongs to the
    /// last instant before that time, or to the next one.
    fn first_from(&self, now_us: u64) -> u64 {
        let last = now_us.saturating_sub(self.start_us) / self.period_us;
        if self.due_of(last) >= now_us { last } else { last + 1 }
    }

    fn due_of(&self, number: u64) -> u64 {
        let instant_us = self.start_us.saturating_add(number.saturating_mul(self.period_us));
        let jitter_us = match self.jitter_us {
            0 => 0,
            most => {
                let hashes = BuildHasherDefault::<DefaultHasher>::default();
                hashes.hash_one((self.seed, instant_us)) % most.saturating_add(1)
            }
        };
        instant_us.saturating_add(jitter_us)
    }
}

#[cfg(test)]
mod tests;
