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
/// let clock_face = Config { tick_ms: 1000, wheel_sizes: vec![60, 60, 12], ..Config::default() };
/// assert!(clock_face.check().is_ok());
/// assert!(Config { tick_ms: 0, ..clock_face }.check().is_err());
///
/// let as_in_kafka = Config { precision: Precision::Tick, max_pending: Some(10_000), ..Config::default() };
/// assert!(as_in_kafka.check().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The finest tick, in milliseconds: 1 or more.
    pub tick_ms: u64,
    /// Buckets per level, each from 2 to 65,536; the last size repeats for the levels above.
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
    pub(crate) fn slack(&self) -> Slack {
        Slack { least_us: self.slack_us, most_us: self.slack_us.max(self.max_slack_us) }
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
