//! Passes released tasks to the executor of the user: one `submit` for each task, or one `call_soon_threadsafe` for
//! each advance (T8).
//!
//! The executor gets a callable that claims its tasks when it is called, so a task may be cancelled until then.

use std::collections::VecDeque;
use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::core::inside_callback::InsideCallback;
use crate::core::timer_core::TimerCore;
use crate::driving::budget::ClockBudget;
use crate::engine::dispatch;
use crate::engine::leaving;
use crate::tools::finalizing::ForeignCall;
use crate::tools::fork::ProcessOwned;
use crate::tools::gil_cell::GilCell;
use crate::tools::native_lock::attach;
use crate::values::callback_target::CallbackTarget;
use crate::values::due_line::DueLine;
use tickwheel::internal::STEP;
use tickwheel::internal::sync::Receiver;
use tickwheel::{Handle, Released};

pub(super) fn feed_executor(py: Python<'_>, core: &Arc<TimerCore>, queue: &mut Receiver<Released>) {
    // A whole advance at a time, so that the steps of the reaper do not cut a group.
    let mut whole_advance = || -> Option<Vec<Handle>> {
        let mut released = queue.recv().ok()?;
        let mut handles = std::mem::take(&mut released.handles);
        while released.more {
            released = queue.recv().ok()?;
            handles.append(&mut released.handles);
        }
        Some(handles)
    };
    while let Some(handles) = py.detach(&mut whole_advance) {
        // Read again each time: a reference in this thread would keep a cycle through the executor alive.
        match &core.callees.target(py) {
            CallbackTarget::Loop(event_loop) => {
                submit(py, core, event_loop, "call_soon_threadsafe", &handles, Some(event_loop));
            }
            CallbackTarget::Pool(pool) => {
                let mut budget = ClockBudget::new();
                for call in split(py, core, &handles) {
                    submit(py, core, pool, "submit", call, None);
                    if !budget.count_callback() {
                        py.detach(|| ());
                        budget = ClockBudget::new();
                    }
                }
            }
            CallbackTarget::OwnThread => {} // the timer has dropped its executor: all of these tasks were taken out
        }
    }
}

/// Cuts a line into calls without claiming them.
fn split<'a>(py: Python<'_>, core: &TimerCore, handles: &'a [Handle]) -> Vec<&'a [Handle]> {
    let mut calls = Vec::new();
    let mut rest = handles;
    while !rest.is_empty() {
        let state = core.lock_unchecked(py);
        for _ in 0..STEP {
            if rest.is_empty() {
                break;
            }
            let (call, after) = rest.split_at(dispatch::group_len(&state, rest));
            calls.push(call);
            rest = after;
        }
    }
    calls
}

fn submit(
    py: Python<'_>,
    core: &Arc<TimerCore>,
    executor: &Py<PyAny>,
    method: &str,
    handles: &[Handle],
    event_loop: Option<&Py<PyAny>>,
) {
    let submitted = SubmittedTasks {
        core: ProcessOwned::new(Arc::clone(core)),
        line: GilCell::new(DueLine::of(handles.iter().copied())),
        event_loop: event_loop.map(|event_loop| event_loop.clone_ref(py)),
        has_backlog: GilCell::new(false),
    };
    let result = Bound::new(py, submitted).and_then(|submitted| {
        let result = executor.bind(py).call_method1(method, (&submitted,));
        if result.is_err() {
            drop(submitted.get().take(py));
        }
        result
    });
    if let Err(error) = result {
        leaving::reject(py, core, handles, &error.to_string(), Some(&error));
    }
}

/// The callable for a foreign executor, which claims its tasks when it is called. If it is dropped before that, its
/// tasks are rejected.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct SubmittedTasks {
    core: ProcessOwned<TimerCore>,
    line: GilCell<DueLine>,
    /// The loop that calls it again when a turn of the loop was long enough.
    event_loop: Option<Py<PyAny>>,
    /// The loop will call it once more, for the tasks that its last turn left.
    has_backlog: GilCell<bool>,
}

impl SubmittedTasks {
    fn take(&self, py: Python<'_>) -> DueLine {
        self.line.with(py, std::mem::take)
    }
}

#[pymethods]
impl SubmittedTasks {
    fn __call__(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(()) };
        let core = this.core.clone_arc();
        core.check_process(py)?;
        let line = this.take(py);
        let Some(event_loop) = &this.event_loop else { return run_line(py, &core, line, None).0 };
        // Tasks that an earlier turn left are due before these, but the loop calls them later. These tasks follow the
        // earlier ones there (T6).
        let may_continue = this.has_backlog.with(py, std::mem::take);
        let mut lines = core.backlog.with(py, |backlog| {
            backlog.extend((!line.handles.is_empty()).then_some(line));
            if may_continue || backlog.len() == 1 { std::mem::take(backlog) } else { VecDeque::new() }
        });
        let mut budget = ClockBudget::new();
        let mut result = Ok(());
        while let Some(line) = lines.pop_front() {
            let rest;
            (result, rest) = run_line(py, &core, line, Some(&mut budget));
            let is_over = result.is_err() || !rest.handles.is_empty();
            if !rest.handles.is_empty() {
                lines.push_front(rest);
            }
            if is_over {
                break;
            }
        }
        if !lines.is_empty() && !core.is_forked() {
            core.backlog.with(py, |backlog| {
                lines.append(backlog);
                *backlog = lines;
            });
            this.has_backlog.with(py, |has_backlog| *has_backlog = true);
            let may_continue = event_loop.bind(py).call_method1("call_soon", (slf,));
            result = result.and(may_continue.map(drop));
        }
        result
    }

    /// A loop refers to this object, and this object to the loop.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)
    }
}

/// Runs a line until it is empty, a callback raises an exception that ends the program, or the budget is used up.
/// Returns the rest.
fn run_line(
    py: Python<'_>,
    core: &Arc<TimerCore>,
    mut line: DueLine,
    mut budget: Option<&mut ClockBudget>,
) -> (PyResult<()>, DueLine) {
    let in_loop = budget.is_some();
    let _inside = InsideCallback::enter(core);
    let mut result = Ok(());
    while !core.is_forked()
        && let Some(call) = dispatch::claim_next(py, core, &mut line, None, 0)
    {
        result = dispatch::call(py, core, &call, in_loop);
        dispatch::finish_claims(py, core, call.len());
        if result.is_err() || !budget.as_mut().is_none_or(|budget| budget.count_callback()) {
            break;
        }
    }
    (result, line)
}

impl Drop for SubmittedTasks {
    fn drop(&mut self) {
        if self.core.is_forked() {
            return;
        }
        attach(|py| {
            let Some(_call) = ForeignCall::try_enter(py) else { return };
            let mut lines = VecDeque::from([self.take(py)]);
            if self.has_backlog.with(py, |has_backlog| *has_backlog) {
                lines.extend(self.core.backlog.with(py, std::mem::take));
            }
            let handles: Vec<_> = lines.into_iter().flat_map(|line| line.handles).collect();
            if !handles.is_empty() {
                leaving::reject(py, &self.core, &handles, "it dropped the task without running it", None);
            }
        });
    }
}
