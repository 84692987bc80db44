//! The other classes that Python sees: two timers, the purgatory, and the timers of an event loop.

mod loop_collecting;
pub(crate) mod loop_handle;
pub(crate) mod loop_objects;
pub(crate) mod loop_timers;
pub(crate) mod manual;
pub(crate) mod purgatory;
pub(crate) mod purgatory_object;
pub(crate) mod system;
