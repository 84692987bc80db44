//! The store against models and examples.

#![forbid(unsafe_code)]

mod basics;
mod making;
mod model;
