//! What drives a timer: the thread of its executor, and the class that all timers extend.

pub(crate) mod budget;
pub(crate) mod foreign_executor;
pub(crate) mod timer;
pub(crate) mod timer_object;
pub(crate) mod worker;
