//! A timer for very many deadlines: a hierarchical timing wheel with exact instants and exact cancel.
//!
//! Adding and cancelling are O(1) whatever the delay. The timer does nothing while nothing is due, a task is never early, and
//! `cancel` says for certain whether the task will run. The design is that of Apache Kafka's request timer; `docs/internals/design.md`
//! says what differs, and why.
//!
//! ```
//! use std::time::Duration;
//! use tickwheel::{Config, SystemTimer};
//!
//! let timer = SystemTimer::new("demo", &Config::default())?;
//! let reminder = timer.after(Duration::from_secs(60), || println!("a minute has passed"))?;
//! let heart = timer.every(Duration::from_secs(1), || println!("beat"))?;
//! assert!(reminder.cancel());
//! # Ok::<(), tickwheel::Error>(())
//! ```
//!
//! | for | take |
//! |---|---|
//! | closures that run on a thread of the timer's | [`SystemTimer`]: `after`, `at`, `every`, `add_many` |
//! | values that come back when they are due, on the program's own threads | [`Timer`]: [`wait`](Timer::wait) or [`drive`](Timer::drive) |
//! | an async runtime | [`SystemTimer`], with callbacks that send to a channel of the runtime |
//! | one thread, or a lock of the program's own: the fastest | [`Wheel`] |
//! | many calls at once | [`Timer::add_many`], [`Timer::cancel_many`] |
//! | operations that wait for an event or their deadline | [`DelayedOperationPurgatory`] |
//! | tests without waiting | [`Timer`] on [`Clock::manual`] |
//! | messages that wait in a file, and are delivered once, in order, also after a crash | the crate `tickwheel-delivery` |
//!
//! A delay or a time-out is a [`Duration`](std::time::Duration). An instant is a reading of the timer's own [`Clock`], in
//! microseconds or milliseconds, and its name says so.
//!
//! The feature `parking_lot` takes that crate's lock in the place of the timer's own.

// The way of a task: `add` → wheel → bucket queue → front → executor → callback. The worker drives it while it is idle, the
// reaper otherwise.

#![forbid(unsafe_code)]
#![cfg_attr(any(tickwheel_model, tickwheel_loom), allow(dead_code, unused_imports, reason = "a model has no bindings"))]
#![cfg_attr(test, expect(non_snake_case, reason = "a test name ends with the rule it holds up, as in __t9"))]

mod clock;
mod config;
mod error;
mod events;
mod every;
mod executor;
mod front;
#[cfg(not(any(tickwheel_model, tickwheel_loom)))]
#[doc(hidden)]
pub mod internal;
mod lead;
mod lists;
mod occupancy;
mod panics;
mod purgatory;
mod queue;
mod reaper;
mod replay;
mod schedule;
mod single_threaded;
mod slack;
mod snapshot;
mod state;
mod stats;
mod sync;
mod system;
mod timer;
mod wake_signal;
mod wheel;
mod when;
mod worker;

#[cfg(all(test, tickwheel_model))]
mod model;

pub use clock::{Clock, LIMIT_MS, LIMIT_US};
pub use config::Config;
pub use error::{AddError, Error};
pub use events::{Event, EventKind, Recorded};
pub use every::{Every, Missed};
pub use executor::{Executor, Released};
pub use lead::Wait;
pub use occupancy::{LevelOccupancy, Occupancy};
pub use purgatory::{DelayedOperation, DelayedOperationPurgatory, Operation, PurgatoryStats};
pub use replay::{Replay, Replayed};
pub use schedule::{Expired, Precision, Progress};
pub use single_threaded::Wheel;
pub use snapshot::{ArmedBucket, BucketSnapshot, LevelSnapshot, Seen, Snapshot};
pub use state::Pending;
pub use stats::Stats;
pub use system::{Callback, PeriodicCallback, PeriodicTask, SystemTimer, Task};
pub use timer::{Claimed, Timer};
pub use wheel::{Handle, Ticket};
pub use when::When;

/// The Rust code of the README is tested as it is shown there.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
