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
use crate::driving::budget::Budget;
use crate::engine::dispatch::{self, ClaimedCall};
use crate::engine::leaving;
use crate::tools::finalizing::ForeignCall;
use crate::tools::fork::ProcessOwned;
use crate::tools::gil_cell::GilCell;
use crate::tools::native_lock::attach;
use crate::values::callback_target::CallbackTarget;
use crate::values::due_line::DueLine;
use tickwheel::internal::STEP;
use tickwheel::internal::sync::Receiver;
use tickwheel::{Released, Ticket};

pub(super) fn feed_executor(py: Python<'_>, core: &Arc<TimerCore>, queue: &mut Receiver<Released>) {
    // A whole advance at a time, so that the steps of the reaper do not cut a group.
    let whole_advance = || -> Option<Vec<Ticket>> {
        let mut released = queue.recv().ok()?;
        let mut tickets = std::mem::take(&mut released.tickets);
        while released.more {
            released = queue.recv().ok()?;
            tickets.append(&mut released.tickets);
        }
        Some(tickets)
    };
    while let Some(tickets) = py.detach(whole_advance) {
        // Read again each time: a reference in this thread would keep a cycle through the executor alive.
        match &core.callees.target(py) {
            CallbackTarget::Loop(event_loop) => {
                submit(py, core, event_loop, "call_soon_threadsafe", &tickets, Some(event_loop));
            }
            CallbackTarget::Pool(pool) => {
                let clock = core.timer.clock();
                let mut budget = Budget::from(clock.now_us());
                for call in split(py, core, &tickets) {
                    submit(py, core, pool, "submit", call, None);
                    if !budget.count(clock.now_us()) {
                        py.detach(|| ());
                        budget = Budget::from(clock.now_us());
                    }
                }
            }
            CallbackTarget::OwnThread => {} // the timer has dropped its executor: all of these tasks were taken out
        }
    }
}

/// Cuts a line into calls without claiming them.
fn split<'a>(py: Python<'_>, core: &TimerCore, tickets: &'a [Ticket]) -> Vec<&'a [Ticket]> {
    let mut calls = Vec::new();
    let mut rest = tickets;
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
    tickets: &[Ticket],
    event_loop: Option<&Py<PyAny>>,
) {
    let submitted = SubmittedTasks {
        core: ProcessOwned::new(Arc::clone(core)),
        line: GilCell::new(DueLine::of(tickets.iter().copied())),
        event_loop: event_loop.map(|event_loop| event_loop.clone_ref(py)),
        continues: GilCell::new(false),
    };
    let result = Bound::new(py, submitted).and_then(|submitted| {
        let result = executor.bind(py).call_method1(method, (&submitted,));
        if result.is_err() {
            drop(submitted.get().take(py));
        }
        result
    });
    if let Err(error) = result {
        leaving::reject(py, core, tickets, &error.to_string(), Some(&error));
    }
}

/// The callable for a foreign executor, which claims its tasks when it is called. If it is dropped before that, its
/// tasks are rejected.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct SubmittedTasks {
    core: ProcessOwned<TimerCore>,
    line: GilCell<DueLine>,
    /// The loop that calls it again while there is a backlog.
    event_loop: Option<Py<PyAny>>,
    /// The loop will call it once more, for the backlog.
    continues: GilCell<bool>,
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
        let mut line = this.take(py);
        let Some(event_loop) = &this.event_loop else { return run_line(py, &core, &mut line) };
        // Tasks that an earlier call left are due before these, but the loop goes on with them later. These tasks follow
        // the earlier ones there (T6).
        let continues = this.continues.with(py, std::mem::take);
        let may_run = core.backlog.with(py, |backlog| {
            backlog.lines.extend((!line.tickets.is_empty()).then_some(line));
            backlog.is_continued &= !continues;
            !backlog.is_continued
        });
        let _inside = InsideCallback::enter(&core);
        let mut budget = Budget::from(core.timer.clock().now_us());
        while may_run
            && !core.is_forked()
            && let Some(call) = claim_in_backlog(py, &core)
        {
            // Before the callback: it may turn the loop again, and the other tasks are due in that turn.
            let must_continue = core
                .backlog
                .with(py, |backlog| !backlog.lines.is_empty() && !std::mem::replace(&mut backlog.is_continued, true));
            let continued = if must_continue {
                this.continues.with(py, |continues| *continues = true);
                event_loop.bind(py).call_method1("call_soon", (slf,)).map(drop)
            } else {
                Ok(())
            };
            let result = dispatch::call(py, &core, &call, true);
            dispatch::finish_claims(py, &core, call.len());
            result.and(continued)?;
            if !budget.count(core.timer.clock().now_us()) {
                break;
            }
        }
        Ok(())
    }

    /// A loop refers to this object, and this object to the loop.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)
    }
}

/// Claims the next call of the tasks that the loop has taken over.
fn claim_in_backlog(py: Python<'_>, core: &TimerCore) -> Option<ClaimedCall> {
    loop {
        let mut line = core.backlog.with(py, |backlog| backlog.lines.pop_front())?;
        let call = dispatch::claim_next(py, core, &mut line, None, 0);
        if !line.tickets.is_empty() {
            core.backlog.with(py, |backlog| backlog.lines.push_front(line));
        }
        if call.is_some() {
            return call;
        }
    }
}

/// Runs a line in a pool.
fn run_line(py: Python<'_>, core: &Arc<TimerCore>, line: &mut DueLine) -> PyResult<()> {
    let _inside = InsideCallback::enter(core);
    while !core.is_forked()
        && let Some(call) = dispatch::claim_next(py, core, line, None, 0)
    {
        let result = dispatch::call(py, core, &call, false);
        dispatch::finish_claims(py, core, call.len());
        result?;
    }
    Ok(())
}

impl Drop for SubmittedTasks {
    fn drop(&mut self) {
        if self.core.is_forked() {
            return;
        }
        attach(|py| {
            let Some(_call) = ForeignCall::try_enter(py) else { return };
            let mut lines = VecDeque::from([self.take(py)]);
            if self.continues.with(py, |continues| *continues) {
                lines.extend(self.core.backlog.with(py, std::mem::take).lines);
            }
            let tickets: Vec<_> = lines.into_iter().flat_map(|line| line.tickets).collect();
            if !tickets.is_empty() {
                leaving::reject(py, &self.core, &tickets, "it dropped the task without running it", None);
            }
        });
    }
}
