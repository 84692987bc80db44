//! Read by connections of their own: what is due when, what is overdue, what recurs, and all tables.

#![forbid(unsafe_code)]

pub(crate) mod census;
pub(crate) mod overdue;
pub(crate) mod rules;
pub(crate) mod snapshot;
