//! The engine: its settings, and the threads that write, send and observe.

#![forbid(unsafe_code)]

pub(crate) mod engine;
pub(crate) mod sends;
pub(crate) mod settings;
pub(crate) mod threads;
