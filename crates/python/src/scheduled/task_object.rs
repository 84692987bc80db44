//! The object of a `TimerTask`: its fields, and what other files read of it.
//!
//! The GIL guards the fields. Which timer the task is on is changed with both the GIL and that timer's lock held, so
//! the handle here always agrees with the entry there.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::core::timer_core::TimerCore;
use crate::scheduled::task_fields::{CallbackAndArgs, TaskFields, TaskKind};
use crate::tools::args;
use crate::tools::finalizing;
use crate::tools::gil_cell::{self, GilCell};
use crate::tools::times::Ms;
use tickwheel::Handle;

/// Something to run after a delay: a callable with arguments, or a subclass with `run()`.
///
/// `delay_ms`: milliseconds after `add`, or a `timedelta`; zero or less is due at once. `name` appears in
/// snapshots and error messages. A task may be added again, also from its own callback; adding a pending task moves it.
/// A coroutine function needs a timer whose executor is an asyncio loop; in a `partial` it is found when it is called.
/// Errors: `ValueError` and `TypeError` for a bad delay or callback. After Kafka's `TimerTask`.
#[pyclass(frozen, subclass, weakref, module = "tickwheel")]
pub(crate) struct TimerTask {
    pub(super) fields: GilCell<TaskFields>,
}

/// The callable for a due task.
pub(crate) enum DueCall {
    Method,
    Periodic,
    Expiry,
    Callback(Option<Py<PyAny>>, Option<Py<PyTuple>>),
}

impl TimerTask {
    pub(super) fn new(fields: TaskFields) -> Self {
        Self { fields: GilCell::new(fields) }
    }

    /// For a subclass of the library, whose `__init__` fills it in.
    pub(crate) fn empty() -> Self {
        Self { fields: GilCell::default() }
    }

    /// Makes it the deadline of a `DelayedOperation`.
    pub(crate) fn initialize_expiry(slf: &Bound<'_, Self>, delay: Ms, name: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let mut fields = TaskFields::new(Some(delay), None, None, name.map(args::task_name).transpose()?);
        fields.kind = TaskKind::Expiry;
        Self::initialize(slf, fields)
    }

    pub(super) fn initialize(slf: &Bound<'_, Self>, fields: TaskFields) -> PyResult<()> {
        let old = slf.get().fields.with(slf.py(), |old| {
            let is_free = old.timer_and_handle().is_none();
            is_free.then(|| std::mem::replace(old, fields))
        });
        if old.is_none() {
            return Err(PyValueError::new_err("this task is pending: cancel it before it is initialized again"));
        }
        // A one-shot task that has ended was off the collector's lists, as it had dropped its callback for good.
        gil_cell::track(slf);
        Ok(())
    }

    /// When it is due, in microseconds of its timer's clock, and whether it waits for its call. `None` if it is on no timer, or that is
    /// the timer of a parent process.
    pub(super) fn due(&self, py: Python<'_>) -> Option<u64> {
        let (core, handle) = self.timer_and_handle(py)?;
        let state = core.lock(py).ok()?;
        state.schedule.slab.get(handle).map(|entry| entry.due_us)
    }

    /// Whether it is on a timer, or its call runs.
    pub(crate) fn is_open(&self, py: Python<'_>) -> bool {
        self.fields.with(py, |fields| fields.has_run().is_none())
    }

    /// No call comes after the one that runs.
    pub(super) fn note_cancelled(&self, py: Python<'_>) {
        self.fields.with(py, TaskFields::note_cancelled);
    }

    /// It is to wait once more, in a purgatory. Whether it was cancelled.
    pub(crate) fn forget_cancel(&self, py: Python<'_>) -> bool {
        self.fields.with(py, TaskFields::forget_cancel)
    }

    /// As an operation it was cancelled, unless another thread has added it again since.
    pub(crate) fn note_operation_cancelled(&self, py: Python<'_>) {
        self.fields.with(py, |fields| {
            if fields.timer_and_handle().is_none() {
                fields.note_cancelled();
            }
        });
    }

