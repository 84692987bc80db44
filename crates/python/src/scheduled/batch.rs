//! `TaskBatch`: many deadlines with one callback and no Python object each (T18).
//!
//! Every entry is a reference to the batch; its tag tells the index. The batch knows the handle of each entry, and drops
//! its callback with the last one.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::core::callback_rules;
use crate::core::timer_core::{MAX_BATCH, TimerCore, tag_of};
use crate::tools::args;
use crate::tools::errors;
use crate::tools::finalizing::{self, ForeignCall};
use crate::tools::fork::ProcessOwned;
use crate::tools::gil_cell::GilCell;
use crate::tools::int64s;
use crate::tools::times::{self, Ms};
use tickwheel::internal::{Due, STEP};
use tickwheel::{Error, Handle, When};

/// Many timers with one callback and no Python object each: the result of `add_many`.
#[pyclass(frozen, weakref, module = "tickwheel")]
pub(crate) struct TaskBatch {
    core: ProcessOwned<TimerCore>,
    fields: GilCell<BatchFields>,
}

#[derive(Default)]
struct BatchFields {
    callback: Option<Py<PyAny>>,
    /// The context of the callback, if a loop runs it.
    context: Option<Py<PyAny>>,
    handles: Vec<Handle>,
    /// How many entries are still to run.
    to_run: usize,
}

impl BatchFields {
    fn take_call(&mut self) -> (Option<Py<PyAny>>, Option<Py<PyAny>>) {
        (self.callback.take(), self.context.take())
    }
}

#[pymethods]
impl TaskBatch {
    /// How many timers of the batch are still to run.
    fn __len__(&self, py: Python<'_>) -> usize {
        self.fields.with(py, |fields| fields.to_run)
    }

    /// When the timer with this index is due, as `TimerTask.due_ms`. Errors: `IndexError` outside the batch.
    #[pyo3(signature = (index))]
    fn due_ms<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(None) };
        let index = args::index(index, self.count(py))?;
        let handle = self.fields.with(py, |fields| fields.handles[index]);
        // `None` in a child process, as for a task.
        let due_us = self.core.lock(py).ok().and_then(|state| state.schedule.due_us(handle));
        due_us.map(|due_us| Ms::from_us(due_us).to_python(py)).transpose()
    }

    /// Cancel the timer with this index, as `TimerTask.cancel`. Errors: `IndexError` outside the batch.
    #[pyo3(signature = (index))]
    fn cancel(&self, py: Python<'_>, index: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(false) };
        let index = args::index(index, self.count(py))?;
        Ok(self.cancel_these(py, &[index])? == 1)
    }

    /// Cancel the timers with these indices. Returns how many will certainly not run.
    #[pyo3(signature = (indices))]
    fn cancel_many(&self, py: Python<'_>, indices: &Bound<'_, PyAny>) -> PyResult<usize> {
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(0) };
        let count = self.count(py);
        let numbers = match int64s::read_if_array(indices, "indices")? {
            Ok(numbers) => numbers.iter().map(|number| args::index_of(*number, count)).collect::<PyResult<Vec<_>>>()?,
            Err(_) => args::items(indices, "indices", "ints", "for one timer pass [index]")?
                .map(|index| args::index(&index?, count))
                .collect::<PyResult<Vec<_>>>()?,
        };
        self.cancel_these(py, &numbers)
    }

    /// Cancel all remaining timers. Returns how many will certainly not run.
    fn cancel_all(&self, py: Python<'_>) -> PyResult<usize> {
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(0) };
        self.cancel_these(py, &(0..self.count(py)).collect::<Vec<_>>())
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(errors::not_picklable("TaskBatch"))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let (to_run, all) = self.fields.with(py, |fields| (fields.to_run, fields.handles.len()));
        format!("<TaskBatch {to_run} of {all} to run>")
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.fields.visit(&visit, |fields| {
            visit.call(&fields.callback)?;
            visit.call(&fields.context)
        })
    }

    fn __clear__(&self, py: Python<'_>) {
        let Some(_call) = ForeignCall::try_enter(py) else { return };
        drop(self.fields.with(py, BatchFields::take_call));
    }
}

impl Drop for TaskBatch {
    fn drop(&mut self) {
        finalizing::drop_or_leak(std::mem::take(&mut self.fields));
    }
}

