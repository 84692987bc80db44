//! Read by connections of their own: what is due when, what is overdue, what recurs, and all tables.

pub(crate) mod census;
pub(crate) mod overdue;
pub(crate) mod rules;
pub(crate) mod snapshot;
