//! Tasks and batches, which are put on a timer.

pub(crate) mod awaiting;
pub(crate) mod batch;
pub(crate) mod loop_series;
pub(crate) mod periodic;
pub(crate) mod task;
pub(crate) mod task_adding;
pub(crate) mod task_fields;
pub(crate) mod task_leaving;
pub(crate) mod task_object;
