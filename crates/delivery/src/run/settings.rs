//! How messages are delivered: order, retries, time-outs and bounds, the same for each destination.

use std::fmt;
use std::io::Write as _;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::base::display::with_commas;
use crate::base::error::DeliveryError;
use crate::due::dispatcher::Event;
use crate::due::pace::Rate;
use crate::due::retry::Retry;
use crate::due::window::Bounds;
use crate::message::MAX_PAYLOAD;
use crate::message::named::{NamedSettings, TenantSettings};
use crate::sinks::Proxy;
use crate::sinks::inside::Allowed;
use crate::store::replica::Replicate;
use crate::store::{Letter, Limits};

/// A setting that is a number.
///
/// The options of the commands, the configuration file, `DeliveryQueue` and [`Settings`] read their ranges, defaults and help
/// from [`SETTINGS`]. A test compares the signatures and the hand-written pages with it.
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
/// Of each of them; the others are not about the message, or are the usual ones.
const FINAL_STATUS: Setting = Setting { name: "final-status", least: 400.0, ..count("", 499.0, None) };
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

/// How to deliver from a store. The defaults suit most programs. A program names the others, and takes the rest from
/// [`Settings::default`]; later versions may add fields.
///
/// ```
/// use tickwheel_delivery::{Allowed, Deliverer, Destination, Rate, Retry, Settings, Verdict};
///
/// # let folder = tempfile::tempdir()?;
/// # let store = folder.path().join("reminders.db");
/// let settings = Settings {
///     sink_timeout_ms: 5_000,
///     retry: Retry { max_attempts: 3, first_ms: 100, longest_ms: 10_000, ..Retry::default() },
///     rate: Some(Rate::parse("100/s")?),
///     allowed: Allowed::parse(&["10.1.0.0/16".to_owned()])?,
///     ..Settings::default()
/// };
/// let first = Deliverer::open_with(&store, Destination::function(|_| Verdict::Delivered), settings)?;
/// let second = Deliverer::open(&store, Destination::standard_output());
/// assert!(second.is_err_and(|error| error.to_string().starts_with("this process works with ")));
/// first.close(None)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether all messages have one order, instead of one order for each key. Then one message is in flight at a time.
    pub is_global: bool,
    /// How long before their due time messages are loaded into memory: 100 ms to 1 hour. The default is 10 s.
    pub horizon_ms: u64,
    /// How often a message is tried, and when.
    pub retry: Retry,
    /// How fast messages are sent, on average. Retries count too. After a quiet time, the messages of 100 ms go out at once, and at
    /// least one. Messages that the rate holds back are late; at the end they stay in the store. `None`, the default: as fast as the
    /// destination takes them.
    pub rate: Option<Rate>,
    /// The most messages of one tenant that are sent at a time, at all destinations together: 1 to 1,000,000. `None`, the default: no
    /// limit, and tenants take turns.
    pub tenant_concurrency: Option<usize>,
    /// How fast messages of one tenant are sent; `None`, the default: no limit.
    pub tenant_rate: Option<Rate>,
    /// The most sends at a time: requests of a webhook, calls of a function or of [`Sink::send`](crate::Sink::send). At least 1. Then
    /// there are no spare places, unless `spare` gives some, and a call that was cut off counts until it returns. The default,
    /// `usize::MAX`, is what the destination says: 8 young calls of a function and 64 in spare places, and 1,024 of both for a webhook.
    pub concurrency: usize,
    /// The number of spare places, 0 to 1,000,000. A send that takes long moves to a spare place, and a key whose last send was not
    /// accepted is only tried in one. So a receiver that hangs does not hold up the others. Webhooks and a
    /// [`ReplySink`](crate::ReplySink) get at most a third of the open files, and a sink that [is alone](crate::Sink::is_alone) gets
    /// none. `None`, the default: as the sink says, and none if `concurrency` is given.
    pub spare: Option<usize>,
    /// A message about which nothing is known (a refused connection, a time-out, a status of 503) becomes a dead letter when it was
    /// due, and its key without success, for this long. Time in which the destination was down does not count, and each message is
    /// tried at least once. From 1 ms to 365 days. The default is 24 hours.
    pub unanswered_for_ms: u64,
    /// How long one send may take, from 1 ms to 1 day. A send that takes longer counts as unanswered. The default is 30 s.
    pub sink_timeout_ms: u64,
    /// Statuses of a webhook's answer that make a dead letter at once, each 400 to 499, as 410 always does. The default is none.
    pub final_statuses: Vec<u16>,
    /// How long the name of a message is known after its outcome: in this time, a second message with the name is a duplicate. At most
    /// 36,500 days. The default is 7 days.
    pub keep_ids_ms: u64,
    /// The largest payload, in bytes. The default is 1 MiB.
    pub max_payload: usize,
    /// The addresses inside that named destinations may have. By default those of this machine and of private networks are refused,
    /// also if a name stands for them.
    pub allowed: Allowed,
    /// The proxy of webhooks. `None`, the default: they are sent without one, whatever the environment says.
    pub proxy: Option<Proxy>,
    /// Whether to wait, if another process has the store, until that process ends, however it ends. By default it is an error.
    pub is_standby: bool,
    /// Where the store is replicated to. `None`, the default: nowhere.
    pub replicate: Option<Replicate>,
    /// Receives dead letters and events. The default writes a line to standard error for each dead letter.
    pub observer: Arc<dyn Observer>,
    /// The bounds of memory.
    #[doc(hidden)]
    pub bounds: Bounds,
    /// The seed for the jitter of back-off.
    #[doc(hidden)]
    pub seed: u64,
    /// Sizes of the store's steps.
    #[doc(hidden)]
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
        for status in &self.final_statuses {
            FINAL_STATUS.check(f64::from(*status))?;
        }
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
            final_statuses: Vec::new(),
            keep_ids_ms: 7 * 86_400_000,
            max_payload: MAX_PAYLOAD,
            allowed: Allowed::default(),
            proxy: None,
            is_standby: false,
            replicate: None,
            observer: Arc::new(StandardError),
            bounds: Bounds::default(),
            seed: 0,
            limits: Limits::default(),
        }
    }
}

