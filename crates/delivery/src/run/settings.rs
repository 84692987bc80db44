//! How messages are delivered: order, retries, time-outs and bounds, the same for each destination.

use serde::de::DeserializeOwned;

use crate::base::display::with_commas;
use crate::base::error::DeliveryError;
use crate::due::pace::Rate;
use crate::due::retry::Retry;
use crate::due::window::Bounds;
use crate::message::named::{NamedSettings, TenantSettings};
use crate::sinks::inside::Allowed;
use crate::store::Limits;

/// A setting that is a number.
///
/// The options of the commands, the configuration file, `DeliveryQueue` and [`OpenOptions`](crate::OpenOptions) read
/// their ranges, defaults and help from [`SETTINGS`]. A test compares the signatures and the hand-written pages with
/// it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The name of the option.
    pub name: &'static str,
    /// The unit of its number: `s`, `days`, or empty.
    pub unit: &'static str,
    /// Whether it is a whole number.
    pub is_whole: bool,
    /// The smallest number.
    pub least: f64,
    /// The largest one.
    pub most: f64,
    /// The value if the option is left out; `None`: no limit.
    pub default: Option<f64>,
}

const fn seconds(name: &'static str, least: f64, most: f64, default: Option<f64>) -> Setting {
    Setting { name, unit: "s", is_whole: false, least, most, default }
}

const fn count(name: &'static str, most: f64, default: Option<f64>) -> Setting {
    Setting { name, unit: "", is_whole: true, least: 1.0, most, default }
}

const HORIZON: Setting = seconds("horizon", 0.1, 3_600.0, Some(10.0));
const MAX_ATTEMPTS: Setting = count("max-attempts", 1_000_000.0, Some(8.0));
const FIRST_WAIT: Setting = seconds("backoff's first wait", 0.001, 86_400.0, Some(1.0));
const LONGEST_WAIT: Setting = seconds("backoff's longest wait", 0.001, 86_400.0, Some(300.0));
const UNANSWERED_FOR: Setting = seconds("unanswered-for", 0.001, 31_536_000.0, Some(86_400.0));
const SINK_TIMEOUT: Setting = seconds("sink-timeout", 0.001, 86_400.0, Some(30.0));
const KEEP_IDS: Setting =
    Setting { name: "keep-ids", unit: "days", is_whole: false, least: 0.0, most: 36_500.0, default: Some(7.0) };
const CONCURRENCY: Setting = count("concurrency", 1_000_000.0, None);
const TENANT_CONCURRENCY: Setting = count("tenant-concurrency", 1_000_000.0, None);
/// Of a destination alone.
const DISABLE_AFTER: Setting =
    Setting { name: "disable_after_days", unit: "days", is_whole: false, least: 0.01, most: 365.0, default: None };
/// Of a tenant alone.
const WEIGHT: Setting = count("weight", 100.0, Some(1.0));
/// The most waits of a destination.
const MOST_WAITS: usize = 1_000;
const SPARE: Setting = Setting { least: 0.0, ..count("spare", 1_000_000.0, None) };

/// All settings that are numbers.
pub const SETTINGS: [Setting; 10] = [
    HORIZON,
    MAX_ATTEMPTS,
    FIRST_WAIT,
    LONGEST_WAIT,
    UNANSWERED_FOR,
    SINK_TIMEOUT,
    KEEP_IDS,
    CONCURRENCY,
    SPARE,
    TENANT_CONCURRENCY,
];

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

/// Checks the settings of a named destination, in JSON as a request gives them (D23).
///
/// # Errors
/// [`DeliveryError::Usage`]: what is wrong with them. It shows no secret.
pub fn check_destination(json: &str) -> Result<(), DeliveryError> {
    let given: NamedSettings = read(json)?;
    if given.url.is_empty() && !given.function {
        return Err(DeliveryError::Usage("url is missing: give the address, http://... or https://...".to_owned()));
    }
    if given.function && !(given.url.is_empty() && given.headers.is_empty() && given.secrets.is_none()) {
        return Err(DeliveryError::Usage(
            "a function has no url, no headers and no secrets: leave them out".to_owned(),
        ));
    }
    #[cfg(feature = "http")]
    if !given.function {
        crate::sinks::http::webhook_of(&given)?;
    }
    check_limits(given.rate.as_deref(), given.concurrency)?;
    given.spare.map_or(Ok(()), |it| SPARE.check(it as f64))?;
    given.sink_timeout_s.map_or(Ok(()), |it| Setting { name: "sink_timeout_s", ..SINK_TIMEOUT }.check(it))?;
    given.disable_after_days.map_or(Ok(()), |it| DISABLE_AFTER.check(it))?;
    let Some(waits_s) = given.waits_s else { return Ok(()) };
    if waits_s.is_empty() || waits_s.len() > MOST_WAITS {
        let most = with_commas(MOST_WAITS);
        let text = format!("waits_s has {} waits: it may have 1 to {most}, or be left out", with_commas(waits_s.len()));
        return Err(DeliveryError::Usage(text));
    }
    waits_s.iter().try_for_each(|wait| Setting { name: "a wait of waits_s", ..FIRST_WAIT }.check(*wait))
}

/// Checks the settings of a tenant (D24), in JSON.
///
/// # Errors
/// [`DeliveryError::Usage`] names the setting that is not allowed.
pub fn check_tenant(json: &str) -> Result<(), DeliveryError> {
    let given: TenantSettings = read(json)?;
    check_limits(given.rate.as_deref(), given.concurrency)?;
    given.weight.map_or(Ok(()), |it| WEIGHT.check(f64::from(it)))
}

