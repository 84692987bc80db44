//! The purgatory: operations that wait for an event on a key, or for their deadline, whichever comes first.
//!
//! After Kafka's `DelayedOperationPurgatory`. `docs/internals/purgatory.md` describes the protocol: which locks there are, why
//! no event is lost, and why there is no deadlock. The files in order; a file imports only from files above it:
//!
//! - `operation_types`: the types of a host's operations.
//! - `key_list`: the operations that wait for one key. `watchers`: the lists of all keys.
//! - `check_requests`, `rounds`, `remaining_checks`: checks that are made later than they were requested.
//! - `purgatory_core`: what all of a purgatory's users share.
//! - `operation_state`: the state of each operation. `in_progress`: which operations this thread is trying.
//! - `timer_check`: an entry on the timer that makes checks. `host`: what the protocol needs from Rust or from Python.
//! - `postponed_checks`, `checking`, `timer_check_run`, `leaving`, `watching`: what happens to an operation.
//! - `rust/`: the public API for Rust programs. The one for Python is in the bindings.

mod check_requests;
mod checking;
mod host;
mod in_progress;
mod key_list;
mod leaving;
mod operation_state;
mod operation_types;
mod postponed_checks;
mod purgatory_core;
mod remaining_checks;
mod rounds;
mod rust;
mod timer_check;
mod timer_check_run;
mod watchers;
mod watching;

pub use rust::{DelayedOperation, DelayedOperationPurgatory, Operation};

pub use {
    check_requests::RequestedChecks,
    host::{ArmedDeadline, Host, MAX_YIELDS, TryResult},
    key_list::{ListId, ShortList},
    leaving::{cancel, expire, force_complete, is_idle, sync_deadline},
    operation_state::{Cause, Completer, OperationKind, OperationState},
    operation_types::{Locking, OperationTypes},
    purgatory_core::{Purgatory, PurgatoryStats},
    rounds::Rounds,
    timer_check::TimerCheck,
    watchers::shrink,
    watching::{WatchError, WatchResult},
};

#[cfg(all(test, tickwheel_model))]
mod tests {
    mod model;
}
