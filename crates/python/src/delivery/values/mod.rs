//! Messages, records, answers and settings as Python objects.

pub(crate) mod arrow_readers;
pub(crate) mod attempt;
pub(crate) mod futures;
pub(crate) mod items;
pub(crate) mod measures;
pub(crate) mod message;
pub(crate) mod operations;
pub(crate) mod readers;
pub(crate) mod records;
pub(crate) mod rows;
pub(crate) mod settings;
pub(crate) mod times;
