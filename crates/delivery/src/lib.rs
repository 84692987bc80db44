//! Delayed delivery: a submitted message arrives at its due time, in order per key, once, whatever crashes.
//!
//! Messages wait in a store, which is one file. Messages that are due within ten seconds are also in memory, on a
//! timer. In this example three messages of one key wait. The second is cancelled; the others arrive when they are due:
//!
//! ```
//! use std::sync::mpsc::channel;
//! use std::time::Duration;
//! use tickwheel_delivery::{Answer, Deliverer, Destination, Message, Verdict};
//!
//! # let folder = tempfile::tempdir()?;
//! # let store = folder.path().join("reminders.db");
//! let (send, arrived) = channel();
//! let to = Destination::function(move |delivery| {
//!     let text = String::from_utf8_lossy(delivery.payload()).into_owned();
//!     send.send((text, delivery.lateness_us)).expect("the program waits for it");
//!     Verdict::Delivered
//! });
//! let deliverer = Deliverer::open(&store, to)?; // makes the file
//!
//! let remind = |id, after_ms, text| Message::after(id, Duration::from_millis(after_ms), text).with_key("kitchen");
//! let receipt = deliverer.submit([remind("cake", 90, "done"), remind("tea", 30, "ready"), remind("eggs", 60, "hard")])?;
//! assert_eq!(receipt.answers()?, [const { Ok(Answer::Accepted) }; 3]); // they are on disk
//! assert_eq!(deliverer.cancel(Some("kitchen"), "eggs")?, Answer::Cancelled);
//!
//! for expected in ["ready", "done"] {
//!     let (text, lateness_us) = arrived.recv()?;
//!     assert!(text == expected && lateness_us >= 0);
//! }
//! let summary = deliverer.close(None)?;
//! assert_eq!((summary.accepted, summary.delivered, summary.cancelled), (3, 2, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is promised
//!
//! - **Never early.** A message is sent when the wall clock has reached its due time, even if that clock is changed.
//!   Overdue messages are sent at once, for example after a pause of the process.
//! - **In order.** The messages of one key are sent in the order of their due times. If these are equal, the message
//!   that was accepted first is sent first. A message is sent after the message before it has arrived, was given up or
//!   was cancelled. Messages of other keys, and messages without a key, do not wait.
//! - **Once.** A message is known by its key and id, until seven days after its outcome. A second message with the same
//!   name is [`Answer::Duplicate`] or [`Answer::Conflict`], and is not delivered.
//! - **A crash** loses no accepted message: an [`Answer`] comes when its message is on disk. If a message was sent
//!   shortly before the crash and its outcome is not on disk, it is sent again, with [`Delivery::redelivered`]. The
//!   same happens if a send had no answer. A destination can drop such repeats: it keeps [`Delivery::digest`] beside
//!   the messages that it received.
//! - **A cancel has a definite answer**: after [`Answer::Cancelled`], the message will not be sent, whatever crashes.
//! - **A key whose message was not accepted waits**, and other keys go on. If the destination refuses a message, it is
//!   tried eight times. Then it is a dead letter, and the [`Observer`] gets it. A message without an answer is tried for a
//!   day. A destination that is down costs no attempt.
//! - **One process** at a time has a store. A second one gets an error, or [waits](Settings::is_standby).
//! # Units
//!
//! A delay or a time-out is a [`Duration`](std::time::Duration), and a due time is a
//! [`SystemTime`](std::time::SystemTime). The name of a number has its unit: `due_ms` is in milliseconds since 1970,
//! `lateness_us` is in microseconds.
//!
//! # What is bounded
//!
//! Memory holds at most 400,000 messages, 64 MiB of messages, and 128 messages of one key; the others are in the file.
//! A payload has at most [1 MiB](Settings::max_payload). While 60,000 messages or 32 MiB are queued for the
//! disk, a call that submits more waits. Sending pauses while two groups of outcomes are not on disk.
//!
//! # Threads
//!
//! One thread writes to the store, in groups: all messages and outcomes that come within 20 to 50 ms share one commit.
//! The destination sets the number of threads that send: one for a file and for webhooks, eight for a function. Another
//! thread calls the [`Observer`], so the observer delays nothing. A method waits in the thread of its caller.
//!
//! The Python package uses the same store. It takes messages from Python programs, HTTP, Kafka and files.

// read -> accept -> commit -> window -> wheel -> sink -> commit

#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "a test name ends with the rule it holds up, as in __d9"))]

mod api;
mod base;
mod due;
mod formats;
mod group;
#[doc(hidden)]
pub mod internal;
mod message;
mod run;
#[cfg(test)]
mod scenarios;
mod sinks;
mod store;

pub use api::deliverer::{Deliverer, Part};
pub use api::destination::Destination;
pub use base::error::{BadRecord, DeliveryError, StoreError};
pub use base::summary::Summary;
pub use due::dispatcher::Event;
pub use due::pace::Rate;
pub use due::retry::Retry;
pub use group::items::{Answer, Receipt};
pub use message::Message;
pub use message::events::KeyEvent;
pub use message::named::{NamedBody, NamedSettings, TenantSettings};
pub use message::recurrence::Missed;
pub use run::settings::{Observer, Settings};
pub use sinks::inside::Allowed;
pub use sinks::{Delivery, Proxy, Reply, ReplySink, Sink, SyncFn, Verdict, Verdicts};
#[cfg(feature = "http")]
pub use sinks::{SharedWebhook, Webhook};
pub use store::Letter;
pub use store::replica::{Replicate, Replication, Role};
