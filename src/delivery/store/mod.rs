//! stub
#![forbid(unsafe_code)]
mod types;
pub use types::*;
