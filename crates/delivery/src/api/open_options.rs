//! [`OpenOptions`]: how to open a store for delivery.

use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use super::deliverer::Deliverer;
use super::destination::Destination;
use crate::base::clock::{whole, whole_ms};
use crate::base::error::DeliveryError;
use crate::due::dispatcher::Event;
use crate::due::pace::Rate;
use crate::message::MAX_PAYLOAD;
use crate::run::settings::Settings;
use crate::run::threads::{Observer, Running};
use crate::sinks::inside::Allowed;
use crate::store::Letter;
use crate::store::file::owner::Ownership;

/// How to deliver from a store. The default suits most programs; [`Deliverer::open`] uses it.
///
/// ```
/// use std::time::Duration;
/// use tickwheel_delivery::{Destination, OpenOptions, Verdict};
///
/// # let folder = tempfile::tempdir()?;
/// let deliverer = OpenOptions::default()
///     .with_max_attempts(3)
///     .with_backoff(Duration::from_millis(100), Duration::from_secs(10))
///     .with_sink_timeout(Duration::from_secs(5))
///     .open(folder.path().join("reminders.db"), Destination::function(|_| Verdict::Delivered))?;
/// deliverer.close(None)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The other options:
///
/// ```
/// use std::time::Duration;
/// use tickwheel_delivery::{Destination, OpenOptions};
///
/// # let folder = tempfile::tempdir()?;
/// # let store = folder.path().join("reminders.db");
/// let options = OpenOptions::default()
///     .with_global_order()
///     .with_horizon(Duration::from_secs(30))
///     .with_waits([5, 300, 1_800].map(Duration::from_secs))
///     .with_waits_end()
///     .with_unanswered_for(Duration::from_secs(3_600))
///     .with_rate(100, Duration::from_secs(1))
///     .with_concurrency(4)
///     .with_spare(16)
///     .with_tenant_concurrency(3)
///     .with_tenant_rate(10, Duration::from_secs(1))
///     .with_keep_ids(Duration::from_secs(30 * 86_400))
///     .with_max_payload(64 << 10)
///     .with_allowed_addresses(["10.1.0.0/16"])?
///     .with_standby();
/// let first = options.open(&store, Destination::standard_output())?;
/// let second = OpenOptions::default().open(&store, Destination::standard_output());
/// assert!(second.is_err_and(|error| error.to_string().starts_with("this process works with ")));
/// first.close(None)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct OpenOptions {
    settings: Settings,
    max_payload: usize,
    observer: Box<dyn Observer>,
    is_standby: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            max_payload: MAX_PAYLOAD,
            observer: Box::new(StandardError),
            is_standby: false,
        }
    }
}

impl OpenOptions {
    /// Sends all messages in one order, instead of one order for each key. Then one message is in flight at a time.
    pub fn with_global_order(mut self) -> Self {
        self.settings.is_global = true;
        self
    }

    /// Sets how long before their due time messages are loaded into memory: 100 ms to 1 hour. The default is 10 s.
    pub fn with_horizon(mut self, horizon: Duration) -> Self {
        self.settings.horizon_ms = whole_ms(horizon);
        self
    }

    /// Sets how often a message is tried if its destination refuses it: 1 to 1,000,000 times. After the last attempt
    /// the message is a dead letter. Attempts without an answer do not count: see
    /// [`with_unanswered_for`](OpenOptions::with_unanswered_for). The default is 8.
    pub fn with_max_attempts(mut self, attempts: u32) -> Self {
        self.settings.retry.max_attempts = attempts;
        self
    }

