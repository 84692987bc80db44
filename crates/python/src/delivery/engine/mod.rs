//! A running engine as a Python class: started, told of, and ended.

pub(crate) mod core;
pub(crate) mod engine_class;
pub(crate) mod observer;
pub(crate) mod sqlite_at_fork;
