//! The locks, threads and channel of this crate, or the model checker's in their place.
//!
//! Built with `--cfg tickwheel_model`, every one of them is shuttle's, which tries out interleavings (see
//! `docs/concurrency.md`). Nothing outside this folder may name `std::sync::Mutex`, `std::sync::mpsc` or `std::thread`.
//!
//! Why not `parking_lot`: it keeps all sleeping threads of the process in one table; a forked child inherits it, with
//! threads in it that it does not have, and timers that the child made crashed when the table grew (T12;
//! `test_rule7_fork.py`). Here every lock has its own.

#![forbid(unsafe_code)]
#![cfg_attr(not(tickwheel_model), expect(clippy::disallowed_types, reason = "this is where they are wrapped"))]

#[cfg(not(tickwheel_model))]
mod lock;
#[cfg(not(tickwheel_model))]
mod plain;
#[cfg(not(tickwheel_model))]
mod primitives;
#[cfg(not(tickwheel_model))]
mod queue;
#[cfg(not(tickwheel_model))]
mod imp {
    pub(crate) use super::lock::{Condvar, Mutex, MutexGuard};
    pub(crate) use super::plain::{PlainGuard, PlainMutex};
    pub(crate) use super::queue::{Receiver, Sender, unbounded};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
    pub(crate) use std::thread::{Builder, JoinHandle, ThreadId, current as current_thread, yield_now};
    pub(crate) use std::thread_local;
}

#[cfg(tickwheel_model)]
mod model;
#[cfg(tickwheel_model)]
mod imp {
    pub(crate) use super::model::{Condvar, Mutex, Mutex as PlainMutex};
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
pub(crate) use plain::PlainCondvar;
#[cfg(feature = "python")]
pub(crate) use queue::TryRecvError;
pub(crate) use thread::{show_in_system, spawn};

/// For how long a thread gives way to those that wait for a lock that it wants back: about as long as it takes to wake one.
/// In time and not in turns: where all processors are busy, one turn may cost a time slice of the system.
#[cfg(not(tickwheel_model))]
const GIVES_WAY_FOR: std::time::Duration = std::time::Duration::from_micros(100);
/// A model has no time.
const MOST_TURNS: usize = if cfg!(tickwheel_model) { 100 } else { 1000 };

impl<T> Mutex<T> {
    /// Unlocks in the middle of long work, and gives way to the threads that wait for the lock, within bounds.
    pub(crate) fn unlock_fair(&self, guard: MutexGuard<'_, T>) {
        drop(guard);
        if self.is_waited_for() {
            self.give_way();
        }
    }

    #[cold]
    fn give_way(&self) {
        #[cfg(not(tickwheel_model))]
        let started = std::time::Instant::now();
        for _ in 0..MOST_TURNS {
            yield_now();
            #[cfg(not(tickwheel_model))]
            if started.elapsed() >= GIVES_WAY_FOR {
                return;
            }
            if !self.is_waited_for() {
                return;
            }
        }
    }
}
