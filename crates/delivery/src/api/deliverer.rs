//! A store that is being delivered, as a program sees it: [`Deliverer`].

mod control;
mod submit;

use std::fmt;
use std::time::Duration;

use crate::base::error::{BadRecord, DeliveryError};
use crate::base::summary::Summary;
use crate::group::items::{Answer, Item};
use crate::message::columns::Columns;
use crate::message::fields::Schema;
use crate::run::threads::Running;

/// A store that is being delivered, with threads of its own, until [`close`](Deliverer::close).
///
/// All its methods may be called by many threads at a time. One that is dropped without `close` sends nothing more; what it had not
/// delivered waits in the store.
///
/// ```
/// use std::sync::mpsc::channel;
/// use std::time::Duration;
/// use tickwheel_delivery::{Answer, Deliverer, Destination, Message, Verdict};
///
/// # let folder = tempfile::tempdir()?;
/// # let store = folder.path().join("reminders.db");
/// let (send, arrived) = channel();
/// let to = Destination::function(move |delivery| {
///     send.send((delivery.id().to_owned(), delivery.lateness_us)).expect("the program waits for it");
///     Verdict::Delivered
/// });
/// let deliverer = Deliverer::open(&store, to)?;
/// assert_eq!(deliverer.put(Message::after("tea", Duration::from_millis(20), "ready"))?, Answer::Accepted);
///
/// let (id, lateness_us) = arrived.recv()?;
/// assert!(id == "tea" && lateness_us >= 0);
/// assert_eq!(deliverer.close(None)?.delivered, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Deliverer {
    running: Running,
    schema: Schema,
}

impl Deliverer {
    pub(crate) fn new(running: Running, max_payload: usize) -> Self {
        Self { running, schema: Schema::new(Columns::default(), max_payload) }
    }

    /// Messages without an outcome, as of the last commit.
    ///
    /// ```
    /// # use tickwheel_delivery::{Deliverer, Destination, Verdict};
    /// # let folder = tempfile::tempdir()?;
    /// # let to = Destination::function(|_| Verdict::Delivered);
    /// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// assert_eq!(deliverer.len(), 0);
    /// # deliverer.close(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.running.engine().open_count() as usize
    }

    /// Whether no message waits, and nothing is queued or still to be told.
    ///
    /// ```
    /// # use tickwheel_delivery::{Deliverer, Destination, Verdict};
    /// # let folder = tempfile::tempdir()?;
    /// # let to = Destination::function(|_| Verdict::Delivered);
    /// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// assert!(deliverer.is_empty());
    /// # deliverer.close(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.running.engine().is_empty()
    }

    /// Waits until [`is_empty`](Deliverer::is_empty) holds; `false` if that takes longer than the time-out.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel_delivery::{Deliverer, Destination, Message, Verdict};
    /// # let folder = tempfile::tempdir()?;
    /// # let to = Destination::function(|_| Verdict::Delivered);
    /// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// deliverer.put(Message::after("tea", Duration::from_millis(20), "ready"))?;
    /// assert!(deliverer.wait_until_empty(Duration::from_secs(60))?);
    /// # deliverer.close(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What ended the run.
    pub fn wait_until_empty(&self, timeout: Duration) -> Result<bool, DeliveryError> {
        self.running.wait_until_empty(timeout)
    }

    /// What was counted since the store was opened, as of the last commit.
    ///
    /// ```
    /// # use tickwheel_delivery::{Deliverer, Destination, Message, Verdict};
    /// # use std::time::Duration;
    /// # let folder = tempfile::tempdir()?;
    /// # let to = Destination::function(|_| Verdict::Delivered);
    /// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// deliverer.put(Message::after("tea", Duration::from_secs(60), "ready"))?;
    /// assert_eq!(deliverer.summary().accepted, 1);
    /// # deliverer.close(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.running.engine().summary()
    }

    /// Why the destination is down, if it is. While it is down, all messages wait, and no attempt of theirs is counted.
    ///
    /// ```
    /// # use tickwheel_delivery::{Deliverer, Destination, Verdict};
    /// # let folder = tempfile::tempdir()?;
    /// # let to = Destination::function(|_| Verdict::Delivered);
    /// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// assert_eq!(deliverer.down(), None);
    /// # deliverer.close(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn down(&self) -> Option<String> {
        self.running.engine().down()
    }

    /// What ended the run before it was closed, if anything did: the store or the destination failed for good.
    ///
    /// ```
    /// # use tickwheel_delivery::{Deliverer, Destination, Verdict};
    /// # let folder = tempfile::tempdir()?;
    /// # let to = Destination::function(|_| Verdict::Delivered);
    /// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// assert!(deliverer.failure().is_none());
    /// # deliverer.close(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn failure(&self) -> Option<DeliveryError> {
        self.running.failure()
    }

    /// Sends what is due by now, commits, and gives the store up. The rest stays in it, and is delivered once it is opened again.
    /// Not to be called by the destination or the observer, which it waits for.
    ///
    /// A send or an observer that hangs is waited for until the time-out; `None`: for ever. What was in its hands is sent, or told,
    /// again next time.
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
    /// What ended the run, or a failure at the end of it.
    pub fn close(&self, timeout: Option<Duration>) -> Result<Summary, DeliveryError> {
        self.running.close(timeout)
    }

    /// One item has one answer.
    fn ask(&self, item: Item) -> Result<Answer, DeliveryError> {
        let answers = self.running.submit(vec![item])?.wait(None).expect("it waits without a time-out")?;
        Ok(answers[0])
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

#[cfg(test)]
mod tests;
