//! The locks, threads and channel of this crate, or the model checker's in their place.
//!
//! Built with `--cfg tickwheel_model`, every one of them is shuttle's, which tries out interleavings (see
//! `docs/concurrency.md`). Nothing outside this folder may name `std::sync::Mutex`, `std::sync::mpsc` or `std::thread`.
//!
//! Why not always `parking_lot`: it keeps all sleeping threads of the process in one table; a forked child inherits it, with
//! threads in it that it does not have, and timers that the child made crashed when the table grew (T12;
//! `test_rule7_fork.py`). Here every lock has its own. Programs of Rust alone may choose it, by the feature `parking_lot`.

#![forbid(unsafe_code)]
#![cfg_attr(not(tickwheel_model), expect(clippy::disallowed_types, reason = "this is where they are wrapped"))]

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
    pub(crate) use super::mutex::{Condvar, Mutex, MutexGuard};
    #[cfg(feature = "parking_lot")]
    pub(crate) use super::parking_lot_mutex::{Condvar, Mutex, MutexGuard};
    pub(crate) use super::plain_mutex::{PlainGuard, PlainMutex};
    pub(crate) use super::queue::{Receiver, Sender, unbounded};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
    pub(crate) use std::thread::{Builder, JoinHandle, ThreadId, current as current_thread, yield_now};
    pub(crate) use std::thread_local;
}

#[cfg(tickwheel_model)]
mod shuttle_mutex;
#[cfg(tickwheel_model)]
mod imp {
    pub(crate) use super::shuttle_mutex::{Condvar, Mutex, Mutex as PlainMutex};
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
    pub(crate) use shuttle::sync::mpsc::{Receiver, Sender, channel as unbounded};
    pub(crate) use shuttle::sync::{MutexGuard, MutexGuard as PlainGuard};
    pub(crate) use shuttle::thread::{Builder, JoinHandle, ThreadId, current as current_thread, yield_now};
    pub(crate) use shuttle::thread_local;
}

#[cfg(all(test, tickwheel_loom))]
mod loom_tests;
mod thread;

pub(crate) use imp::{
    AtomicBool, AtomicU8, AtomicU64, Condvar, JoinHandle, Mutex, MutexGuard, Ordering, PlainGuard, PlainMutex,
    Receiver, Sender, ThreadId, current_thread, thread_local, unbounded, yield_now,
};
#[cfg(feature = "python")]
pub(crate) use plain_mutex::PlainCondvar;
#[cfg(feature = "python")]
pub(crate) use queue::TryRecvError;
pub(crate) use thread::{show_in_system, spawn};

#[cfg(any(tickwheel_model, not(feature = "parking_lot")))]
mod unlock_fair;
