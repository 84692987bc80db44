//! [`Deliverer`]: an open store whose messages are being delivered.

mod control;
mod submit;

pub use control::Part;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use super::destination::Destination;
use crate::base::error::{BadRecord, DeliveryError};
use crate::base::summary::Summary;
use crate::group::items::{Answer, Answers, Item};
use crate::message::columns::Columns;
use crate::message::fields::Schema;
use crate::run::settings::Settings;
use crate::run::threads::Running;
use crate::store::file::owner::Ownership;
use crate::store::replica::Replication;

/// Delivers the messages of one store with its own threads, until [`close`](Deliverer::close).
///
/// Many threads may call its methods at the same time. If a program drops it without `close`, it sends nothing more,
/// and the messages that are not delivered wait in the store.
///
/// ```
/// use std::sync::mpsc::channel;
/// use std::time::Duration;
/// use tickwheel_delivery::{Answer, Deliverer, Destination, Message, Settings, Verdict};
///
/// # let folder = tempfile::tempdir()?;
/// # let store = folder.path().join("reminders.db");
/// let (send, arrived) = channel();
/// let to = Destination::function(move |delivery| {
///     send.send((delivery.id().to_owned(), delivery.lateness_us)).expect("the program waits for it");
///     Verdict::Delivered
/// });
/// let deliverer = Deliverer::open_with(&store, to, Settings { sink_timeout_ms: 5_000, ..Settings::default() })?;
/// assert_eq!(deliverer.put(Message::after("tea", Duration::from_millis(20), "ready"))?, Answer::Accepted);
/// assert_eq!((deliverer.summary().accepted, deliverer.down()), (1, None));
///
/// let (id, lateness_us) = arrived.recv()?;
/// assert!(id == "tea" && lateness_us >= 0);
/// assert!(deliverer.wait_until_empty(Duration::from_secs(60))?);
/// assert!(deliverer.is_empty() && deliverer.len() == 0 && deliverer.failure().is_none());
/// assert!(deliverer.replication().is_none());
/// assert_eq!(deliverer.close(None)?.delivered, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Deliverer {
    running: Running,
    schema: Schema,
}

impl Deliverer {
    /// Opens the store, which is a file; a missing file is created. Overdue messages are sent at once. The same as
    /// [`open_with`](Deliverer::open_with) with the default settings.
    ///
    /// # Errors
    /// The same as for [`open_with`](Deliverer::open_with).
    pub fn open(store: impl AsRef<Path>, to: Destination) -> Result<Self, DeliveryError> {
        Self::open_with(store, to, Settings::default())
    }

    /// Opens the store with these settings: [`Settings`] has an example of `open_with`.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if a setting is out of range, or the destination can't be opened. The same if the store
    /// is in use, is on a network file system, or is not a file. [`DeliveryError::Store`] if the file can't be used.
    pub fn open_with(store: impl AsRef<Path>, to: Destination, settings: Settings) -> Result<Self, DeliveryError> {
        settings.check()?;
        let ownership = if settings.is_standby {
            Ownership::take(store.as_ref(), &mut |_| (), &mut || true)?
        } else {
            Ownership::try_take(store.as_ref())?
        };
        let schema = Schema::new(Columns::default(), settings.max_payload);
        let running = Running::open(ownership, settings, to.into_opener(), 1)?;
        running.start(running.engine().wall_clock());
        Ok(Self { running, schema })
    }

    /// Messages without an outcome, as of the last commit.
    #[must_use]
    pub fn len(&self) -> usize {
        self.running.engine().open_count() as usize
    }

    /// Whether no message waits, nothing is queued for the disk, and the observer knows of every dead letter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.running.engine().is_empty()
    }

    /// Waits until [`is_empty`](Deliverer::is_empty) is true. Returns `false` if it takes longer than the time-out.
    ///
    /// # Errors
    /// The error that ended the run.
    pub fn wait_until_empty(&self, timeout: Duration) -> Result<bool, DeliveryError> {
        self.running.wait_until_empty(timeout)
    }

    /// Counts since the store was opened, as of the last commit.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.running.engine().summary()
    }

    /// Why the destination is down, if it is. While it is down, all messages wait, and no attempts are counted.
    #[must_use]
    pub fn down(&self) -> Option<String> {
        self.running.engine().down()
    }

    /// What this process does with the chain of its store, in figures. `None`: the store is not
    /// [replicated](crate::Settings::replicate).
    #[must_use]
    pub fn replication(&self) -> Option<Replication> {
        self.running.engine().replication()
    }

    /// The error that ended the run before it was closed, if there is one: the store or the destination failed for
    /// good.
    #[must_use]
    pub fn failure(&self) -> Option<DeliveryError> {
        self.running.failure()
    }

    /// Sends the messages that are due by now, commits, and closes the store. The other messages stay in the store;
    /// they are delivered once it is opened again. The destination and the observer must not call this, because it
    /// waits for them.
    ///
    /// If a send or the observer hangs, this call waits until the time-out; `None` waits for ever. After a time-out,
    /// the messages of that send are sent again next time, and the observer gets its dead letters again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel_delivery::{Answer, Deliverer, Destination, Message, Verdict};
    /// # let folder = tempfile::tempdir()?;
    /// # let to = || Destination::function(|_| Verdict::Delivered);
    /// # let store = folder.path().join("reminders.db");
    /// # let deliverer = Deliverer::open(&store, to())?;
    /// deliverer.put(Message::after("tea", Duration::from_secs(60), "ready"))?;
    /// assert_eq!(deliverer.close(Some(Duration::from_secs(10)))?.not_delivered(), 1);
    /// assert_eq!(Deliverer::open(&store, to())?.state(None, "tea")?, Answer::Waiting);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The error that ended the run, or a failure while it was closed.
    pub fn close(&self, timeout: Option<Duration>) -> Result<Summary, DeliveryError> {
        self.running.close(timeout)
    }

    fn ask(&self, item: Item) -> Result<Answer, DeliveryError> {
        Ok(self.answers(item)?.given[0])
    }

    fn answers(&self, item: Item) -> Result<Answers, DeliveryError> {
        self.running.engine().submit(vec![item])?.wait(None).expect("it waits without a time-out")
    }
}

impl fmt::Debug for Deliverer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deliverer").field("store_id", &self.running.engine().store_id()).finish_non_exhaustive()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn usage(bad: BadRecord) -> DeliveryError {
    DeliveryError::Usage(bad.to_string())
}
