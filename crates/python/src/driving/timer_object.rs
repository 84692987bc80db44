//! The object of a `Timer`: the parts that its `__init__` makes, and what happens when it is freed.

use std::sync::{Arc, OnceLock};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::core::timer_core::TimerCore;
use crate::core::timer_ref::TimerRef;
use crate::engine::inspect;
use crate::engine::leaving;
use crate::scheduled::task_object::TimerTask;
use crate::tools::finalizing::{self, ForeignCall};
use crate::tools::fork::ProcessOwned;
use crate::tools::gil_cell::GilCell;
use crate::tools::native_lock;

/// The base of `SystemTimer` and `tickwheel.testing.ManualTimer`. It cannot be used by itself.
#[pyclass(frozen, subclass, weakref, module = "tickwheel")]
pub(crate) struct Timer {
    /// Set by `__init__`.
    pub(super) parts: OnceLock<TimerParts>,
    /// The tasks that shutdown found pending.
    pub(super) unfinished: GilCell<Option<Py<PyList>>>,
}

/// The parts of an initialized timer.
pub(super) struct TimerParts {
    pub(super) core: ProcessOwned<TimerCore>,
    /// The reference that each of its tasks holds.
    pub(super) timer_ref: Py<TimerRef>,
}

/// An initialized timer, during a call that may run foreign code.
pub(crate) struct EnteredTimer<'a> {
    pub(super) parts: &'a TimerParts,
    _call: ForeignCall,
}

impl EnteredTimer<'_> {
    /// The reference that each of its tasks holds.
    #[inline]
    pub(crate) fn timer_ref(&self) -> &Py<TimerRef> {
        &self.parts.timer_ref
    }

    /// The state that it shares with its tasks.
    #[inline]
    pub(crate) fn core(&self) -> &Arc<TimerCore> {
        self.parts.core.arc()
    }
}

impl Timer {
    /// For a subclass of the library, whose `__init__` fills it in.
    pub(crate) fn empty() -> Self {
        Self { parts: OnceLock::new(), unfinished: GilCell::new(None) }
    }

    /// `RuntimeError` if `__init__` has run before.
    pub(crate) fn check_new(&self) -> PyResult<()> {
        match self.parts.get() {
            None => Ok(()),
            Some(parts) => Err(PyRuntimeError::new_err(format!(
                "timer '{}' is initialized already, and nothing was changed: make a new one for other settings",
                parts.core.name
            ))),
        }
    }

    /// Fills it in. Errors: as [`Timer::check_new`], if another thread did so first.
    pub(crate) fn initialize(&self, core: ProcessOwned<TimerCore>, timer_ref: Py<TimerRef>) -> PyResult<()> {
        self.parts.set(TimerParts { core, timer_ref }).or_else(|_| self.check_new())
    }

    #[inline]
    pub(super) fn parts(&self) -> PyResult<&TimerParts> {
        self.parts.get().ok_or_else(uninitialized)
    }

    /// Enters a call that may run foreign code. Errors: the timer is not initialized; `TimerClosed` at the end of the
    /// interpreter.
    #[inline]
    pub(crate) fn enter(&self, py: Python<'_>) -> PyResult<EnteredTimer<'_>> {
        Ok(EnteredTimer { parts: self.parts()?, _call: ForeignCall::enter(py)? })
    }

    /// As [`Timer::enter`], for a call that can return a harmless answer: `None` at the end of the interpreter.
    pub(crate) fn try_enter(&self, py: Python<'_>) -> PyResult<Option<EnteredTimer<'_>>> {
        let parts = self.parts()?;
        Ok(ForeignCall::try_enter(py).map(|call| EnteredTimer { parts, _call: call }))
    }

    /// The state that it shares with its tasks.
    #[inline]
    pub(crate) fn core(&self) -> PyResult<&Arc<TimerCore>> {
        Ok(self.parts()?.core.arc())
    }

    /// A copy of the list of tasks that shutdown found pending; `None` before shutdown.
    pub(crate) fn unfinished_list<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyList>> {
        let list = self.unfinished.with(py, |list| list.as_ref().map(|list| list.clone_ref(py)))?.into_bound(py);
        Some(list.get_slice(0, list.len()))
    }

    /// Drains the timer and appends the tasks, in order, to those that were drained before. Returns a copy of the whole
    /// list.
    pub(crate) fn keep_unfinished<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let new = PyList::empty(py);
        let mut all_listed = Ok(());
        for pending in leaving::drain(py, self.core()?) {
            if TimerTask::is_internal(pending.task.bind(py)) {
                continue;
            }
            // A failure, as for want of memory, costs one task of the list and not the others.
            let listed = inspect::as_listed(py, &pending.task, pending.tag).and_then(|listed| new.append(listed));
            all_listed = all_listed.and(listed);
        }
        let earlier = self.unfinished.with(py, |unfinished| {
            let earlier = unfinished.as_ref().map(|list| list.clone_ref(py));
            if earlier.is_none() {
                *unfinished = Some(new.clone().unbind());
            }
            earlier
        });
        let Some(all) = earlier else { return all_listed.map(|()| new.get_slice(0, new.len())) };
        let all = all.into_bound(py);
        all.set_slice(all.len(), all.len(), &new)?;
        all_listed.map(|()| all.get_slice(0, all.len()))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        finalizing::drop_or_leak(std::mem::take(&mut self.unfinished));
        let Some(parts) = self.parts.take() else { return };
        if parts.core.is_forked() {
            return;
        }
        native_lock::attach(|py| match ForeignCall::try_enter(py) {
            Some(_call) => {
                leaving::abandon(py, &parts.core);
                drop(parts);
            }
            None => std::mem::forget(parts), // its destructors are foreign code
        });
    }
}

#[cold]
fn uninitialized() -> PyErr {
    PyRuntimeError::new_err(
        "this timer is not initialized yet: call super().__init__() with the timer's settings first, in the __init__ of \
         the subclass",
    )
}
