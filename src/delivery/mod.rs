//! Delayed delivery: a message submitted now comes out at its due time, in order per key, once, whatever crashes.
//!
//! ```text
//! read -> accept -> commit -> window -> wheel -> sink -> commit
//! ```

#![forbid(unsafe_code)]

pub mod clock;
pub mod error;
pub mod message;
pub mod retry;
pub mod store;