    /// Sets the first and the longest wait of a key after a send that was not accepted. The wait doubles after each such
    /// send; it is 1 ms to 1 day. Each wait is shortened at random, by up to a half. The defaults are 1 s and 5 minutes.
    pub fn with_backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.settings.retry.first_ms = whole_ms(first);
        self.settings.retry.longest_ms = whole_ms(longest);
        self.settings.retry.waits_ms.clear();
        self
    }

    /// Sets these waits exactly, instead of a back-off. The end of the list is not the end of the message: the last wait
    /// is used again and again, unless [`with_waits_end`](Self::with_waits_end) is called. Each is 1 ms to 1 day.
    pub fn with_waits(mut self, waits: impl IntoIterator<Item = Duration>) -> Self {
        self.settings.retry.waits_ms = waits.into_iter().map(whole_ms).collect();
        self
    }

    /// Lets named destinations have addresses of these networks inside, such as `10.0.0.0/8` or `127.0.0.1`. Otherwise those
    /// of this machine and of private networks are refused, also if a name stands for them.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`]: one of them is no network.
    pub fn with_allowed_addresses(
        mut self,
        networks: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, DeliveryError> {
        self.settings.allowed = Allowed::parse(&networks.into_iter().map(Into::into).collect::<Vec<_>>())?;
        Ok(self)
    }

    /// Makes the end of the list of waits the end of the message: if the attempt after the last wait is not accepted,
    /// whatever the answers were, it is a dead letter. The number of attempts and the time without an answer do not
    /// count then. It needs [`with_waits`](Self::with_waits).
    pub fn with_waits_end(mut self) -> Self {
        self.settings.retry.waits_end = true;
        self
    }

    /// Sets when a message is given up about which nothing is known: a refused connection, a time-out, a status of 503.
    /// It becomes a dead letter when it was due, and its key without success, for this long. Time in which the
    /// destination was down does not count, and each message is tried at least once. From 1 ms to 365 days. The default
    /// is 24 hours.
    pub fn with_unanswered_for(mut self, time: Duration) -> Self {
        self.settings.unanswered_for_ms = whole_ms(time);
        self
    }

    /// Sets how long one send may take, from 1 ms to 1 day. A send that takes longer counts as unanswered. The default
    /// is 30 s.
    pub fn with_sink_timeout(mut self, timeout: Duration) -> Self {
        self.settings.sink_timeout_ms = whole_ms(timeout);
        self
    }

    /// Limits the rate: at most `messages` are sent in the time `per`, on average. Retries count too. The rate may be
    /// one a day to 1,000,000 a second. After a quiet time, the messages of 100 ms go out at once, and at least one
    /// message. Messages that the rate holds back are late; at the end they stay in the store. By default messages go
    /// out as fast as the destination takes them.
    pub fn with_rate(mut self, messages: u64, per: Duration) -> Self {
        self.settings.rate = Some(Rate { messages, per_us: whole(per, 1_000) });
        self
    }

    /// Limits the number of sends at a time: requests of a webhook, calls of a function or of
    /// [`Sink::send`](crate::Sink::send). At least 1. Then there are no spare places, unless
    /// [`with_spare`](OpenOptions::with_spare) gives some, and a call that was cut off counts until it returns. By
    /// default a function has 8 young calls at a time and 64 in spare places, and a webhook has 1,024 of both.
    pub fn with_concurrency(mut self, sends: usize) -> Self {
        self.settings.concurrency = sends;
        self
    }

    /// Sets the number of spare places. A send that takes long moves to a spare place, and a key whose last send was not
    /// accepted is only tried in one. So a receiver that hangs does not hold up the others. 0 to 1,000,000.
    /// Webhooks and a [`ReplySink`](crate::ReplySink) get at most a third of the open files, and a sink that
    /// [is alone](crate::Sink::is_alone) gets none.
    pub fn with_spare(mut self, places: usize) -> Self {
        self.settings.spare = Some(places);
        self
    }

    /// Limits how many messages of one tenant are sent at a time, at all destinations together: 1 to 1,000,000. By default
    /// there is no limit, and tenants take turns.
    pub fn with_tenant_concurrency(mut self, messages: usize) -> Self {
        self.settings.tenant_concurrency = Some(messages);
        self
    }

    /// Limits the rate of each tenant, as [`with_rate`](OpenOptions::with_rate) does that of all.
    pub fn with_tenant_rate(mut self, messages: u64, per: Duration) -> Self {
        self.settings.tenant_rate = Some(Rate { messages, per_us: whole(per, 1_000) });
        self
    }

    /// Sets how long the name of a message is known after its outcome. In this time, a second message with the name is
    /// a duplicate. At most 36,500 days. The default is 7 days.
    pub fn with_keep_ids(mut self, time: Duration) -> Self {
        self.settings.keep_ids_ms = whole_ms(time);
        self
    }

    /// Sets the largest payload, in bytes. The default is 1 MiB.
    pub fn with_max_payload(mut self, bytes: usize) -> Self {
        self.max_payload = bytes;
        self
    }

    /// Sets the observer of dead letters and events. The default observer writes a line to standard error for each dead
    /// letter.
    ///
    /// ```
    /// use tickwheel_delivery::{DeliveryError, Event, Letter, Observer, OpenOptions};
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
    /// let options = OpenOptions::default().with_observer(Log);
    /// ```
    pub fn with_observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observer = Box::new(observer);
        self
    }

    /// If another process has the store, waits until that process ends, however it ends. Without this option it is an
    /// error.
    pub fn with_standby(mut self) -> Self {
        self.is_standby = true;
        self
    }

    /// Opens the store, which is a file; a missing file is created. Overdue messages are sent at once.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if an option is out of range, or the destination can't be opened. The same if the store
    /// is in use, is on a network file system, or is not a file. [`DeliveryError::Store`] if the file can't be used.
    pub fn open(self, store: impl AsRef<Path>, to: Destination) -> Result<Deliverer, DeliveryError> {
        self.settings.check()?;
        let ownership = if self.is_standby {
            Ownership::take(store.as_ref(), &mut |_| (), &mut || true)?
        } else {
            Ownership::try_take(store.as_ref())?
        };
        let running = Running::open(ownership, self.settings, to.into_opener(), 1, self.observer)?;
        running.start(running.engine().wall_clock());
        Ok(Deliverer::new(running, self.max_payload))
    }
}

