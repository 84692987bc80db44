//! Shared by all other modules: errors, the clock, locks, and how values are written and shown. It knows nothing of
//! messages.

pub(crate) mod budget;
pub(crate) mod clock;
pub(crate) mod display;
pub(crate) mod due_times;
pub(crate) mod error;
pub(crate) mod folders;
pub(crate) mod json;
pub(crate) mod kill_point;
pub(crate) mod open_stores;
pub(crate) mod summary;
pub(crate) mod sync;
pub(crate) mod times;
