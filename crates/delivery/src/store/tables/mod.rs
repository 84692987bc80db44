//! The small tables: one file each.

pub(crate) mod attempts;
pub(crate) mod bulk_actions;
pub(crate) mod cancels;
pub(crate) mod inputs;
pub(crate) mod letters;
pub(crate) mod meta;
pub(crate) mod openings;
pub(crate) mod paused_keys;
