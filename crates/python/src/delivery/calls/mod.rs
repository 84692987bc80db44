//! Between the engine and Python: what is called, what was raised, and exceptions for the errors of delivery.

pub(crate) mod callees;
pub(crate) mod failures;
pub(crate) mod loop_signal;
pub(crate) mod raised;
