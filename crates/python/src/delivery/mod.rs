//! The engine of delivery as Python classes, and sinks that are Python objects.

pub(crate) mod calls;
pub(crate) mod engine;
pub(crate) mod sinks;
pub(crate) mod store;
pub(crate) mod values;
