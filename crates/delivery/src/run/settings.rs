//! How messages are delivered: order, retries, time-outs and bounds, the same for each destination.

use crate::base::display::with_commas;
use crate::base::error::DeliveryError;
use crate::due::pace::Rate;
use crate::due::retry::Retry;
use crate::due::window::Bounds;
use crate::store::Limits;

/// A setting that is a number.
///
/// The options of the commands, the configuration file, `DeliveryQueue` and [`OpenOptions`](crate::OpenOptions) read their ranges,
/// defaults and help from [`SETTINGS`]; a test compares the signatures and the pages that are written by hand.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// As the option is called.
    pub name: &'static str,
    /// Of its number: `s`, `days`, or none.
    pub unit: &'static str,
    /// Whether it is a count.
    pub is_whole: bool,
    /// The smallest number.
    pub least: f64,
    /// The largest one.
    pub most: f64,
    /// Without it; `None`: no limit.
    pub default: Option<f64>,
}

const fn seconds(name: &'static str, least: f64, most: f64, default: Option<f64>) -> Setting {
    Setting { name, unit: "s", is_whole: false, least, most, default }
}

const fn count(name: &'static str, most: f64, default: Option<f64>) -> Setting {
    Setting { name, unit: "", is_whole: true, least: 1.0, most, default }
}

const HORIZON: Setting = seconds("horizon", 0.1, 3_600.0, Some(10.0));
const MAX_ATTEMPTS: Setting = count("max-attempts", 1_000_000.0, Some(5.0));
const FIRST_WAIT: Setting = seconds("backoff's first wait", 0.001, 86_400.0, Some(1.0));
const LONGEST_WAIT: Setting = seconds("backoff's longest wait", 0.001, 86_400.0, Some(300.0));
const GIVE_UP_AFTER: Setting = seconds("give-up-after", 0.001, 31_536_000.0, None);
const SINK_TIMEOUT: Setting = seconds("sink-timeout", 0.001, 86_400.0, Some(30.0));
const KEEP_IDS: Setting =
    Setting { name: "keep-ids", unit: "days", is_whole: false, least: 0.0, most: 36_500.0, default: Some(7.0) };
const CONCURRENCY: Setting = count("concurrency", 1_000_000.0, None);

/// All of them.
pub const SETTINGS: [Setting; 8] =
    [HORIZON, MAX_ATTEMPTS, FIRST_WAIT, LONGEST_WAIT, GIVE_UP_AFTER, SINK_TIMEOUT, KEEP_IDS, CONCURRENCY];

impl Setting {
    fn check(&self, given: f64) -> Result<(), DeliveryError> {
        let Self { name, unit, least, most, .. } = self;
        if (*least..=*most).contains(&given) {
            return Ok(());
        }
        let most = with_commas(*most as usize);
        let text = format!("{name} is {given} {unit}: it may be {least} to {most} {unit}");
        Err(DeliveryError::Usage(text.replace(" :", ":").trim_end().to_owned()))
    }
}

/// How to deliver.
#[derive(Clone, Debug)]
pub struct Settings {
    /// One order of all messages, not one of each key.
    pub is_global: bool,
    /// How far ahead messages are loaded into memory.
    pub horizon_ms: u64,
    /// How often a message is tried, and when.
    pub retry: Retry,
    /// How fast messages are sent; `None`: as fast as the destination takes them.
    pub rate: Option<Rate>,
    /// The most sends at a time; a sink may have fewer.
    pub concurrency: usize,
    /// A message that has been due for so long while the destination was down is a dead letter; `None`: never.
    pub give_up_after_ms: Option<u64>,
    /// How long a send may take.
    pub sink_timeout_ms: u64,
    /// How long a message is known after its outcome.
    pub keep_ids_ms: u64,
    /// What may be in memory.
    pub bounds: Bounds,
    /// Of the jitter of back-off.
    pub seed: u64,
    /// Sizes of the store's steps.
    pub limits: Limits,
}

impl Settings {
    /// Whether each is in its range.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`], which says which one is not.
    pub(crate) fn check(&self) -> Result<(), DeliveryError> {
        let s = |ms: u64| ms as f64 / 1_000.0;
        let Self { horizon_ms, sink_timeout_ms, keep_ids_ms, give_up_after_ms, retry, rate, concurrency, .. } = self;
        HORIZON.check(s(*horizon_ms))?;
        MAX_ATTEMPTS.check(f64::from(retry.max_attempts))?;
        FIRST_WAIT.check(s(retry.first_ms))?;
        Setting { least: s(retry.first_ms), ..LONGEST_WAIT }.check(s(retry.longest_ms))?;
        give_up_after_ms.map_or(Ok(()), |ms| GIVE_UP_AFTER.check(s(ms)))?;
        SINK_TIMEOUT.check(s(*sink_timeout_ms))?;
        KEEP_IDS.check(s(*keep_ids_ms) / 86_400.0)?;
        if *concurrency != usize::MAX {
            CONCURRENCY.check(*concurrency as f64)?;
        }
        rate.map_or(Ok(()), Rate::check)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            is_global: false,
            horizon_ms: 10_000,
            retry: Retry::default(),
            rate: None,
            concurrency: usize::MAX,
            give_up_after_ms: None,
            sink_timeout_ms: 30_000,
            keep_ids_ms: 7 * 86_400_000,
            bounds: Bounds::default(),
            seed: 0,
            limits: Limits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_table_and_in_their_ranges() {
        let Settings { horizon_ms, retry, give_up_after_ms, sink_timeout_ms, keep_ids_ms, concurrency, .. } =
            Settings::default();
        let found = [
            Some(horizon_ms as f64 / 1e3),
            Some(f64::from(retry.max_attempts)),
            Some(retry.first_ms as f64 / 1e3),
            Some(retry.longest_ms as f64 / 1e3),
            give_up_after_ms.map(|ms| ms as f64 / 1e3),
            Some(sink_timeout_ms as f64 / 1e3),
            Some(keep_ids_ms as f64 / 86_400e3),
            (concurrency != usize::MAX).then_some(concurrency as f64),
        ];
        assert_eq!(found, SETTINGS.map(|it| it.default));
        Settings::default().check().unwrap();
        assert!(SETTINGS.iter().all(|it| it.default.is_none_or(|value| it.check(value).is_ok())));
    }
}
