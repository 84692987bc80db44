//! What changes messages that were submitted, and the destination's pause (D7, D16). Each call returns once its answer is on disk.

use std::time::{Duration, SystemTime};

use super::{Deliverer, usage};
use crate::base::error::DeliveryError;
use crate::base::times::due_in_range;
use crate::group::items::{Answer, Item};
use crate::message::incoming::Incoming;
use crate::message::{Cancel, Message, Reschedule, check_name, checked, ms_of};

/// Control.
impl Deliverer {
    /// Cancels a message, and returns once the cancel is on disk.
    ///
    /// [`Answer::Cancelled`]: it will not be sent. [`Answer::Delivered`], [`Answer::Dead`]: too late. [`Answer::Delivering`]: it is being
    /// sent, or a send was tried. [`Answer::Unknown`]: it has not come; it is cancelled when it comes.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel_delivery::{Answer, Deliverer, Destination, Message, Verdict};
    /// # let folder = tempfile::tempdir()?;
    /// # let to = Destination::function(|_| Verdict::Delivered);
    /// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// deliverer.put(Message::after("tea", Duration::from_secs(60), "ready").with_key("kitchen"))?;
    /// assert_eq!(deliverer.cancel(Some("kitchen"), "tea")?, Answer::Cancelled);
    /// assert_eq!(deliverer.cancel(None, "tea")?, Answer::Unknown); // another message: it has no key
    /// # deliverer.close(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if no message can have this name. Otherwise what ended the run.
    pub fn cancel(&self, key: Option<&str>, id: &str) -> Result<Answer, DeliveryError> {
        check_name(key, id).map_err(usage)?;
        self.ask(Item::Cancel(Cancel { id: id.to_owned(), key: key.map(str::to_owned), keep_days: 0 }))
    }

    /// What has become of a message: one of the answers of [`cancel`](Deliverer::cancel), or [`Answer::Waiting`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel_delivery::{Answer, Deliverer, Destination, Message, Verdict};
    /// # let folder = tempfile::tempdir()?;
    /// # let to = Destination::function(|_| Verdict::Delivered);
    /// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// deliverer.put(Message::after("tea", Duration::from_secs(60), "ready"))?;
    /// assert_eq!(deliverer.state(None, "tea")?, Answer::Waiting);
    /// # deliverer.close(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if no message can have this name. Otherwise what ended the run.
    pub fn state(&self, key: Option<&str>, id: &str) -> Result<Answer, DeliveryError> {
        check_name(key, id).map_err(usage)?;
        self.ask(Item::Look { id: id.to_owned(), key: key.map(str::to_owned) })
    }

    /// Gives a message that waits another due time, rounded up to the millisecond: [`Answer::Rescheduled`], or why it is too late. Its
    /// attempts so far count on. Of messages of its key that are due in the same millisecond it is the last.
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// # use tickwheel_delivery::{Answer, Deliverer, Destination, Message, Verdict};
    /// # let folder = tempfile::tempdir()?;
    /// # let to = Destination::function(|_| Verdict::Delivered);
    /// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// deliverer.put(Message::after("tea", Duration::from_secs(60), "ready"))?;
    /// let later = SystemTime::now() + Duration::from_secs(120);
    /// assert_eq!(deliverer.reschedule(None, "tea", later)?, Answer::Rescheduled);
    /// # deliverer.close(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if no message can have this name or this due time. Otherwise what ended the run.
    pub fn reschedule(&self, key: Option<&str>, id: &str, due: SystemTime) -> Result<Answer, DeliveryError> {
        check_name(key, id).map_err(usage)?;
        let due_ms = due_in_range(ms_of(due), "due").map_err(usage)?;
        self.ask(Item::Reschedule(Reschedule {
            id: id.to_owned(),
            key: key.map(str::to_owned),
            due_ms,
            asked_ms: None,
        }))
    }

    /// Accepts a message in the place of the one of its name: [`Answer::Replaced`] if that one waited, [`Answer::Accepted`] if there is
    /// none, or its outcome is known; [`Answer::Delivering`] if it is being sent in this moment, and then nothing is accepted.
    ///
    /// `at_latest`: a message that is put off again and again is due so long after the first of them was accepted at the latest.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel_delivery::{Answer, Deliverer, Destination, Message, Verdict};
    /// # let folder = tempfile::tempdir()?;
    /// # let to = Destination::function(|_| Verdict::Delivered);
    /// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// let after_a_pause = |text| Message::after("search", Duration::from_secs(60), text);
    /// let at_latest = Some(Duration::from_secs(600));
    /// assert_eq!(deliverer.replace(after_a_pause("tick"), at_latest)?, Answer::Accepted);
    /// assert_eq!(deliverer.replace(after_a_pause("tickwheel"), at_latest)?, Answer::Replaced);
    /// # deliverer.close(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`put`](Deliverer::put).
    pub fn replace(&self, message: Message, at_latest: Option<Duration>) -> Result<Answer, DeliveryError> {
        let put = Incoming::of(checked(message, self.schema.max_payload).map_err(usage)?);
        let at_latest_ms = at_latest.map(|it| i64::try_from(it.as_millis()).unwrap_or(i64::MAX));
        self.ask(Item::Replace { put, at_latest_ms })
    }

