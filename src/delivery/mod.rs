//! Delayed delivery: a message submitted now comes out at its due time, in order per key, once, whatever crashes.
//!
//! ```text
//! read -> accept -> commit -> window -> wheel -> sink -> commit
//! ```

#![forbid(unsafe_code)]

pub mod clock;
pub mod columns;
mod dispatcher;
pub mod engine;
pub mod error;
mod group;
pub mod items;
mod loader;
pub mod threads;
mod writer;
pub mod fields;
mod hashes;
mod json;
mod lanes;
pub mod lines;
pub mod message;
pub mod ndjson;
mod origin;
mod outage;
pub mod retry;
mod shown;
#[cfg(test)]
mod simulation;
pub mod sinks;
pub mod store;
pub mod summary;
pub mod times;
mod window;
