//! How a program submits messages: as values, as lines of NDJSON, or as Arrow rows.

use bytes::Bytes;

use super::{Deliverer, usage};
use crate::base::clock::{SystemWallTime, WallTime as _};
use crate::base::error::{BadRecord, DeliveryError};
use crate::formats::arrow_rows::ArrowRows;
use crate::formats::arrow_stream::batches;
use crate::formats::lines::Block;
use crate::formats::ndjson::Ndjson;
use crate::group::items::{Answer, Item, Receipt};
use crate::message::incoming::Incoming;
use crate::message::parsed::Parsed;
use crate::message::{Message, checked};

/// Submitting.
///
/// ```
/// # use std::time::Duration;
/// # use tickwheel_delivery::{Answer, Deliverer, Destination, Message, Verdict};
/// # let folder = tempfile::tempdir()?;
/// # let to = Destination::function(|_| Verdict::Delivered);
/// # let deliverer = Deliverer::open(folder.path().join("reminders.db"), to)?;
/// let hour = Duration::from_secs(3_600);
/// assert_eq!(deliverer.put(Message::after("tea", hour, "ready"))?, Answer::Accepted);
/// assert_eq!(deliverer.put(Message::after("tea", hour, "ready"))?, Answer::Duplicate);
/// assert_eq!(deliverer.put(Message::after("tea", hour, "cold"))?, Answer::Conflict);
///
/// let receipt = deliverer.submit((0..1_000).map(|n| Message::after(&format!("{n}"), hour, "").with_key("bulk")))?;
/// assert!(receipt.answers()?.iter().all(|answer| *answer == Ok(Answer::Accepted)));
///
/// let lines = br#"
///     {"id": "cake", "delay_ms": 60000, "payload": "ready"}
///     {"id": "eggs"}
///     {"id": "cake", "op": "cancel"}
/// "#;
/// let answers = deliverer.submit_ndjson(lines)?.answers()?;
/// assert_eq!((&answers[0], &answers[2]), (&Ok(Answer::Accepted), &Ok(Answer::Cancelled)));
/// assert_eq!(answers[1].as_ref().unwrap_err().reason, "due is missing");
/// assert!(deliverer.submit_arrow(b"no stream").is_err());
/// # deliverer.close(None)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Deliverer {
    /// Accepts a message, and returns once it is on disk: [`Answer::Accepted`], [`Answer::Duplicate`],
    /// [`Answer::Conflict`], or [`Answer::Cancelled`] if a cancel came before it. Each call costs one commit; all
    /// messages of one [`submit`](Deliverer::submit) share a commit.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if the message is not valid. For example, its name is empty or longer than 1 MiB, its
    /// due time is before 1970 or after 9999, its payload is too large, or its payload should be JSON and is not.
    /// Otherwise the error that ended the run.
    pub fn put(&self, message: Message) -> Result<Answer, DeliveryError> {
        let message = checked(message, self.schema.max_payload).map_err(usage)?;
        self.ask(Item::Put(Incoming::of(message)))
    }

    /// Accepts messages, and does not wait for the disk. Each message has its own answer: see [`Receipt::answers`].
    ///
    /// If some thousand other messages are queued, the call waits until there is room.
    ///
    /// # Errors
    /// The error that ended the run.
    pub fn submit(&self, messages: impl IntoIterator<Item = Message>) -> Result<Receipt, DeliveryError> {
        let checked = |message| checked(message, self.schema.max_payload).map(|it| Item::Put(Incoming::of(it)));
        self.submit_each(messages.into_iter().map(checked))
    }

    /// Accepts the messages and cancels in lines of NDJSON, and does not wait for the disk. This is the fastest way to
    /// submit. Each line has its own answer, or an error; blank lines have no answer. A `delay_ms` counts from this
    /// call.
    ///
    /// A line is an object with these members: `id`; `key` if there is one; `due` (RFC 3339 or epoch milliseconds) or
    /// `delay_ms`; `payload` or `payload_base64`. If there is no payload, all other members are the payload. A line may
    /// also have `expires` and `traceparent`. A cancel has `"op": "cancel"`, `id` and `key`. A reschedule has
    /// `"op": "reschedule"`, `id`, `key`, and `due` or `delay_ms`. An event has `"op": "event"`, `id`, `key`, `event`, and
    /// perhaps a payload and `remember_ms`; a message that waits for one has `until_event`, a list of names.
    ///
    /// # Errors
    /// The error that ended the run.
    pub fn submit_ndjson(&self, lines: &[u8]) -> Result<Receipt, DeliveryError> {
        let reader = Ndjson {
            source: "submit".into(),
            schema: &self.schema,
            now_ns: Some(now_ns()),
            after: 0,
            keeps_origin: false,
        };
        let block = Block::whole(Bytes::copy_from_slice(lines));
        self.submit_each(reader.read(&block).map(item_of))
    }

    /// Does the same as [`submit_ndjson`](Deliverer::submit_ndjson) for the rows of an Arrow IPC stream. The columns
    /// have the names of the NDJSON members. A `due` may also be a timestamp with a zone.
    ///
    /// # Errors
    /// [`DeliveryError::Usage`] if the bytes are not such a stream. Otherwise the error that ended the run.
    pub fn submit_arrow(&self, stream: &[u8]) -> Result<Receipt, DeliveryError> {
        let batches = batches(stream).map_err(usage)?;
        let reader = ArrowRows {
            source: "submit".into(),
            schema: &self.schema,
            now_ns: Some(now_ns()),
            keeps_origin: false,
            as_bytes: &[],
            fault: None,
        };
        self.submit_each(batches.iter().flat_map(|batch| reader.read(batch, 0)).map(item_of))
    }

    fn submit_each(&self, each: impl Iterator<Item = Result<Item, BadRecord>>) -> Result<Receipt, DeliveryError> {
        let (mut items, mut refused) = (Vec::new(), Vec::new());
        for (place, item) in each.enumerate() {
            match item {
                Ok(item) => items.push(item),
                Err(bad) => refused.push((place, bad)),
            }
        }
        Ok(self.running.engine().submit(items)?.with_refused(refused))
    }
}

fn item_of(parsed: Parsed) -> Result<Item, BadRecord> {
    match parsed {
        Parsed::Bad(bad, _) => Err(bad),
        Parsed::Event(event, _) => Ok(Item::Event { event, origin: None }), // the caller has the answer
        other => Ok(other.into()),
    }
}

fn now_ns() -> i64 {
    SystemWallTime.now_us().saturating_mul(1_000)
}