impl TaskBatch {
    /// Adds one timer per delay, in steps, all or nothing.
    pub(crate) fn add<'py>(
        py: Python<'py>,
        core: &Arc<TimerCore>,
        delays_ms: &[i64],
        callback: &Bound<'py, PyAny>,
        context: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Self>> {
        args::callable(callback, "callback")?;
        callback_rules::check_callback(core, callback)?;
        let context = callback_rules::context_of_add(core, context, py)?;
        if delays_ms.len() > MAX_BATCH {
            let count = delays_ms.len();
            return Err(PyTypeError::new_err(format!("a batch holds at most 2^32 - 2 timers, got {count}: split it")));
        }
        let delays_us: Vec<u64> = delays_ms
            .iter()
            .enumerate()
            .map(|(index, delay_ms)| times::delay_us(*delay_ms, index))
            .collect::<PyResult<_>>()?;
        let fields = BatchFields {
            callback: Some(callback.clone().unbind()),
            context,
            handles: Vec::with_capacity(delays_us.len()),
            to_run: delays_us.len(),
        };
        let batch = Bound::new(py, Self { core: ProcessOwned::new(Arc::clone(core)), fields: GilCell::new(fields) })?;
        core.check_process(py)?;
        let whole = core.timer.lock_bulk(py);
        let start = Self::reserve(py, core, &delays_us).map_err(|error| core.to_python_error(py, &error))?;
        let mut to_add = delays_us.len();
        for (step, delays_us) in delays_us.chunks(STEP).enumerate() {
            // The references are made with the GIL, before the lock is taken.
            let mut tasks: Vec<_> = delays_us.iter().map(|_| batch.clone().into_any().unbind()).collect();
            to_add -= tasks.len();
            let mut must_wake = false;
            let mut state = core.lock_unchecked(py);
            state.reserve(to_add);
            let handles: Vec<_> = delays_us
                .iter()
                .enumerate()
                .filter_map(|(offset, delay_us)| {
                    let due = Due { now_us: start.now_us, due_us: start.due_us + delay_us };
                    let (handle, must_wake_now) = state.add(due, tasks.pop()?, tag_of(step * STEP + offset));
                    must_wake |= must_wake_now;
                    Some(handle)
                })
                .collect();
            core.callees.entries_added(py, handles.len());
            batch.get().fields.with(py, |fields| fields.handles.extend(handles));
            drop(state);
            core.timer.wake_driver_if(must_wake);
        }
        drop(whole);
        batch.get().note_left_timer(py, 0); // an empty batch is finished at once
        Ok(batch)
    }

    /// Checks the whole batch and reserves room for it. Returns the instant from which its delays count.
    fn reserve(py: Python<'_>, core: &TimerCore, delays_us: &[u64]) -> Result<Due, Error> {
        let mut state = core.lock_unchecked(py);
        let clock = core.timer.clock();
        let longest_us = delays_us.iter().copied().max().unwrap_or(0);
        let due = state.admit(clock, When::AfterUs(longest_us), delays_us.len())?;
        state.reserve(delays_us.len());
        Ok(Due { due_us: due.due_us - longest_us, ..due })
    }

    /// The callback for a group that expires together, and its context.
    pub(crate) fn callback(&self, py: Python<'_>) -> (Option<Py<PyAny>>, Option<Py<PyAny>>) {
        let copy = |object: &Option<Py<PyAny>>| object.as_ref().map(|object| object.clone_ref(py));
        self.fields.with(py, |fields| (copy(&fields.callback), copy(&fields.context)))
    }

    /// `count` entries have left the timer. The last one drops the callback.
    pub(crate) fn note_left_timer(&self, py: Python<'_>, count: usize) {
        let callback = self.fields.with(py, |fields| {
            fields.to_run -= count;
            (fields.to_run == 0).then(|| fields.take_call())
        });
        drop(callback);
    }

    fn cancel_these(&self, py: Python<'_>, indices: &[usize]) -> PyResult<usize> {
        let mut count = 0;
        for indices in indices.chunks(STEP) {
            let clock = self.core.timer.clock();
            let mut state = self.core.lock(py)?;
            let tasks: Vec<_> = self.fields.with(py, |fields| {
                indices.iter().filter_map(|index| state.cancel(clock, fields.handles[*index])).collect()
            });
            self.core.timer.unlock_after_removal(state);
            self.note_left_timer(py, tasks.len());
            self.core.callees.entries_ended(py, tasks.len());
            count += tasks.len();
        }
        Ok(count)
    }

    fn count(&self, py: Python<'_>) -> usize {
        self.fields.with(py, |fields| fields.handles.len())
    }
}
