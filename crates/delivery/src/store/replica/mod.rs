//! A store that outlives its machine: what each transaction writes is in a chain of rows elsewhere before it is committed
//! here (rule D21).
//!
//! `docs/internals/replication.md` has the states, and what follows from each failure.

mod base;
mod chain;
mod following;
mod lease;
mod owner;
mod place;
#[cfg(feature = "postgresql")]
mod postgresql;
#[cfg(test)]
pub(crate) mod tests;
mod tools;

pub(crate) use base::Bases;
pub(crate) use chain::{Appended, Chain, Kind, Link, Row};
pub(crate) use following::{is_replicated, last_owner};
pub(crate) use lease::{BEAT_EVERY_MS, Lease};
pub use lease::{Replicate, Replication, Role};
pub(crate) use owner::Replica;

use super::sql::Broken;

/// The chain is not as this file knows it, or can't be read.
fn unusable(reason: String) -> Broken {
    Broken::Chain(reason, "see docs/delivery/a-machine-may-die.md; nothing was accepted or sent since")
}
