//! The API for Rust programs: options, the deliverer, and destinations.

pub(crate) mod deliverer;
pub(crate) mod destination;
