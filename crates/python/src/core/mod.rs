//! The shared state of a Python timer, its tasks and its threads.

pub(crate) mod attached_timer;
pub(crate) mod callback_rules;
pub(crate) mod callees;
pub(crate) mod garbage_collection;
pub(crate) mod inside_callback;
pub(crate) mod settings;
pub(crate) mod timer_core;
pub(crate) mod timer_ref;
