//! The engine of delivery as Python classes, and sinks that are Python objects.

pub(crate) mod answers;
pub(crate) mod attempt;
pub(crate) mod callees;
pub(crate) mod core;
pub(crate) mod desk;
pub(crate) mod destination;
pub(crate) mod engine;
pub(crate) mod failures;
pub(crate) mod function;
pub(crate) mod items;
pub(crate) mod maintenance;
pub(crate) mod measures;
pub(crate) mod message;
pub(crate) mod observer;
pub(crate) mod raised;
pub(crate) mod readers;
pub(crate) mod records;
pub(crate) mod rows;
pub(crate) mod settings;
pub(crate) mod sink;
pub(crate) mod slow_sync;
pub(crate) mod snapshot;
pub(crate) mod sqlite_at_fork;
pub(crate) mod times;