/// Opens a store without options.
impl Deliverer {
    /// Opens the store, which is a file; a missing file is created. Overdue messages are sent at once. The same as
    /// [`OpenOptions::open`] with the default options.
    ///
    /// # Errors
    /// The same as for [`OpenOptions::open`].
    pub fn open(store: impl AsRef<Path>, to: Destination) -> Result<Self, DeliveryError> {
        OpenOptions::default().open(store, to)
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, max_payload, is_standby, .. } = self;
        let mut shown = f.debug_struct("OpenOptions");
        shown.field("settings", settings).field("max_payload", max_payload).field("is_standby", is_standby);
        shown.finish_non_exhaustive()
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
    use crate::Verdict;

    const MS: Duration = Duration::from_millis(1);
    const HOUR: Duration = Duration::from_secs(3_600);
    const DAY: Duration = Duration::from_secs(86_400);

    fn refused(options: OpenOptions) -> String {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.db");
        let opened = options.open(&store, Destination::function(|_| Verdict::Delivered));
        assert!(!store.exists(), "a failed start leaves nothing behind");
        opened.expect_err("it is out of range").to_string()
    }

    #[test]
    fn an_option_out_of_range_is_named_with_what_is_allowed() {
        let options = OpenOptions::default;
        let longest = Duration::MAX;
        assert_eq!(refused(options().with_horizon(MS)), "horizon is 0.001 s: it may be 0.1 to 3,600 s");
        assert_eq!(
            refused(options().with_sink_timeout(Duration::ZERO)),
            "sink-timeout is 0 s: it may be 0.001 to 86,400 s"
        );
        assert!(refused(options().with_keep_ids(longest)).ends_with(" days: it may be 0 to 36,500 days"));
        assert!(refused(options().with_unanswered_for(366 * DAY)).starts_with("unanswered-for is 31622400 s"));
        assert_eq!(refused(options().with_max_attempts(0)), "max-attempts is 0: it may be 1 to 1,000,000");
        assert!(refused(options().with_rate(0, MS)).starts_with("rate is 0 in 1ms: it may be one a day to"));
        assert_eq!(refused(options().with_concurrency(0)), "concurrency is 0: it may be 1 to 1,000,000");
        assert!(refused(options().with_backoff(HOUR, MS)).contains("wait is 0.001 s: it may be 3600 to 86,400 s"));
        assert!(refused(options().with_backoff(Duration::ZERO, MS)).starts_with("backoff's first wait is 0 s"));
    }

    #[test]
    fn a_time_is_rounded_up_to_the_millisecond() {
        assert_eq!(whole_ms(Duration::from_nanos(1)), 1);
        assert_eq!(whole_ms(MS), 1);
        assert_eq!(whole_ms(Duration::MAX), u64::MAX);
    }
}
