pub(crate) mod operation;
pub(crate) mod operation_protocol;
