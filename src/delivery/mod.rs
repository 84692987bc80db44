//! Delayed delivery: a message submitted now comes out at its due time, in order per key, once, whatever crashes.
//!
//! ```text
//! read -> accept -> commit -> window -> wheel -> sink -> commit
//! ```

#![forbid(unsafe_code)]

mod arrow_json;
pub mod arrow_rows;
mod arrow_values;
pub mod columns;
pub mod error;
pub mod fields;
pub mod handed;
mod hashes;
mod json;
pub mod lines;
pub mod message;
pub mod ndjson;
mod origin;
mod shown;
pub mod sinks;
pub mod times;