    /// Tries a dead letter anew, with all attempts: [`Answer::Requeued`]; or else as [`state`](Deliverer::state), where
    /// [`Answer::Dead`] and [`Answer::Expired`] say that its record is not kept any more: of the last 100,000 it is. It may have arrived
    /// before, so it is marked `redelivered`; and it does not expire.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel_delivery::{Answer, Deliverer, Destination, Message, Verdict};
    /// # let folder = tempfile::tempdir()?;
    /// # let to = Destination::function(|_| Verdict::Delivered);
    /// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// deliverer.put(Message::after("tea", Duration::from_secs(60), "ready"))?;
    /// assert_eq!(deliverer.requeue(None, "tea")?, Answer::Waiting);
    /// # deliverer.close(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if no message can have this name. Otherwise what ended the run.
    pub fn requeue(&self, key: Option<&str>, id: &str) -> Result<Answer, DeliveryError> {
        check_name(key, id).map_err(usage)?;
        self.ask(Item::Requeue { id: id.to_owned(), key: key.map(str::to_owned) })
    }

    /// Sends nothing more, also after a restart, until [`resume`](Deliverer::resume). Messages are accepted, and wait; what is being
    /// sent in this moment gets its outcome.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel_delivery::{Answer, Deliverer, Destination, Message, Verdict};
    /// # let folder = tempfile::tempdir()?;
    /// # let to = Destination::function(|_| Verdict::Delivered);
    /// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// deliverer.pause()?;
    /// deliverer.put(Message::after("tea", Duration::ZERO, "ready"))?;
    /// assert_eq!(deliverer.state(None, "tea")?, Answer::Waiting);
    /// deliverer.resume()?;
    /// assert!(deliverer.wait_until_empty(Duration::from_secs(60))?);
    /// # deliverer.close(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What ended the run.
    pub fn pause(&self) -> Result<(), DeliveryError> {
        self.ask(Item::Pause { key: None, is_paused: true }).map(|_| ())
    }

    /// Sends what is due, and goes on.
    ///
    /// ```
    /// # use tickwheel_delivery::{Deliverer, Destination, Verdict};
    /// # let folder = tempfile::tempdir()?;
    /// # let to = Destination::function(|_| Verdict::Delivered);
    /// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// deliverer.resume()?;
    /// # deliverer.close(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What ended the run.
    pub fn resume(&self) -> Result<(), DeliveryError> {
        self.ask(Item::Pause { key: None, is_paused: false }).map(|_| ())
    }

    /// Sends nothing more of this key, also after a restart, until [`resume_key`](Deliverer::resume_key): [`Answer::Paused`]. Its
    /// messages wait in the store; what was tried before goes on marked `redelivered`. [`Answer::Refused`] with one order of all
    /// messages, and once 10,000 keys are paused.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel_delivery::{Answer, Deliverer, Destination, Message, Verdict};
    /// # let folder = tempfile::tempdir()?;
    /// # let to = Destination::function(|_| Verdict::Delivered);
    /// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// assert_eq!(deliverer.pause_key("kitchen")?, Answer::Paused);
    /// deliverer.put(Message::after("tea", Duration::ZERO, "ready").with_key("kitchen"))?;
    /// assert_eq!(deliverer.state(Some("kitchen"), "tea")?, Answer::Waiting);
    /// deliverer.resume_key("kitchen")?;
    /// assert!(deliverer.wait_until_empty(Duration::from_secs(60))?);
    /// # deliverer.close(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if no message can have this key. Otherwise what ended the run.
    pub fn pause_key(&self, key: &str) -> Result<Answer, DeliveryError> {
        check_name(Some(key), "any").map_err(usage)?;
        self.ask(Item::Pause { key: Some(key.to_owned()), is_paused: true })
    }

    /// Sends what is due of this key, and goes on.
    ///
    /// ```
    /// # use tickwheel_delivery::{Deliverer, Destination, Verdict};
    /// # let folder = tempfile::tempdir()?;
    /// # let to = Destination::function(|_| Verdict::Delivered);
    /// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// deliverer.resume_key("kitchen")?;
    /// # deliverer.close(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`pause_key`](Deliverer::pause_key).
    pub fn resume_key(&self, key: &str) -> Result<(), DeliveryError> {
        check_name(Some(key), "any").map_err(usage)?;
        self.ask(Item::Pause { key: Some(key.to_owned()), is_paused: false }).map(|_| ())
    }
}
