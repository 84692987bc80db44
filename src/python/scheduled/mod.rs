pub(crate) mod batch;
pub(crate) mod task;
pub(crate) mod task_fields;
