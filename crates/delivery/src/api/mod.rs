//! What a Rust program uses: options, the deliverer, and destinations.

#![forbid(unsafe_code)]

pub(crate) mod deliverer;
pub(crate) mod destination;
pub(crate) mod open_options;
