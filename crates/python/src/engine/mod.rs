//! What happens to the tasks of a timer: they are claimed and called, or leave it; and what it shows and records.

pub(crate) mod at_exit;
pub(crate) mod coroutine_tasks;
pub(crate) mod dispatch;
pub(crate) mod failure_details;
pub(crate) mod inspect;
pub(crate) mod leaving;
pub(crate) mod recording;
