pub(crate) mod callees;
pub(crate) mod contexts;
pub(crate) mod settings;
pub(crate) mod timer_core;
pub(crate) mod timer_ref;
