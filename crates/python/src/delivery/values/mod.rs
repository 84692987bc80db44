//! Messages, records, answers and settings as Python objects.

pub(crate) mod arrow_readers;
pub(crate) mod attempt;
pub(crate) mod destinations;
pub(crate) mod entry;
pub(crate) mod items;
pub(crate) mod measures;
pub(crate) mod message;
pub(crate) mod operations;
pub(crate) mod puts;
pub(crate) mod readers;
pub(crate) mod receipts;
pub(crate) mod records;
pub(crate) mod replication;
pub(crate) mod settings;
