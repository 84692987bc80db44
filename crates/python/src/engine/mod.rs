//! The tasks of a timer are claimed and called here, or leave it. Also its views and recordings.

pub(crate) mod at_exit;
pub(crate) mod coroutine_tasks;
pub(crate) mod dispatch;
pub(crate) mod failure_details;
pub(crate) mod inspect;
pub(crate) mod leaving;
pub(crate) mod recording;
