//! The locks, threads and queue of this crate, or those of a model checker.
//!
//! With `--cfg tickwheel_model` all of them are shuttle's, which goes through interleavings (see `docs/internals/concurrency-proofs.md`). No
//! code outside this folder may use `std::sync::Mutex`, `std::sync::mpsc` or `std::thread`.
//!
//! Why not always `parking_lot`: it keeps all sleeping threads of the process in one table. A forked child inherits the table
//! with threads that the child does not have, and timers of the child crashed when the table grew (T12;
//! `test_rule7_fork.py`). Here each lock has its own sleeping threads. Rust programs may use `parking_lot` by the feature of
//! that name.

#![cfg_attr(not(tickwheel_model), expect(clippy::disallowed_types, reason = "they are wrapped here"))]

#[cfg(not(any(tickwheel_model, feature = "parking_lot")))]
mod condvar;
#[cfg(not(any(tickwheel_model, feature = "parking_lot")))]
mod mutex;
#[cfg(all(feature = "parking_lot", not(tickwheel_model)))]
mod parking_lot_mutex;
#[cfg(not(tickwheel_model))]
mod plain_mutex;
#[cfg(not(any(tickwheel_model, feature = "parking_lot")))]
mod primitives;
#[cfg(not(tickwheel_model))]
mod queue;
#[cfg(not(tickwheel_model))]
mod imp {
    #[cfg(not(feature = "parking_lot"))]
    pub(crate) use super::condvar::Condvar;
    #[cfg(not(feature = "parking_lot"))]
    pub use super::mutex::{Mutex, MutexGuard};
    #[cfg(feature = "parking_lot")]
    pub(crate) use super::parking_lot_mutex::Condvar;
    #[cfg(feature = "parking_lot")]
    pub use super::parking_lot_mutex::{Mutex, MutexGuard};
    pub use super::plain_mutex::{PlainGuard, PlainMutex};
    pub use super::queue::{Receiver, Sender, unbounded};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
    pub(crate) use std::thread::{Builder, ThreadId, current as current_thread};
    pub use std::thread::{JoinHandle, yield_now};
    pub(crate) use std::thread_local;
}

#[cfg(tickwheel_model)]
mod shuttle_mutex;
#[cfg(tickwheel_model)]
mod imp {
    pub(crate) use super::shuttle_mutex::Condvar;
    pub use super::shuttle_mutex::{Mutex, Mutex as PlainMutex};
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
    pub use shuttle::sync::mpsc::{Receiver, Sender, channel as unbounded};
    pub use shuttle::sync::{MutexGuard, MutexGuard as PlainGuard};
    pub(crate) use shuttle::thread::{Builder, ThreadId, current as current_thread};
    pub use shuttle::thread::{JoinHandle, yield_now};
    pub(crate) use shuttle::thread_local;
}

#[cfg(all(test, tickwheel_loom))]
mod tests {
    mod loom_tests;
}
#[cfg(any(target_os = "linux", tickwheel_model))]
mod alarm;
mod thread;

#[cfg(any(target_os = "linux", tickwheel_model))]
pub(crate) use alarm::Alarm;
pub(crate) use imp::{
    AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Condvar, Ordering, ThreadId, current_thread, thread_local,
};
pub use imp::{JoinHandle, Mutex, MutexGuard, PlainGuard, PlainMutex, Receiver, Sender, unbounded, yield_now};
#[cfg(not(tickwheel_model))]
pub use plain_mutex::PlainCondvar;
pub use std::sync::mpsc::TryRecvError;
pub(crate) use thread::MinimalTimerSlack;
pub use thread::{set_system_thread_name, spawn};

#[cfg(any(tickwheel_model, not(feature = "parking_lot")))]
mod unlock_fair;
