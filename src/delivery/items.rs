//! What the writer takes, and its answers once they are on disk (rules D5, D7, D11).

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::DeliveryError;
use super::message::{Cancel, Incoming};
use super::parsed::Parsed;
use super::store::{Letter, Progress};
use crate::sync::{PlainCondvar, PlainMutex};

/// Something to be done in the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Item {
    /// A message to accept.
    Put(Incoming),
    /// A message that is not to be delivered.
    Cancel(Cancel),
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
    /// So many duplicates were dropped before they came here.
    Dropped(u64),
}

impl From<Parsed> for Item {
    /// A record that could not be read is a dead letter.
    fn from(parsed: Parsed) -> Self {
        match parsed {
            Parsed::Message(incoming) => Self::Put(incoming),
            Parsed::Cancel(cancel, _) => Self::Cancel(cancel),
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
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Put(incoming) => incoming.message.size_in_memory(),
            Self::Letter(letter) => 100 + letter.record.len(),
            _ => 100,
        }
    }
}

/// The answer to a message is one of the first four; to a cancel one of the last five; to a look one of the last five, or
/// [`Answer::Waiting`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Answer {
    /// The message is on disk, and will be delivered.
    Accepted,
    /// It was accepted before, with the same content.
    Duplicate,
    /// It was accepted before, with other content.
    OtherContent,
    /// It is cancelled.
    Cancelled,
    /// It is delivered.
    Delivered,
    /// It is being sent.
    Delivering,
    /// It was given up.
    Dead,
    /// It has not come.
    Unknown,
    /// It waits.
    Waiting,
}

/// The answers to what was submitted together, once all of it is on disk.
#[derive(Debug)]
pub struct Receipt(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    result: PlainMutex<Option<Result<Vec<Answer>, DeliveryError>>>,
    has_come: PlainCondvar,
}

impl Receipt {
    pub(super) fn pair() -> (Self, Completion) {
        let shared = Arc::new(Shared::default());
        let for_writer = shared.clone();
        let complete = move |result| {
            *for_writer.result.lock() = Some(result);
            for_writer.has_come.notify_all();
        };
        (Self(shared), Box::new(complete))
    }

    /// Waits for the answers, one for each message, cancel and look, in order; `None` if they do not come in time.
    ///
    /// # Errors
    /// What ended the engine before all of it was on disk.
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> Option<Result<Vec<Answer>, DeliveryError>> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut result = self.0.result.lock();
        while result.is_none() {
            result = match end {
                None => self.0.has_come.wait(result),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    self.0.has_come.wait_timeout(result, left)
                }
            };
        }
        result.clone()
    }
}

/// Called once with the answers, in the writer's thread: it must be quick.
pub type Completion = Box<dyn FnOnce(Result<Vec<Answer>, DeliveryError>) + Send>;

/// What was submitted together, and the answers so far.
pub(super) struct Ticket {
    pub(super) items: std::vec::IntoIter<Item>,
    pub(super) answers: Vec<Answer>,
    pub(super) complete: Completion,
}
