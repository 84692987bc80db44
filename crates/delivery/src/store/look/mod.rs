//! Reads the store by separate connections: due times, overdue messages, recurring messages, and all tables.

pub(crate) mod census;
pub(crate) mod overdue;
pub(crate) mod rules;
pub(crate) mod snapshot;
