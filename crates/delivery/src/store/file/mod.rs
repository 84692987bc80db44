//! The file of a store: tables, options, ownership by one process, and replacement by another file.

pub(crate) mod checkpoints;
pub(crate) mod locked_file;
pub(crate) mod network;
pub(crate) mod new_file;
pub(crate) mod one_name;
pub(crate) mod options;
pub(crate) mod owner;
pub(crate) mod schema;
