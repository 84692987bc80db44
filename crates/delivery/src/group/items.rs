//! The items that the writer takes, and their answers once they are on disk (rules D5, D7, D11).

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::error::{BadRecord, DeliveryError};
use crate::base::sync::{Condvar, Mutex};
use crate::message::events::Event;
use crate::message::incoming::{Incoming, Origin};
use crate::message::parsed::Parsed;
use crate::message::{Cancel, Reschedule, name_size};
use crate::store::{ActionKind, Filter, Letter, PartKind, Progress};

/// Something to be done in the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Item {
    /// A message to accept.
    Put(Incoming),
    /// A message that takes the place of a waiting message with the same name.
    Replace {
        /// The message.
        put: Incoming,
        /// How long after the first call of a series the message is due at the latest.
        at_latest_ms: Option<i64>,
    },
    /// A dead letter to try again.
    Requeue {
        /// Its id.
        id: String,
        /// Its key.
        key: Option<String>,
    },
    /// A message to cancel.
    Cancel(Cancel),
    /// A message that gets another due time.
    Reschedule(Reschedule),
    /// An event, which lets go the messages of its key that wait for it. `origin`: where it was read.
    Event {
        /// The event.
        event: Event,
        /// Where it was read, if it was read from an input.
        origin: Option<Origin>,
    },
    /// An event that is remembered no more.
    Forget {
        /// Its key.
        key: String,
        /// Its id.
        id: String,
    },
    /// An action on many messages: cancel them, or try them again.
    Act {
        /// The name of this action.
        id: String,
        /// Cancel or requeue.
        kind: ActionKind,
        /// The messages to change.
        filter: Filter,
    },
    /// Pauses sending, or ends the pause. Settings stay.
    Pause {
        /// Of what.
        part: PartKind,
        /// Its name; empty for all messages.
        name: String,
        /// `true`: sending pauses; `false`: sending goes on.
        is_paused: bool,
        /// When the pause ends by itself, by the wall clock; `None`: never.
        until_ms: Option<i64>,
    },
    /// Sets a named destination.
    SetDestination {
        /// Its name.
        name: String,
        /// The settings as JSON, checked.
        settings: String,
    },
    /// Removes a named destination.
    RemoveDestination {
        /// Its name.
        name: String,
        /// Its messages become dead letters. Otherwise it is refused if there are some.
        dead: bool,
    },
    /// Changes what a tenant may do.
    ChangeTenant {
        /// Its name.
        name: String,
        /// What is to change.
        change: TenantChange,
    },
    /// Tries a failing key, or a failing message without a key, at once.
    Again(Failing),
    /// A question about the state of a message.
    Look {
        /// Its id.
        id: String,
        /// Its key.
        key: Option<String>,
    },
    /// A record that could not be read.
    Letter(Letter),
    /// How far an input was read.
    Progress(Progress),
}

/// A key, or a message without a key, that may wait for its next attempt.
#[derive(Clone, Debug)]
pub enum Failing {
    /// The key.
    Key(String),
    /// The id of the message.
    Message(String),
}

/// A change of what a tenant may do (D24).
#[derive(Clone, Debug)]
pub enum TenantChange {
    /// The settings as JSON, checked.
    Set(String),
    /// It has the usual settings again, and is not paused.
    Remove,
}

impl From<Parsed> for Item {
    /// A record that could not be read is a dead letter.
    fn from(parsed: Parsed) -> Self {
        match parsed {
            Parsed::Message(incoming) => Self::Put(incoming),
            Parsed::Cancel(cancel, _) => Self::Cancel(cancel),
            Parsed::Reschedule(reschedule, _) => Self::Reschedule(reschedule),
            Parsed::Event(event, origin) => Self::Event { event, origin: Some(origin) },
            Parsed::Bad(bad, origin) => Self::Letter(Letter {
                source: origin.source.to_string(),
                line: origin.line as i64,
                reason: bad.reason,
                allowed: bad.allowed,
                record: origin.record().to_vec(),
            }),
        }
    }
}

impl Item {
    /// Bytes in memory, near enough for the bounds of D8.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Put(incoming) | Self::Replace { put: incoming, .. } => incoming.message.size_in_memory(),
            Self::Letter(it) => 100 + it.source.len() + it.reason.len() + it.allowed.len() + it.record.len(),
            Self::Cancel(Cancel { id, key, .. })
            | Self::Reschedule(Reschedule { id, key, .. })
            | Self::Requeue { id, key }
            | Self::Look { id, key } => 100 + name_size(key.as_deref(), id),
            Self::Forget { key, id } => 100 + name_size(Some(key), id),
            Self::Again(Failing::Key(name) | Failing::Message(name)) => 100 + name_size(None, name),
            Self::SetDestination { name, settings }
            | Self::ChangeTenant { name, change: TenantChange::Set(settings) } => 100 + name.len() + settings.len(),
            Self::RemoveDestination { name, .. } | Self::Pause { name, .. } | Self::ChangeTenant { name, .. } => {
                100 + name.len()
            }
            Self::Act { id, filter, .. } => 100 + id.len() + filter.size(),
            Self::Event { event, .. } => 100 + event.size(),
            Self::Progress(it) => 100 + it.source.len(),
        }
    }
}

