//! How a program makes recurring messages (rule D19).

use std::time::{Duration, SystemTime};

use super::{Body, Message, ms_of, now_ms};
use crate::message::recurrence::{Missed, NEVER_MS, Recurrence, Rule};

/// Messages that recur.
///
/// ```
/// # use std::time::{Duration, UNIX_EPOCH};
/// # use tickwheel_delivery::{Message, Missed};
/// let report = Message::cron("report", "30 9 * * MON-FRI", "Europe/Berlin", "write it");
/// let first = UNIX_EPOCH + Duration::from_secs(1_900_000_000);
/// let beat = Message::every("beat", Duration::from_secs(60), "tick").starting_at(first).when_missed(Missed::Last);
/// assert!(report.recurs() && beat.recurs());
/// ```
impl Message {
    /// A message that recurs every `interval`. The first occurrence is due one interval after this call. Each
    /// occurrence is a message of its own with the id `ID@DUE`; once the wall clock was stepped N times, `ID@DUE#N`.
    /// The engine makes it when the occurrence before has its outcome.
    ///
    /// If the same name is submitted again with other content, the new message takes the place of the old one. A
    /// cancel ends the message.
    #[must_use]
    pub fn every(id: &str, interval: Duration, payload: impl AsRef<[u8]>) -> Self {
        let every = i64::try_from(interval.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
        let from_ms = now_ms().saturating_add(every);
        Self::recurring(id, Rule::Every { every }, from_ms, payload.as_ref())
    }

    /// A message that recurs by a cron pattern, in a time zone of the IANA database. A pattern has five fields, or
    /// six with the seconds first. The engine checks it when the message is submitted. All else is as for
    /// [`Message::every`].
    #[must_use]
    pub fn cron(id: &str, pattern: &str, tz: &str, payload: impl AsRef<[u8]>) -> Self {
        Self::recurring(id, Rule::Cron { cron: pattern.into(), tz: tz.into() }, now_ms(), payload.as_ref())
    }

    /// Sets the start: the first occurrence is due at `first`, or at the pattern's first time from then on. The first
    /// occurrence is made however late it is. Does nothing for a message that comes once.
    #[must_use]
    pub fn starting_at(self, first: SystemTime) -> Self {
        let from_ms = ms_of(first);
        self.with_recurrence(|it| Recurrence { from_ms, given_ms: Some(from_ms), ..it })
    }

    /// Sets what happens to missed occurrences. An occurrence is missed if the one before has no outcome in time, or
    /// if nothing runs. Does nothing for a message that comes once.
    #[must_use]
    pub fn when_missed(self, missed: Missed) -> Self {
        self.with_recurrence(|it| Recurrence { missed, ..it })
    }

    /// Whether the message recurs.
    #[must_use]
    pub fn recurs(&self) -> bool {
        self.body.recurrence().is_some()
    }

    fn recurring(id: &str, rule: Rule, from_ms: i64, payload: &[u8]) -> Self {
        let recurrence = Recurrence { rule, missed: Missed::default(), from_ms, given_ms: None, sent_ms: None };
        Self { body: Body::new(None, id, payload, false).recurring(recurrence), due_ms: NEVER_MS, delay_ms: None }
    }

    fn with_recurrence(self, change: impl FnOnce(Recurrence) -> Recurrence) -> Self {
        match self.body.recurrence().cloned() {
            None => self,
            Some(recurrence) => Self { body: self.body.recurring(change(recurrence)), ..self },
        }
    }
}
