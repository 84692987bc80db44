//! The types of one host's operations, and the two services of the host that the lists of keys need.
//!
//! The protocol is written once, for Rust and for Python. Each of the two is a *host*: it has its own operations, timer
//! and way to take a lock. This file is the lowest floor of what the protocol asks of it; `operation_state` and `host`
//! have the rest.

use std::hash::{BuildHasher, Hash};

use crate::sync::{Mutex, MutexGuard};

/// The types of one host.
pub trait OperationTypes: Sized + 'static {
    /// What an operation waits for. The list of a key owns the key, so the key is dropped when no operation waits for it.
    type Key: Eq + Hash + Send + 'static;
    /// Hashes the keys.
    type BuildKeyHasher: BuildHasher + Default + Send + Sync;

    /// The number of locks over which the keys are spread; a power of two.
    const SHARDS: usize;

    /// A reference to an operation.
    type Op: Send + 'static;
    /// Takes an operation off the timer.
    type Deadline: Send + 'static;
    /// The rest of a deadline that was taken off the timer. It is dropped without a lock, as destructors are foreign
    /// code.
    type DisarmedDeadline;
    /// The waiters that must be notified of the end of a wait.
    type Waiters: Default;
    /// The environment of a purgatory: its timer and its settings.
    type Environment: Send + Sync + 'static;
}

/// How to take a lock, and how to copy a reference to an operation.
pub trait Locking<K: OperationTypes> {
    /// Locks this mutex in the way of the host: with the GIL held it may not wait.
    fn lock<'a, T: Send>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T>;

    /// Another reference to the same operation.
    fn clone_ref(&self, op: &K::Op) -> K::Op;
}