    /// Whether it is the deadline of a `DelayedOperation`.
    pub(super) fn is_deadline(&self, py: Python<'_>) -> bool {
        self.fields.with(py, |fields| fields.kind == TaskKind::Expiry)
    }

    /// The name that the user gave it.
    pub(crate) fn name(&self, py: Python<'_>) -> Option<Py<PyString>> {
        self.fields.with(py, |fields| fields.name(py))
    }

    pub(crate) fn delay(&self, py: Python<'_>) -> PyResult<Ms> {
        self.fields.with(py, |fields| fields.delay()).ok_or_else(uninitialized)
    }

    /// The delay, and whether the callback is a coroutine function.
    pub(crate) fn delay_and_is_coroutine(&self, py: Python<'_>) -> PyResult<(Ms, bool)> {
        let (delay, is_coroutine) = self.fields.with(py, |fields| (fields.delay(), fields.is_coroutine()));
        Ok((delay.ok_or_else(uninitialized)?, is_coroutine))
    }

    /// What to call, and in which context. A one-shot task drops its callback here.
    pub(crate) fn take_due_call(&self, py: Python<'_>) -> (DueCall, Option<Py<PyAny>>) {
        self.fields.with(py, |fields| {
            let run = match fields.kind {
                TaskKind::Method => DueCall::Method,
                TaskKind::Periodic => DueCall::Periodic,
                TaskKind::Expiry => DueCall::Expiry,
                _ => {
                    let (callback, args) = fields.take_one_shot_call().unwrap_or_else(|| fields.call(py));
                    DueCall::Callback(callback, args)
                }
            };
            (run, fields.take_context())
        })
    }

    /// While its failure is reported a one-shot task tells what it was. Whether it is one.
    pub(crate) fn give_back_call(&self, py: Python<'_>, call: CallbackAndArgs) -> bool {
        let left = self.fields.with(py, |fields| fields.give_back_call(call));
        left.is_none() // and what is left is dropped here
    }

    /// Then it drops that, unless it was added again meanwhile.
    pub(crate) fn take_ended_call(&self, py: Python<'_>) -> Option<CallbackAndArgs> {
        self.fields
            .with(py, |fields| fields.timer_and_handle().is_none().then(|| fields.take_one_shot_call()).flatten())
    }

    /// Its callback and arguments.
    pub(super) fn call(&self, py: Python<'_>) -> CallbackAndArgs {
        self.fields.with(py, |fields| fields.call(py))
    }

    /// Its callback; `None` if its class has a `run` of its own.
    pub(crate) fn callback(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.fields.with(py, |fields| if fields.kind == TaskKind::Method { None } else { fields.call(py).0 })
    }

    /// The timer that it is on, and its handle there.
    pub(crate) fn timer_and_handle(&self, py: Python<'_>) -> Option<(Arc<TimerCore>, Handle)> {
        self.fields.with(py, |fields| fields.timer_and_handle().map(|(core, handle)| (Arc::clone(core), handle)))
    }

    /// Whether it is an internal task of the library, which users never see.
    pub(crate) fn is_internal(task: &Bound<'_, PyAny>) -> bool {
        let task = task.cast_exact::<Self>();
        task.is_ok_and(|task| task.get().fields.with(task.py(), |fields| fields.kind == TaskKind::Internal))
    }

    /// What a snapshot shows: its name, or the name of its callback.
    pub(crate) fn shown_name(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let (name, callback) = slf.get().fields.with(py, |fields| (fields.name(py), fields.call(py).0));
        if let Some(name) = name {
            return Ok(name.into_any());
        }
        if let Some(callback) = callback
            && let Ok(name) = callback.bind(py).getattr("__qualname__")
        {
            return Ok(name.unbind());
        }
        Ok(slf.get_type().qualname()?.into_any().unbind())
    }
}

impl Drop for TimerTask {
    #[inline]
    fn drop(&mut self) {
        if !self.fields.get_mut().refers_to_user_objects() {
            return; // most tasks have dropped their callback
        }
        finalizing::drop_or_leak(std::mem::take(&mut self.fields));
    }
}

fn uninitialized() -> PyErr {
    PyValueError::new_err("this task was never initialized: call super().__init__(delay_ms) in its __init__")
}
