//! Open messages: accepted, moved, waiting, being sent, finished, and found again after a crash.

pub(crate) mod accept;
pub(crate) mod bodies;
pub(crate) mod collector;
pub(crate) mod ending;
pub(crate) mod first_due;
pub(crate) mod may_have_arrived;
pub(crate) mod near;
pub(crate) mod occurrences;
pub(crate) mod recover;
pub(crate) mod waiting;