fn read<T: DeserializeOwned>(json: &str) -> Result<T, DeliveryError> {
    let unread = |error| DeliveryError::Usage(format!("the settings can't be read: {}", without_texts(&error)));
    serde_json::from_str(json).map_err(unread)
}

fn check_limits(rate: Option<&str>, concurrency: Option<usize>) -> Result<(), DeliveryError> {
    rate.map_or(Ok(()), |rate| Rate::parse(rate).map(drop))?;
    concurrency.map_or(Ok(()), |it| CONCURRENCY.check(it as f64))
}

/// What is wrong, without the texts that were given: one may be a secret.
fn without_texts(error: &serde_json::Error) -> String {
    let said = error.to_string();
    match (said.find("string \""), said.rfind("\", expected")) {
        (Some(from), Some(to)) => format!("{}a text{}", &said[..from], &said[to + 1..]),
        _ => said,
    }
}

/// How to deliver.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether all messages have one order, instead of one order for each key.
    pub is_global: bool,
    /// How far ahead messages are loaded into memory.
    pub horizon_ms: u64,
    /// How often a message is tried, and when.
    pub retry: Retry,
    /// How fast messages are sent; `None`: as fast as the destination takes them.
    pub rate: Option<Rate>,
    /// The most messages of one tenant that are out at a time; `None`: no limit.
    pub tenant_concurrency: Option<usize>,
    /// How fast messages of one tenant are sent; `None`: no limit.
    pub tenant_rate: Option<Rate>,
    /// The most young sends at a time. A sink may allow fewer.
    pub concurrency: usize,
    /// The places beside these, for sends that are slow or in doubt. `None`: as the sink says, and none if `concurrency`
    /// is given.
    pub spare: Option<usize>,
    /// A message about which nothing is known becomes a dead letter when it was due, and its key without success, for
    /// this long.
    pub unanswered_for_ms: u64,
    /// How long a send may take.
    pub sink_timeout_ms: u64,
    /// How long a message is known after its outcome.
    pub keep_ids_ms: u64,
    /// The addresses inside that named destinations may have.
    pub allowed: Allowed,
    /// The bounds of memory.
    pub bounds: Bounds,
    /// The seed for the jitter of back-off.
    pub seed: u64,
    /// Sizes of the store's steps.
    pub limits: Limits,
}

impl Settings {
    /// Checks that each setting is in its range.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] names a setting out of its range.
    pub(crate) fn check(&self) -> Result<(), DeliveryError> {
        let s = |ms: u64| ms as f64 / 1_000.0;
        let Self { horizon_ms, sink_timeout_ms, keep_ids_ms, unanswered_for_ms, retry, rate, concurrency, .. } = self;
        HORIZON.check(s(*horizon_ms))?;
        MAX_ATTEMPTS.check(f64::from(retry.max_attempts))?;
        FIRST_WAIT.check(s(retry.first_ms))?;
        Setting { least: s(retry.first_ms), ..LONGEST_WAIT }.check(s(retry.longest_ms))?;
        for wait_ms in &retry.waits_ms {
            Setting { name: "a wait", ..FIRST_WAIT }.check(s(*wait_ms))?;
        }
        if retry.waits_end && retry.waits_ms.is_empty() {
            return Err(DeliveryError::Usage("waits-end needs waits: give the list that ends".to_owned()));
        }
        UNANSWERED_FOR.check(s(*unanswered_for_ms))?;
        self.spare.map_or(Ok(()), |spare| SPARE.check(spare as f64))?;
        SINK_TIMEOUT.check(s(*sink_timeout_ms))?;
        KEEP_IDS.check(s(*keep_ids_ms) / 86_400.0)?;
        if *concurrency != usize::MAX {
            CONCURRENCY.check(*concurrency as f64)?;
        }
        self.tenant_concurrency.map_or(Ok(()), |most| TENANT_CONCURRENCY.check(most as f64))?;
        self.tenant_rate.map_or(Ok(()), Rate::check)?;
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
            tenant_concurrency: None,
            tenant_rate: None,
            concurrency: usize::MAX,
            spare: None,
            unanswered_for_ms: 86_400_000,
            sink_timeout_ms: 30_000,
            keep_ids_ms: 7 * 86_400_000,
            allowed: Allowed::default(),
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
        let Settings { horizon_ms, retry, unanswered_for_ms, sink_timeout_ms, keep_ids_ms, concurrency, spare, .. } =
            Settings::default();
        let tenant_concurrency = Settings::default().tenant_concurrency;
        let found = [
            Some(horizon_ms as f64 / 1e3),
            Some(f64::from(retry.max_attempts)),
            Some(retry.first_ms as f64 / 1e3),
            Some(retry.longest_ms as f64 / 1e3),
            Some(unanswered_for_ms as f64 / 1e3),
            Some(sink_timeout_ms as f64 / 1e3),
            Some(keep_ids_ms as f64 / 86_400e3),
            (concurrency != usize::MAX).then_some(concurrency as f64),
            spare.map(|spare| spare as f64),
            tenant_concurrency.map(|most| most as f64),
        ];
        assert_eq!(found, SETTINGS.map(|it| it.default));
        Settings::default().check().unwrap();
        assert!(SETTINGS.iter().all(|it| it.default.is_none_or(|value| it.check(value).is_ok())));
    }
}
