//! The object of a `DelayedOperation`: its fields, and what the protocol reads of it.

use std::hash::BuildHasherDefault;

use pyo3::prelude::*;

use crate::operations::purgatory_setup::PurgatorySetup;
use crate::scheduled::task_leaving::RemovedTask;
use crate::scheduled::task_object::TimerTask;
use crate::tools::errors;
use crate::tools::finalizing;
use crate::tools::fork::{BelongsToProcess, fork_epoch};
use crate::tools::gil_cell::GilCell;
use crate::values::keys::{Key, KeyHasher};
use tickwheel::internal::purgatory::{Cause, OperationKind, OperationState, OperationTypes, Purgatory, TimerCheck};

/// An operation that waits for an event or for its deadline, whichever comes first. Subclass it.
///
/// `delay_ms`: the deadline, counted from the call that watches the operation, as for `TimerTask`. `lock`: an
/// object with `acquire(blocking)` and `release()`, best a `threading.RLock`, which is held during `try_complete`. No
/// thread waits for this lock: while another thread holds it, the check is postponed by a few milliseconds. `name`
/// appears in error messages. A subclass defines `try_complete()`, and `on_complete()` and `on_expiration()` if it
/// needs them. They run in the thread that checks or completes the operation; after an expiry they run where the
/// timer's callbacks run. An operation completes once: make a new one for each wait. After Kafka's `DelayedOperation`.
///
/// >>> class Reply(DelayedOperation):
/// ...     text = None
/// ...     def try_complete(self):
/// ...         return self.text is not None and self.force_complete()
/// ...     def on_complete(self):
/// ...         print("reply:", self.text)
/// >>> reply = Reply(500)
/// >>> with DelayedOperationPurgatory("calls") as calls:
/// ...     _ = calls.try_complete_else_watch(reply, ["call 1"])
/// ...     reply.text = "pong"
/// ...     calls.check_and_complete("call 1")
/// reply: pong
/// 1
#[pyclass(frozen, extends = TimerTask, subclass, module = "tickwheel")]
pub(crate) struct DelayedOperation {
    pub(crate) state: OperationState<PyOperations>,
    pub(super) fields: GilCell<OperationFields>,
    /// The process in which it was made. In a forked child, a thread that does not exist there may hold its native lock.
    pub(super) epoch: u32,
}

#[derive(Default)]
pub(super) struct OperationFields {
    /// Its own lock, which is held during `try_complete`.
    pub(super) lock: Option<Py<PyAny>>,
    /// Boxed: most operations have none, which takes 8 bytes.
    pub(super) waiters: Option<Box<Waiters>>,
    /// How it ended, set when its waiters have been taken.
    pub(super) ended: Option<Cause>,
}

/// The callables that learn the end of a wait. They belong to a wait until the operation is complete. They are set and
/// taken together with the wait, under the lock of its watch.
#[derive(Default)]
pub(crate) struct Waiters(
    /// Called with the end of the wait: `True` in time, `False` expired, `None` taken out.
    pub(crate) Vec<Py<PyAny>>,
);

impl Drop for DelayedOperation {
    fn drop(&mut self) {
        let fields = self.fields.get_mut();
        if fields.lock.is_some() || fields.waiters.is_some() {
            finalizing::drop_or_leak(std::mem::take(fields));
        }
    }
}

impl DelayedOperation {
    pub(crate) fn lock<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let lock = self.fields.with(py, |fields| fields.lock.as_ref().map(|lock| lock.clone_ref(py)));
        lock.map(|lock| lock.into_bound(py))
    }

    /// A wait begins. Runs no Python code.
    pub(crate) fn wait_begins(&self, py: Python<'_>, waiter: Option<Py<PyAny>>) {
        let waiters = waiter.map(|waiter| Box::new(Waiters(vec![waiter])));
        if waiters.is_some() {
            self.fields.with(py, |fields| fields.waiters = waiters);
        }
    }

    /// Sets how it ended; returns its waiters.
    pub(crate) fn wait_ended(&self, py: Python<'_>, cause: Cause) -> Option<Box<Waiters>> {
        self.fields.with(py, |fields| {
            fields.ended = Some(cause);
            fields.waiters.take()
        })
    }

    /// How it ended, if its waiters have been taken; otherwise adds this waiter.
    pub(crate) fn ended_or_add_waiter(&self, py: Python<'_>, waiter: &Bound<'_, PyAny>) -> Option<Cause> {
        self.fields.with(py, |fields| {
            if fields.ended.is_none() {
                fields.waiters.get_or_insert_default().0.push(waiter.clone().unbind());
            }
            fields.ended
        })
    }

    pub(crate) fn take_waiters(&self, py: Python<'_>) -> Option<Box<Waiters>> {
        self.fields.with(py, |fields| fields.waiters.take())
    }

    pub(crate) fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.epoch == fork_epoch() { Ok(()) } else { Err(errors::operation_forked(py)) }
    }
}

/// Operations that are Python objects.
pub(crate) struct PyOperations;

pub(crate) type NativePurgatory = Purgatory<PyOperations>;

impl OperationTypes for PyOperations {
    type Key = Key;
    type BuildKeyHasher = BuildHasherDefault<KeyHasher>;
    /// The GIL admits one thread at a time.
    const SHARDS: usize = 1;
    type Op = Py<DelayedOperation>;
    /// The task itself knows its entry on the timer.
    type Deadline = ();
    type DisarmedDeadline = RemovedTask;
    type Waiters = Option<Box<Waiters>>;
    type Environment = PurgatorySetup;
}

impl OperationKind for PyOperations {
    fn state(op: &Py<DelayedOperation>) -> &OperationState<Self> {
        &op.get().state
    }
}

impl BelongsToProcess for NativePurgatory {
    fn epoch(&self) -> u32 {
        self.environment.core.epoch()
    }
}

/// A check that the timer makes later, as the callback of an internal task.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct LaterCheck(pub(super) TimerCheck<PyOperations>);