/// Receives dead letters and events, in a separate thread. A slow observer delays only its own next calls.
///
/// ```
/// use std::sync::Arc;
/// use tickwheel_delivery::{DeliveryError, Event, Letter, Observer, Settings};
///
/// struct Log;
///
/// impl Observer for Log {
///     fn letters(&self, letters: &[Letter]) -> Result<(), DeliveryError> {
///         letters.iter().for_each(|letter| println!("{}", letter.reason));
///         Ok(())
///     }
///
///     fn events(&self, events: Vec<Event>) {
///         println!("{events:?}");
///     }
/// }
///
/// let settings = Settings { observer: Arc::new(Log), ..Settings::default() };
/// ```
pub trait Observer: Send + Sync {
    /// Receives dead letters, which are on disk. If the process crashes before this call returns, the letters are
    /// passed again.
    ///
    /// # Errors
    /// The letters could not be taken. This ends the run.
    fn letters(&self, letters: &[Letter]) -> Result<(), DeliveryError>;

    /// Receives events of the destination and the clock.
    fn events(&self, events: Vec<Event>);

    /// Large messages have left memory: an allocator that keeps pages may give them back to the system now.
    fn memory_is_free(&self) {}
}

impl fmt::Debug for dyn Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// Writes dead letters to standard error.
struct StandardError;

impl Observer for StandardError {
    fn letters(&self, letters: &[Letter]) -> Result<(), DeliveryError> {
        let mut out = std::io::stderr().lock();
        for Letter { source, line, reason, .. } in letters {
            let _ = writeln!(out, "dead letter of {source}, line {line}: {reason}"); // stderr may be closed
        }
        Ok(())
    }

    fn events(&self, _: Vec<Event>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Deliverer, Destination, Verdict};

    fn refused(settings: Settings) -> String {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.db");
        let opened = Deliverer::open_with(&store, Destination::function(|_| Verdict::Delivered), settings);
        assert!(!store.exists(), "a failed start leaves nothing behind");
        opened.expect_err("it is out of range").to_string()
    }

    #[test]
    fn a_setting_out_of_range_is_named_with_what_is_allowed() {
        let usual = Settings::default;
        assert_eq!(refused(Settings { horizon_ms: 1, ..usual() }), "horizon is 0.001 s: it may be 0.1 to 3,600 s");
        assert_eq!(
            refused(Settings { sink_timeout_ms: 0, ..usual() }),
            "sink-timeout is 0 s: it may be 0.001 to 86,400 s"
        );
        let keep_ids = refused(Settings { keep_ids_ms: u64::MAX, ..usual() });
        assert!(keep_ids.ends_with(" days: it may be 0 to 36,500 days"), "{keep_ids}");
        let unanswered = refused(Settings { unanswered_for_ms: 366 * 86_400_000, ..usual() });
        assert!(unanswered.starts_with("unanswered-for is 31622400 s"), "{unanswered}");
        let rate = refused(Settings { rate: Some(Rate { messages: 0, per_us: 1_000 }), ..usual() });
        assert!(rate.starts_with("rate is 0 in 1ms: it may be one a day to"), "{rate}");
        assert_eq!(refused(Settings { concurrency: 0, ..usual() }), "concurrency is 0: it may be 1 to 1,000,000");
        for (retry, expected) in [
            (Retry { max_attempts: 0, ..Retry::default() }, "max-attempts is 0: it may be 1 to 1,000,000"),
            (
                Retry { first_ms: 3_600_000, longest_ms: 1, ..Retry::default() },
                "backoff's longest wait is 0.001 s: it may be 3600 to 86,400 s",
            ),
            (Retry { first_ms: 0, ..Retry::default() }, "backoff's first wait is 0 s: it may be 0.001 to 86,400 s"),
            (Retry { waits_end: true, ..Retry::default() }, "waits-end needs waits: give the list that ends"),
        ] {
            assert_eq!(refused(Settings { retry, ..usual() }), expected);
        }
    }

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
