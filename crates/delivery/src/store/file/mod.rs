//! The file of a store: its tables, its options, which process has it, and how another file takes its place.

pub(crate) mod backup_mark;
pub(crate) mod checkpoints;
pub(crate) mod locked;
pub(crate) mod network;
pub(crate) mod new_file;
pub(crate) mod options;
pub(crate) mod owner;
pub(crate) mod schema;
