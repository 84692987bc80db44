//! Where deliveries go (rule D10).

#![forbid(unsafe_code)]

pub mod file;
pub mod line;