/// The answer to a submitted item. Each method of [`Deliverer`](crate::Deliverer) says which answers it
/// gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Answer {
    /// The message is on disk, and will be delivered.
    Accepted,
    /// It was accepted before, with the same content.
    Duplicate,
    /// It was accepted before, with other content.
    Conflict,
    /// It is cancelled.
    Cancelled,
    /// It is delivered.
    Delivered,
    /// It is being sent.
    Delivering,
    /// It was given up.
    Dead,
    /// It was not sent in time.
    Expired,
    /// No message of this name has come.
    Unknown,
    /// It waits.
    Waiting,
    /// It recurs: its next occurrence waits, or is being sent.
    Recurring,
    /// It waits, and has another due time now.
    Rescheduled,
    /// It takes the place of a message that waited.
    Replaced,
    /// It was a dead letter, and is tried again.
    Requeued,
    /// Sending is paused.
    Paused,
    /// Sending goes on.
    Resumed,
    /// It waited for its next attempt, and is tried now.
    Tried,
    /// The key can't be paused: too many keys are paused, or all messages have one order. Or the destination is not set,
    /// or can't be removed because it has messages.
    Refused,
    /// The destination is removed.
    Removed,
    /// Too many messages of its key wait for an event.
    Full,
    /// The event is on disk. The messages that waited for it are due now.
    LetGo,
}

/// The answers to items that were submitted together. They come once all items are on disk.
///
/// ```
/// # use std::time::Duration;
/// # use tickwheel_delivery::{Answer, Deliverer, Destination, Message, Verdict};
/// # let folder = tempfile::tempdir()?;
/// # let to = Destination::function(|_| Verdict::Delivered);
/// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
/// let hour = Duration::from_secs(3_600);
/// let receipt = deliverer.submit([Message::after("tea", hour, "ready"), Message::after("cake", hour, "done")])?;
/// // More can be submitted meanwhile: all of it shares a commit.
/// assert_eq!(receipt.answers()?, [Ok(Answer::Accepted), Ok(Answer::Accepted)]);
/// # deliverer.close(None)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "what was submitted is on disk once its answers have come"]
pub struct Receipt {
    shared: Arc<Shared>,
    /// The refused items, each with its place among all items.
    refused: Vec<(usize, BadRecord)>,
}

#[derive(Debug, Default)]
struct Shared {
    result: Mutex<Option<Result<Answers, DeliveryError>>>,
    has_come: Condvar,
}

impl Receipt {
    #[doc(hidden)]
    pub fn pair() -> (Self, Completion) {
        let shared = Arc::new(Shared::default());
        let for_writer = shared.clone();
        let complete = move |result| {
            *for_writer.result.lock() = Some(result);
            for_writer.has_come.notify_all();
        };
        (Self { shared, refused: Vec::new() }, Box::new(complete))
    }

    pub(crate) fn with_refused(self, refused: Vec<(usize, BadRecord)>) -> Self {
        Self { refused, ..self }
    }

    /// Waits until all items are on disk. Returns an answer or an error for each item, in order. A refused item does
    /// not affect the others.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel_delivery::{Answer, Deliverer, Destination, Message, Verdict};
    /// # let folder = tempfile::tempdir()?;
    /// # let to = Destination::function(|_| Verdict::Delivered);
    /// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
    /// let hour = Duration::from_secs(3_600);
    /// let receipt = deliverer.submit([Message::after("", hour, "ready"), Message::after("cake", hour, "done")])?;
    /// let answers = receipt.answers()?;
    /// assert_eq!(answers[0].as_ref().unwrap_err().reason, "id is empty");
    /// assert_eq!(answers[1], Ok(Answer::Accepted));
    /// # deliverer.close(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The error that ended the run before all items were on disk.
    pub fn answers(self) -> Result<Vec<Result<Answer, BadRecord>>, DeliveryError> {
        let mut answers = self.wait(None).expect("it waits without a time-out")?.given.into_iter();
        let mut refused = self.refused.into_iter().peekable();
        let mut all = Vec::with_capacity(answers.len() + refused.len());
        loop {
            if let Some((_, bad)) = refused.next_if(|(place, _)| *place == all.len()) {
                all.push(Err(bad));
            } else if let Some(answer) = answers.next() {
                all.push(Ok(answer));
            } else {
                return Ok(all);
            }
        }
    }

    /// Waits for the answers. `None` if they do not come in time.
    ///
    /// # Errors
    /// The error that ended the engine before all items were on disk.
    #[doc(hidden)]
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> Option<Result<Answers, DeliveryError>> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let Shared { result, has_come } = &*self.shared;
        has_come.wait_while(result.lock(), end, |result| result.is_none()).clone()
    }
}

/// The answers to the items of a ticket.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// In order: one for each item, except letters and progress.
    pub given: Vec<Answer>,
    /// The due times of replacements: the place of the answer, and milliseconds since 1970.
    pub due_ms: Vec<(usize, i64)>,
    /// How many messages each event has let go: the place of the answer, and the count.
    pub let_go: Vec<(usize, u32)>,
}

/// A function that gets the answers. The writer's thread calls it once, so it must be quick.
pub type Completion = Box<dyn FnOnce(Result<Answers, DeliveryError>) + Send>;

/// Items that were submitted together, and their answers so far.
pub struct Ticket {
    pub(crate) items: std::vec::IntoIter<Item>,
    pub(crate) answers: Answers,
    pub(crate) complete: Completion,
    /// It is refused if one before it was, because the store could not be written: until a ticket comes that does not follow.
    pub follows: bool,
}

impl Ticket {
    /// A ticket for these items; `complete` is called with their answers.
    #[must_use]
    pub fn new(items: Vec<Item>, complete: Completion) -> Self {
        Self { items: items.into_iter(), answers: Answers::default(), complete, follows: false }
    }
}
