//! The engine: its settings, and the threads that write, send and observe.

pub(crate) mod engine;
pub(crate) mod sends;
pub(crate) mod settings;
pub(crate) mod threads;
