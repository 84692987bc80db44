//! What the tasks of a `SystemTimer` run.

/// What a task of a [`SystemTimer`](crate::SystemTimer) runs.
pub type Callback = Box<dyn FnOnce() + Send>;

/// What a periodic task of a [`SystemTimer`](crate::SystemTimer) runs.
pub type PeriodicCallback = Box<dyn FnMut() + Send>;
