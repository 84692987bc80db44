//! The store against models and examples.

#![forbid(unsafe_code)]

mod basics;
mod coming_again;
mod making;
mod model;
mod opening;
mod plans;
mod pruning;
mod small_tables;
