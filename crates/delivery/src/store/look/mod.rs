//! Reads the store by separate connections: due times, overdue messages, recurring messages, and all tables.
//!
//! A [`snapshot`] is one moment of a store. Each question to it has a file: `status`, pages of `messages`, `one` message,
//! `letters`, `actions`, `slices`, `failing` keys. A report asks `figures` and `lateness`.

pub(crate) mod actions;
pub(crate) mod census;
pub(crate) mod failing;
pub(crate) mod figures;
mod find;
pub(crate) mod lateness;
pub(crate) mod letters;
pub(crate) mod messages;
pub(crate) mod one;
pub(crate) mod overdue;
pub(crate) mod rules;
pub(crate) mod seen;
pub(crate) mod slices;
pub(crate) mod snapshot;
pub(crate) mod status;
