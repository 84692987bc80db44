//! Delayed delivery: a message that is submitted now comes out at its due time, in order per key, once, whatever crashes.
//!
//! Messages wait in a store, which is one file; those that are due within ten seconds are in memory, on a timer. Here three wait
//! for one key. The second is cancelled, the others arrive when they are due:
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
//! - **Never early.** A message is sent when the wall clock has reached its due time, also where that clock is set. What is overdue,
//!   as after a pause of the process, is sent at once.
//! - **In order.** The messages of one key are sent in the order of their due times, and by acceptance where those are equal; each
//!   after the one before has arrived, was given up or was cancelled. Other keys, and messages without one, do not wait for it.
//! - **Once.** A message is known by its key and id, until seven days after its outcome. A second one of that name is
//!   [`Answer::Duplicate`], or [`Answer::Conflict`]; neither is delivered.
//! - **A crash** loses nothing that was accepted: an [`Answer`] comes when its message is on disk. What was sent shortly before the
//!   crash, and not yet noted on disk, is sent again, with [`Delivery::redelivered`]. So is what had no answer. A
//!   destination that keeps [`Delivery::digest`] beside what it received drops those.
//! - **A cancel has a definite answer**: what is [`Answer::Cancelled`] will not be sent, whatever crashes.
//! - **A destination that is down** costs no attempt: all messages wait, and it is probed with one after the other until it answers.
//!   A message that it refuses is tried five times, its key waiting; then it is a dead letter, and the [`Observer`] is told.
//! - **One process** at a time has a store. A second one gets an error, or [waits](OpenOptions::with_standby).
//!
//! # Units
//!
//! A delay or a time-out is a [`Duration`](std::time::Duration), a due time a [`SystemTime`](std::time::SystemTime). A number has its
//! unit in its name: `due_ms` is in milliseconds since 1970, `lateness_us` in microseconds.
//!
//! # What is bounded
//!
//! In memory are at most 400,000 messages, 96 MiB of them, and 128 messages of one key; the others are in the file. A payload has at
//! most [1 MiB](OpenOptions::with_max_payload). While 60,000 messages or 32 MiB are queued for the disk, a call that submits more
//! waits. Sending pauses while two groups of outcomes are not on disk.
//!
//! # Threads
//!
//! One thread writes to the store, in groups: all that is submitted, and all outcomes, within 20 to 50 ms share one commit. As many
//! threads as the destination wants send: one for a file and for webhooks, eight for a function. One tells the [`Observer`], which
//! therefore holds up nothing. A method that waits does so in the thread that calls it.
//!
//! Messages from a Python program, from HTTP, Kafka or files come in by the Python package, which uses the same store.

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

pub use api::deliverer::Deliverer;
pub use api::destination::Destination;
pub use api::open_options::OpenOptions;
pub use base::error::{BadRecord, DeliveryError, StoreError};
pub use base::summary::Summary;
pub use due::dispatcher::Event;
pub use group::items::{Answer, Receipt};
pub use message::Message;
pub use message::recurrence::Missed;
pub use run::threads::Observer;
pub use sinks::{Delivery, Reply, Sink, SyncFn, Verdict, Verdicts};
#[cfg(feature = "http")]
pub use sinks::{SharedWebhook, Webhook};
pub use store::Letter;
