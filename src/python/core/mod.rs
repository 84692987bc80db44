pub(crate) mod callees;
pub(crate) mod garbage;
pub(crate) mod inside_callback;
pub(crate) mod loop_only;
pub(crate) mod settings;
pub(crate) mod timer_core;
pub(crate) mod timer_ref;
