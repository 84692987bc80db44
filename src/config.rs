//! The settings of a timer, checked once (T13).

use crate::clock::LIMIT_MS;
use crate::error::Error;
use crate::schedule::Precision;
use crate::slack::Slack;

/// How a timer is built. `Config::default()` has a tick of 1 ms, 20 buckets a level, and releases tasks at their exact instant.
///
/// ```
/// use tickwheel::{Config, Precision};
///
/// let clock_face = Config::default().with_tick_ms(1000).with_wheel_sizes([60, 60, 12]);
/// assert!(clock_face.check().is_ok());
/// assert!(clock_face.with_tick_ms(0).check().is_err());
///
/// let as_in_kafka = Config::default().with_precision(Precision::Tick).with_max_pending(10_000);
/// assert_eq!(as_in_kafka.max_pending, Some(10_000));
/// let slack = Config::default().with_slack_us(250);
/// assert_eq!((slack.slack_us, slack.max_slack_us), (250, 250));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The finest tick, in milliseconds.
    pub tick_ms: u64,
    /// Buckets per level; the last size repeats for the levels above.
    pub wheel_sizes: Vec<u32>,
    /// When tasks are released.
    pub precision: Precision,
    /// The least time between two wake-ups of the reaper, in microseconds.
    pub slack_us: u64,
    /// Above 2,000 wake-ups in a second that time doubles, up to this, until there are fewer than 500.
    pub max_slack_us: u64,
    /// The most tasks that may be pending or wait for the executor. An add that would pass it gets [`Error::Full`].
    pub max_pending: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tick_ms: 1,
            wheel_sizes: vec![20],
            precision: Precision::Exact,
            slack_us: 100,
            max_slack_us: 1_000,
            max_pending: None,
        }
    }
}

impl Config {
    /// With this tick, in milliseconds: 1 or more.
    #[must_use]
    pub fn with_tick_ms(self, tick_ms: u64) -> Self {
        Self { tick_ms, ..self }
    }

    /// With these numbers of buckets, one for each level, each from 2 to 65,536. The last one repeats for the levels above.
    #[must_use]
    pub fn with_wheel_sizes(self, sizes: impl Into<Vec<u32>>) -> Self {
        Self { wheel_sizes: sizes.into(), ..self }
    }

    /// With tasks released at their exact instant, or with their bucket.
    #[must_use]
    pub fn with_precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }

    /// With at least this time between two wake-ups of the reaper, in microseconds, also while there are many.
    ///
    /// By default it is 100; above 2,000 wake-ups in a second it grows to at most 1,000, until there are fewer than 500.
    #[must_use]
    pub fn with_slack_us(self, slack_us: u64) -> Self {
        Self { slack_us, max_slack_us: slack_us, ..self }
    }

    pub(crate) fn slack(&self) -> Slack {
        Slack { least_us: self.slack_us, most_us: self.slack_us.max(self.max_slack_us) }
    }

    /// With room for this many tasks that are pending or wait for the executor; `None` for no bound.
    #[must_use]
    pub fn with_max_pending(self, max_pending: impl Into<Option<usize>>) -> Self {
        Self { max_pending: max_pending.into(), ..self }
    }

    /// Whether the settings are allowed.
    ///
    /// # Errors
    /// [`Error::Invalid`] says which is not, and what is.
    pub fn check(&self) -> Result<(), Error> {
        if !(1..LIMIT_MS).contains(&self.tick_ms) {
            return Err(Error::invalid(format!(
                "tick_ms must be from 1 to {}, got {}: use 1 for a tick of one millisecond",
                LIMIT_MS - 1,
                self.tick_ms
            )));
        }
        if self.wheel_sizes.is_empty() {
            return Err(Error::invalid(
                "wheel_size must name at least one level, got none: use 20 for 20 buckets a level",
            ));
        }
        if let Some(size) = self.wheel_sizes.iter().find(|size| !(2..=65_536).contains(*size)) {
            return Err(Error::invalid(format!(
                "wheel_size must be from 2 to 65536, got {size}: use 20 for 20 buckets a level"
            )));
        }
        let slack_us = self.slack_us.max(self.max_slack_us);
        if slack_us >= LIMIT_MS {
            return Err(Error::invalid(format!(
                "slack_us must be below {LIMIT_MS}, got {slack_us}: use 100 for at most 10,000 wake-ups a second"
            )));
        }
        if self.max_pending == Some(0) {
            return Err(Error::invalid("max_pending must be at least 1, got 0: leave it out for no bound"));
        }
        Ok(())
    }

    /// Whether a clock may start there.
    pub(crate) fn check_start(start_ms: u64) -> Result<(), Error> {
        if start_ms >= LIMIT_MS {
            return Err(Error::invalid(format!(
                "a clock must start before 2^52 ms, got {start_ms} ms: start it lower"
            )));
        }
        Ok(())
    }
}
