//! Delayed delivery: a message submitted now comes out at its due time, in order per key, once, whatever crashes.
//!
//! ```text
//! read -> accept -> commit -> window -> wheel -> sink -> commit
//! ```

#![forbid(unsafe_code)]

mod arrow_json;
pub mod arrow_rows;
mod arrow_values;
pub mod clock;
pub mod columns;
mod dispatcher;
mod engine;
pub mod error;
pub mod fields;
mod group;
pub mod handed;
mod hashes;
pub mod items;
mod json;
mod lanes;
pub mod lines;
mod loader;
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
mod threads;
pub mod times;
mod window;
mod writer;

pub use dispatcher::Event;
pub use engine::{Engine, Settings};
pub use threads::{MOST_HANGING, Observer, Running};
pub use window::Bounds;
