//! The store against models and examples.

mod basics;
mod coming_again;
mod looking;
mod making;
mod model;
mod opening;
mod plans;
mod pruning;
mod small_tables;
