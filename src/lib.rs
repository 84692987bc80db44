//! A timer for very many deadlines: a hierarchical timing wheel with exact instants and exact cancel.
//!
//! Adding and cancelling are O(1) whatever the delay, nothing is done while nothing is due, a task is never early, and
//! `cancel` says for certain whether the task will run. The design is that of Apache Kafka's request timer; what differs,
//! and why, is in `docs/design.md`.
//!
//! ```
//! use std::time::Duration;
//! use tickwheel::{Config, SystemTimer};
//!
//! let timer = SystemTimer::new("demo", &Config::default())?;
//! let reminder = timer.after(Duration::from_secs(60), || println!("a minute has passed"))?;
//! assert!(reminder.cancel());
//! # Ok::<(), tickwheel::Error>(())
//! ```
//!
//! [`SystemTimer`] runs closures on a thread of its own. [`Timer`] is the same without threads, for a program that has
//! its own: it says when to wake, and what to run. Both hold any number of tasks behind one lock.
//!
//! The feature `parking_lot` takes that crate's lock in the place of the timer's own. The feature `python` is for the Python
//! module alone.
//!
//! The way of a task: `add` → wheel → bucket queue → front → executor → callback, driven by the reaper.

#![cfg_attr(test, expect(non_snake_case, reason = "a test name ends with the rule it holds up, as in __t9"))]

#[cfg(all(feature = "parking_lot", feature = "python"))]
compile_error!(
    "the features `parking_lot` and `python` exclude each other: parking_lot's table of sleeping threads is not repaired \
     in a forked child; leave `parking_lot` out"
);

mod clock;
mod config;
mod error;
mod events;
mod executor;
mod front;
mod panics;
mod purgatory;
mod queue;
mod reaper;
mod replay;
mod schedule;
mod snapshot;
mod state;
mod stats;
mod sync;
mod system;
mod timer;
mod wheel;
mod worker;

#[cfg(feature = "python")]
mod python;

#[cfg(all(test, tickwheel_model))]
mod model;

pub use clock::{Clock, LIMIT_MS, LIMIT_US};
pub use config::Config;
pub use error::Error;
pub use events::{Event, EventKind, Recorded};
pub use executor::{Executor, Released};
pub use purgatory::{DelayedOperation, DelayedOperationPurgatory, Operation, PurgatoryStats};
pub use replay::{Replay, Replayed};
pub use schedule::{Claimed, Precision, Progress};
pub use snapshot::{ArmedBucket, BucketSnapshot, LevelSnapshot, Seen, Snapshot};
pub use state::{Pending, When};
pub use stats::Stats;
pub use system::{Callback, SystemTimer, Task};
pub use timer::Timer;
pub use wheel::Handle;
