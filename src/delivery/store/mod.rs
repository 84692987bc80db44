//! The store of delivery: one SQLite file that survives every crash (D5, D7, D9).

#![forbid(unsafe_code)]

mod locked;
mod network;
pub mod opened;
pub mod owner;
mod schema;
pub mod upgrade;
