//! A store that outlives its machine: what each transaction writes is in a chain of rows elsewhere before it is committed
//! here (rule D21).
//!
//! `docs/internals/replication.md` has the states, and what follows from each failure.

mod chain;
#[cfg(test)]
pub(crate) mod memory;
mod owner;

pub(crate) use chain::{Appended, Chain, Kind, Link, Row};
pub(crate) use owner::{Replica, catch_up};
