//! The file of a store: tables, options, ownership by one process, and replacement by another file.

pub(crate) mod backup_mark;
pub(crate) mod checkpoints;
pub(crate) mod locked;
pub(crate) mod network;
pub(crate) mod new_file;
pub(crate) mod options;
pub(crate) mod owner;
pub(crate) mod schema;
