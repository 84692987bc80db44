//! The purgatory as Rust programs use it, on a [`crate::SystemTimer`].

mod host;
mod purgatory;

pub use purgatory::{DelayedOperation, DelayedOperationPurgatory, Operation, PurgatoryStats};
