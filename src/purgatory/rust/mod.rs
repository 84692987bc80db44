//! The purgatory as Rust programs use it, on a [`crate::SystemTimer`].

mod host;
mod operation;
mod purgatory;

pub use operation::{DelayedOperation, Operation};
pub use purgatory::DelayedOperationPurgatory;
