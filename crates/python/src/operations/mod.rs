//! The operations of a purgatory, and the protocol of `src/purgatory/` on the side of Python.

pub(crate) mod later_check;
pub(crate) mod operation;
pub(crate) mod operation_host;
pub(crate) mod operation_object;
pub(crate) mod operation_protocol;
pub(crate) mod purgatory_setup;
