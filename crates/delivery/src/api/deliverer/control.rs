//! Changes messages that were submitted, and pauses the destination (D7, D16). Each call returns once its answer is on
//! disk.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::{Deliverer, usage};
use crate::base::error::DeliveryError;
use crate::base::times::{checked_pause_end, due_in_range};
use crate::group::items::{Answer, Failing, Item, TenantChange};
use crate::group::operations::TENANTS_ARE_ONE;
use crate::message::events::KeyEvent;
use crate::message::incoming::Incoming;
use crate::message::named::{NamedSettings, TenantSettings};
use crate::message::{Cancel, Message, Reschedule, check_name, checked, checked_destination, checked_tenant, ms_of};
use crate::run::settings::{check_destination, check_tenant};
use crate::sinks::TAKES_NO_NAMED;
#[cfg(feature = "http")]
use crate::sinks::Verdict;
use crate::store::PartKind;

/// Control.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tickwheel_delivery::{Answer, Deliverer, Destination, Message, NamedSettings, Part, TenantSettings, Verdict};
///
/// # let folder = tempfile::tempdir()?;
/// # let to = Destination::function(|_| Verdict::Delivered);
/// let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
/// let minute = Duration::from_secs(60);
/// deliverer.put(Message::after("tea", minute, "ready").with_key("kitchen"))?;
/// assert_eq!(deliverer.state(Some("kitchen"), "tea")?, Answer::Waiting);
/// assert_eq!(deliverer.reschedule(Some("kitchen"), "tea", SystemTime::now() + 2 * minute)?, Answer::Rescheduled);
/// assert_eq!(deliverer.cancel(Some("kitchen"), "tea")?, Answer::Cancelled);
/// assert_eq!(deliverer.cancel(None, "tea")?, Answer::Unknown); // another message: it has no key
///
/// let after_a_pause = |text| Message::after("search", minute, text);
/// let at_latest = Some(10 * minute);
/// assert_eq!(deliverer.replace(after_a_pause("tick"), at_latest)?, Answer::Accepted);
/// assert_eq!(deliverer.replace(after_a_pause("tickwheel"), at_latest)?, Answer::Replaced);
/// assert_eq!(deliverer.requeue(None, "search")?, Answer::Waiting); // it is no dead letter
/// assert_eq!(deliverer.again("search")?, Answer::Waiting); // its first attempt is still to come
/// assert_eq!(deliverer.again_key("kitchen")?, Answer::Unknown); // nothing of this key fails
///
/// let settings = TenantSettings { concurrency: Some(3), weight: Some(2), ..TenantSettings::default() };
/// assert_eq!(deliverer.set_tenant("acme", &settings)?, Answer::Accepted);
/// assert_eq!(deliverer.pause(Part::Tenant("acme"))?, Answer::Paused);
/// assert_eq!(deliverer.resume(Part::Tenant("acme"))?, Answer::Resumed);
/// assert_eq!(deliverer.tenants()?.len(), 1);
/// assert_eq!(deliverer.remove_tenant("acme")?, Answer::Removed);
///
/// deliverer.pause(Part::All)?;
/// assert_eq!(deliverer.pause(Part::Key("kitchen"))?, Answer::Paused);
/// deliverer.put(Message::after("cake", Duration::ZERO, "done").with_key("kitchen"))?;
/// deliverer.resume(Part::All)?;
/// assert_eq!(deliverer.state(Some("kitchen"), "cake")?, Answer::Waiting); // its key is still paused
/// let soon = SystemTime::now() + Duration::from_millis(50);
/// deliverer.pause_until(Part::Key("kitchen"), soon)?; // it ends by itself
/// deliverer.cancel(None, "search")?;
/// assert!(deliverer.wait_until_empty(minute)?);
/// # deliverer.close(None)?;
///
/// // Named destinations are webhooks.
/// let deliverer = Deliverer::open(folder.path().join("hooks.db"), Destination::named())?;
/// let settings = NamedSettings { url: "https://acme.example/hooks".into(), ..NamedSettings::default() };
/// assert_eq!(deliverer.set_destination("acme", &settings)?, Answer::Accepted);
/// assert_eq!(deliverer.put(Message::after("tea", minute, "ready").to("acme"))?, Answer::Accepted);
/// assert_eq!(deliverer.put(Message::after("tea", minute, "ready").to("nobody"))?, Answer::Refused);
/// assert_eq!(deliverer.destinations()?.len(), 1);
/// assert_eq!(deliverer.pause(Part::Destination("nobody"))?, Answer::Unknown);
/// assert_eq!(deliverer.remove_destination("acme", false)?, Answer::Refused); // it has a message
/// assert_eq!(deliverer.test_destination("nobody")?, None);
/// # deliverer.close(None)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Deliverer {
    /// Cancels a message, and returns once the cancel is on disk.
    ///
    /// [`Answer::Cancelled`]: the message will not be sent. [`Answer::Delivered`], [`Answer::Dead`]: too late.
    /// [`Answer::Delivering`]: it is being sent, or a send was tried. [`Answer::Unknown`]: the store does not know the
    /// message yet; it is cancelled when it comes.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if no message can have this name. Otherwise the error that ended the run.
    pub fn cancel(&self, key: Option<&str>, id: &str) -> Result<Answer, DeliveryError> {
        check_name(key, id).map_err(usage)?;
        self.ask(Item::Cancel(Cancel { id: id.to_owned(), key: key.map(str::to_owned), keep_days: 0 }))
    }

    /// Lets go the messages of the event's key that wait for its name, and returns once this is on disk: how many they are. Each
    /// is due from this moment. A message that is due already, or was let go, is not among them. An event that came before lets
    /// go nothing, and has its first count. `None`: an event of this name came before with other content.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel_delivery::{Deliverer, Destination, KeyEvent, Message, Verdict};
    /// # let folder = tempfile::tempdir()?;
    /// # let to = Destination::function(|_| Verdict::Delivered);
    /// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// let month = Duration::from_secs(30 * 86_400);
    /// deliverer.put(Message::after("remind", month, "").with_key("user 7").until_event(["upgraded", "left"]))?;
    /// assert_eq!(deliverer.event(KeyEvent::of("user 7", "click 1", "upgraded"))?, Some(1));
    /// assert_eq!(deliverer.event(KeyEvent::of("user 7", "click 1", "upgraded"))?, Some(1)); // the same event
    /// assert_eq!(deliverer.event(KeyEvent::of("user 7", "click 1", "left"))?, None);
    /// assert_eq!(deliverer.event(KeyEvent::of("user 7", "click 2", "left").remember(month))?, Some(0));
    /// assert!(deliverer.forget_event("user 7", "click 2")?);
    /// # deliverer.close(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if the event is not valid. Otherwise the error that ended the run.
    pub fn event(&self, event: KeyEvent) -> Result<Option<u32>, DeliveryError> {
        let event = event.checked(self.schema.max_payload).map_err(usage)?;
        let answers = self.answers(Item::Event { event, origin: None })?;
        Ok(answers.let_go.first().map(|(_, count)| *count))
    }

    /// Lets a remembered event let go no further message. Returns whether it was remembered.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if no event can have this name. Otherwise the error that ended the run.
    pub fn forget_event(&self, key: &str, id: &str) -> Result<bool, DeliveryError> {
        check_name(Some(key), id).map_err(usage)?;
        Ok(self.ask(Item::Forget { key: key.to_owned(), id: id.to_owned() })? == Answer::Cancelled)
    }

    /// Returns the state of a message: an answer of [`cancel`](Deliverer::cancel), or [`Answer::Waiting`].
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if no message can have this name. Otherwise the error that ended the run.
    pub fn state(&self, key: Option<&str>, id: &str) -> Result<Answer, DeliveryError> {
        check_name(key, id).map_err(usage)?;
        self.ask(Item::Look { id: id.to_owned(), key: key.map(str::to_owned) })
    }

    /// Sets a named destination, for the next send of each message that names it: [`Answer::Accepted`], or
    /// [`Answer::Replaced`] if there was one of this name. The store keeps it, with its secrets. Each has its own limits,
    /// and is down, slow or paused by itself.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`]: the name or a setting is not allowed, or this deliverer sends to no webhook. Otherwise the
    /// error that ended the run.
    pub fn set_destination(&self, name: &str, settings: &NamedSettings) -> Result<Answer, DeliveryError> {
        let settings = json_of(settings)?;
        check_destination(&settings)?;
        match self.ask(Item::SetDestination { name: checked_destination(name).map_err(usage)?, settings })? {
            Answer::Refused => Err(DeliveryError::Usage(TAKES_NO_NAMED.to_owned())),
            answer => Ok(answer),
        }
    }

    /// The named destinations, with their settings but without their secrets. A change without secrets keeps them.
    ///
    /// # Errors
    /// The deliverer is closed.
    pub fn destinations(&self) -> Result<BTreeMap<String, NamedSettings>, DeliveryError> {
        self.running.engine().destinations()
    }

    /// Removes a named destination: [`Answer::Removed`], or [`Answer::Unknown`]. [`Answer::Refused`]: it has messages. With
    /// `dead` these become dead letters, some at a time. What is being sent in this moment may still arrive.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if no destination can have this name. Otherwise the error that ended the run.
    pub fn remove_destination(&self, name: &str, dead: bool) -> Result<Answer, DeliveryError> {
        self.ask(Item::RemoveDestination { name: checked_destination(name).map_err(usage)?, dead })
    }

    /// Sends a test message to a named destination, without the store: its key and its id are `test`. Returns what came back,
    /// and how long it took; `None` if no destination has this name.
    ///
    /// # Errors
    /// The deliverer is closed, or the system gives no thread.
    #[cfg(feature = "http")]
    pub fn test_destination(&self, name: &str) -> Result<Option<(Verdict, Duration)>, DeliveryError> {
        self.running.engine().test_destination(name)
    }

    /// Sets what a tenant may do, from the next send on: [`Answer::Accepted`], or [`Answer::Replaced`] if it was set or paused
    /// before. It need not have a message. A limit that is set lower is kept as the messages that are out end. A weight counts
    /// from its next turn.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`]: the name or a setting is not allowed, or all messages have one order. Otherwise the error
    /// that ended the run.
    pub fn set_tenant(&self, name: &str, settings: &TenantSettings) -> Result<Answer, DeliveryError> {
        let settings = json_of(settings)?;
        check_tenant(&settings)?;
        match self.change_tenant(name, TenantChange::Set(settings))? {
            Answer::Refused => Err(DeliveryError::Usage(TENANTS_ARE_ONE.to_owned())),
            answer => Ok(answer),
        }
    }

    /// The tenants that were set or paused, with their settings.
    ///
    /// # Errors
    /// The deliverer is closed.
    pub fn tenants(&self) -> Result<BTreeMap<String, TenantSettings>, DeliveryError> {
        self.running.engine().tenants()
    }

    /// The tenant has the usual limits again, and is not paused: [`Answer::Removed`], or [`Answer::Unknown`]. Its messages
    /// stay.
    ///
    /// # Errors
    /// The same as for [`set_tenant`](Deliverer::set_tenant).
    pub fn remove_tenant(&self, name: &str) -> Result<Answer, DeliveryError> {
        self.change_tenant(name, TenantChange::Remove)
    }

    fn change_tenant(&self, name: &str, change: TenantChange) -> Result<Answer, DeliveryError> {
        self.ask(Item::ChangeTenant { name: checked_tenant(name).map_err(usage)?, change })
    }

    /// Gives a waiting message another due time, rounded up to the millisecond: [`Answer::Rescheduled`], or the reason
    /// why it is too late. The attempts so far still count. If other messages of the key are due in the same
    /// millisecond, this message is sent last.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if no message can have this name or this due time. Otherwise the error that ended the
    /// run.
    pub fn reschedule(&self, key: Option<&str>, id: &str, due: SystemTime) -> Result<Answer, DeliveryError> {
        check_name(key, id).map_err(usage)?;
        let due_ms = due_in_range(ms_of(due), "due").map_err(usage)?;
        self.ask(Item::Reschedule(Reschedule { id: id.to_owned(), key: key.map(str::to_owned), due_ms }))
    }

    /// Accepts a message, which takes the place of the waiting message with the same name. [`Answer::Replaced`]: a
    /// message waited. [`Answer::Accepted`]: there was none, or its outcome is known. [`Answer::Delivering`]: the other
    /// message is being sent in this moment, and nothing is accepted.
    ///
    /// `at_latest` limits the delay if a message is replaced again and again: the message is due at most this long
    /// after the first call of the series. A call without `at_latest` ends the series.
    ///
    /// # Errors
    /// The same as for [`put`](Deliverer::put).
    pub fn replace(&self, message: Message, at_latest: Option<Duration>) -> Result<Answer, DeliveryError> {
        let put = Incoming::of(checked(message, self.schema.max_payload).map_err(usage)?);
        let at_latest_ms = at_latest.map(|it| i64::try_from(it.as_millis()).unwrap_or(i64::MAX));
        self.ask(Item::Replace { put, at_latest_ms })
    }

    /// Tries a dead letter again, with all attempts: [`Answer::Requeued`]. Otherwise the answer is the
    /// [`state`](Deliverer::state) of the message. [`Answer::Dead`] and [`Answer::Expired`] mean that the record of the
    /// dead letter is gone: the store keeps the last 100,000 records. The message may have arrived before, so it is
    /// marked `redelivered`. It does not expire.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if no message can have this name. Otherwise the error that ended the run.
    pub fn requeue(&self, key: Option<&str>, id: &str) -> Result<Answer, DeliveryError> {
        check_name(key, id).map_err(usage)?;
        self.ask(Item::Requeue { id: id.to_owned(), key: key.map(str::to_owned) })
    }

    /// Tries a failing key at once: [`Answer::Tried`]. Its next message waits no more for its next attempt, and is sent as
    /// soon as there is a place. If that fails too, the key waits as after any other attempt. [`Answer::Unknown`]: no message
    /// of this key waits for its next attempt. [`Answer::Delivering`]: one is being sent. [`Answer::Paused`]: the key, or
    /// all sending, is paused. If all messages have one order, that order is tried, whatever the key.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if no message can have this key. Otherwise the error that ended the run.
    pub fn again_key(&self, key: &str) -> Result<Answer, DeliveryError> {
        check_name(Some(key), "any").map_err(usage)?;
        self.ask(Item::Again(Failing::Key(key.to_owned())))
    }

    /// The same for a failing message without a key. Other answers: [`Answer::Waiting`], if it waits, but not for its next
    /// attempt, and the outcomes, as for [`cancel`](Deliverer::cancel).
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if no message can have this id. Otherwise the error that ended the run.
    pub fn again(&self, id: &str) -> Result<Answer, DeliveryError> {
        check_name(None, id).map_err(usage)?;
        self.ask(Item::Again(Failing::Message(id.to_owned())))
    }

    /// Stops sending, also after a restart, until [`resume`](Deliverer::resume): [`Answer::Paused`]. Messages are still accepted, and
    /// wait. If a message is being sent in this moment, it still gets its outcome. [`Answer::Unknown`]: there is no such destination.
    /// [`Answer::Refused`], for a key or a tenant: all messages have one order, or 10,000 keys are paused already.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if the key, the destination or the tenant can't have this name. Otherwise the error that ended the run.
    pub fn pause(&self, part: Part<'_>) -> Result<Answer, DeliveryError> {
        self.set_pause(part, true, None)
    }

    /// The same until this time of the wall clock, rounded up to the millisecond: then it ends by itself. The last pause of a part
    /// counts, also if it is shorter, or has no end.
    ///
    /// # Errors
    /// The same as for [`pause`](Deliverer::pause), or the time is over, or after the year 9999.
    pub fn pause_until(&self, part: Part<'_>, until: SystemTime) -> Result<Answer, DeliveryError> {
        self.set_pause(
            part,
            true,
            Some(due_in_range(ms_of(until), "until").and_then(checked_pause_end).map_err(usage)?),
        )
    }

    /// Ends the pause: messages that are due are sent. [`Answer::Resumed`], also if it was not paused, or [`Answer::Unknown`].
    ///
    /// # Errors
    /// The same as for [`pause`](Deliverer::pause).
    pub fn resume(&self, part: Part<'_>) -> Result<Answer, DeliveryError> {
        self.set_pause(part, false, None)
    }

    fn set_pause(&self, part: Part<'_>, is_paused: bool, until_ms: Option<i64>) -> Result<Answer, DeliveryError> {
        let (part, name) = match part {
            Part::All => (PartKind::All, String::new()),
            Part::Key(key) => {
                check_name(Some(key), "any").map_err(usage)?;
                (PartKind::Key, key.to_owned())
            }
            Part::Destination(name) => (PartKind::Destination, checked_destination(name).map_err(usage)?),
            Part::Tenant(name) => (PartKind::Tenant, checked_tenant(name).map_err(usage)?),
        };
        self.ask(Item::Pause { part, name, is_paused, until_ms })
    }
}

/// What [`Deliverer::pause`] stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part<'a> {
    /// All messages.
    All,
    /// The messages of this key. They wait in the store. One that was tried before is marked `redelivered` when it is sent later.
    Key(&'a str),
    /// The messages that name this destination. Its settings stay.
    Destination(&'a str),
    /// The messages of this tenant.
    Tenant(&'a str),
}

fn json_of(settings: &impl Serialize) -> Result<String, DeliveryError> {
    serde_json::to_string(settings).map_err(|error| DeliveryError::Usage(format!("the body is not JSON: {error}")))
}
