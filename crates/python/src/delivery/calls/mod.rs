//! Calls from the engine to Python: the callees, the exceptions that they raise, and exceptions for the errors of
//! delivery.

pub(crate) mod callees;
pub(crate) mod failures;
pub(crate) mod loop_signal;
pub(crate) mod raised;
