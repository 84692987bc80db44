//! Runs what was released: claims each task right before its callback, with the GIL held for callbacks only.
//!
//! Consecutive timers of one batch are one group and one call (T18); another task due in between splits it. A run is
//! bounded in number and in time, then others get the GIL (T8).

use std::hint::black_box;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyTuple};

use crate::executor::Released;
use crate::python::core::timer_core::{NO_INDEX, TaskRef, TimerCore};
use crate::python::engine::coroutine_tasks;
use crate::python::engine::failures;
use crate::python::operations::operation;
use crate::python::scheduled::batch::TaskBatch;
use crate::python::scheduled::task_leaving;
use crate::python::scheduled::task_object::{DueCall, TimerTask};
use crate::python::tools::finalizing::ForeignCall;
use crate::python::tools::made_once::intern;
use crate::python::values::callback_scope;
use crate::python::values::due_line::DueLine;
use crate::python::values::report;
use crate::state::State;
use crate::sync::Receiver;
use crate::timer::STEP;
use crate::wheel::Handle;

/// How many claims ahead entries and tasks are read.
const ENTRIES_AHEAD: usize = 8;
const TASKS_AHEAD: usize = 4;

/// Claimed: to be run now.
pub(crate) struct ClaimedCall {
    what: CallTarget,
    pub(crate) claimed_us: u64,
}

enum CallTarget {
    Task(TaskRef, Handle),
    /// Timers of one batch.
    BatchGroup(BatchGroup),
}

/// Timers of one batch that expire together.
pub(crate) struct BatchGroup {
    /// A reference to the batch for each.
    tasks: Vec<TaskRef>,
    indices: Vec<i64>,
    /// Taken along, since the batch lets go of it with its last timer.
    callback: Option<Py<PyAny>>,
    context: Option<Py<PyAny>>,
}

impl ClaimedCall {
    /// How many claims it stands for.
    pub(crate) fn len(&self) -> usize {
        match &self.what {
            CallTarget::Task(..) => 1,
            CallTarget::BatchGroup(group) => group.tasks.len(),
        }
    }
}

/// Says that `finished` claims have run, and claims the next unit of the line; `None` if the rest of it was cancelled.
/// `queue` is where more of the line comes from while it says that there is more.
pub(crate) fn claim_next(
    py: Python<'_>,
    core: &TimerCore,
    line: &mut DueLine,
    mut queue: Option<&mut Receiver<Released>>,
    finished: usize,
) -> Option<ClaimedCall> {
    let mut state = core.state(py);
    core.timer.finish_locked(&mut state, finished);
    let Some(mut unit) = claim_first(py, &mut state, core, line) else {
        drop(state);
        core.callees.entries_ended(py, finished);
        return None;
    };
    if let CallTarget::BatchGroup(group) = &mut unit.what {
        while extend_group(&mut state, core, line, group) {
            drop(state);
            if line.handles.is_empty() && line.more {
                match queue.as_deref_mut().and_then(|queue| py.detach(|| queue.recv()).ok()) {
                    Some(released) => line.append(released),
                    None => line.more = false,
                }
            }
            state = core.state(py);
        }
    }
    drop(state);
    core.callees.entries_ended(py, finished);
    match &mut unit.what {
        CallTarget::Task(task, handle) => {
            if let Ok(task) = task.bind(py).cast::<TimerTask>() {
                task_leaving::note_claimed(task, *handle);
            }
        }
        CallTarget::BatchGroup(group) => {
            let batch = batch_of(py, group).clone();
            (group.callback, group.context) = batch.get().callback(py);
            batch.get().entries_left(py, group.tasks.len());
        }
    }
    Some(unit)
}

/// Says that so many claims have run. In a child that a callback forked there is nobody to tell.
pub(crate) fn finish_claims(py: Python<'_>, core: &TimerCore, count: usize) {
    if count > 0 && !core.is_forked() {
        let mut state = core.state(py);
        core.timer.finish_locked(&mut state, count);
        drop(state);
        core.callees.entries_ended(py, count);
    }
}

fn claim_first(
    py: Python<'_>,
    state: &mut State<TaskRef>,
    core: &TimerCore,
    line: &mut DueLine,
) -> Option<ClaimedCall> {
    while let Some(handle) = line.handles.pop_front() {
        look_ahead(py, state, line);
        let claimed_us = core.timer.clock().now_us();
        if let Some(claimed) = state.claim(handle, claimed_us) {
            let what = match claimed.tag {
                NO_INDEX => CallTarget::Task(claimed.task, handle),
                index => CallTarget::BatchGroup(BatchGroup {
                    tasks: vec![claimed.task],
                    indices: vec![i64::from(index)],
                    callback: None,
                    context: None,
                }),
            };
            return Some(ClaimedCall { what, claimed_us });
        }
    }
    None
}

/// Reads a little of what the next claims will need, so that the processor fetches it while callbacks run: of the entry
/// some claims ahead, and of the task nearer by. Among a million tasks neither is in a cache, and waiting for them took
/// longer than all the rest.
fn look_ahead(py: Python<'_>, state: &State<TaskRef>, line: &DueLine) {
    if let Some(handle) = line.handles.get(ENTRIES_AHEAD) {
        state.schedule.wheel.touch(&[*handle]);
    }
    if let Some((task, _)) = line.handles.get(TASKS_AHEAD).and_then(|handle| state.schedule.peek(*handle)) {
        black_box(task.bind(py).get_type_ptr());
    }
}

/// Claims on while the next in line belong to the same batch, at most [`STEP`]. Whether the group may go on after that.
fn extend_group(state: &mut State<TaskRef>, core: &TimerCore, line: &mut DueLine, group: &mut BatchGroup) -> bool {
    let now_us = core.timer.clock().now_us();
    for _ in 0..STEP {
        let Some(handle) = line.handles.front().copied() else { return line.more };
        match state.schedule.peek(handle) {
            Some((task, tag)) if tag == NO_INDEX || !task.is(&group.tasks[0]) => return false,
            _ => line.handles.pop_front(),
        };
        if let Some(claimed) = state.claim(handle, now_us) {
            group.tasks.push(claimed.task);
            group.indices.push(i64::from(claimed.tag));
        }
    }
    true
}

fn batch_of<'a, 'py>(py: Python<'py>, group: &'a BatchGroup) -> &'a Bound<'py, TaskBatch> {
    group.tasks[0].bind(py).cast().expect("only a batch is added with an index")
}

/// How many of the handles at the head of a line belong in one call: 1, or a group. For executors that claim later.
pub(crate) fn group_len(state: &State<TaskRef>, handles: &[Handle]) -> usize {
    let peek = |handle: &Handle| state.schedule.peek(*handle);
    match handles.first().and_then(peek) {
        Some((batch, tag)) if tag != NO_INDEX => {
            // One that was cancelled changes nothing.
            let belongs = |handle: &&Handle| peek(handle).is_none_or(|(task, tag)| tag != NO_INDEX && task.is(batch));
            handles.iter().take_while(belongs).count()
        }
        _ => 1,
    }
}

/// Runs a unit's callback, on a thread that is [`InsideCallback`] the timer. What it raises goes to `on_error` (T10); with
/// `propagate`, `KeyboardInterrupt` and `SystemExit` go to the caller instead.
pub(crate) fn call(py: Python<'_>, core: &Arc<TimerCore>, unit: &ClaimedCall, propagate: bool) -> PyResult<()> {
    let Some(_call) = ForeignCall::try_enter(py) else { return Ok(()) }; // dropped, as at exit all is that has not started
    let outer = callback_scope::set_propagates(propagate);
    let mut called = Called::default();
    let (task, result) = match &unit.what {
        CallTarget::Task(task, _) => (task.bind(py), call_task(task.bind(py), core, propagate, &mut called)),
        CallTarget::BatchGroup(group) => (group.tasks[0].bind(py), call_group(py, group, &mut called)),
    };
    let result = result.and_then(|returned| {
        let (callback, context) = (called.callback.as_ref(), called.context.as_ref());
        coroutine_tasks::run_or_close(core, task, callback, context, &returned)
    });
    callback_scope::set_propagates(outer);
    match result {
        Err(error) if propagate && callback_scope::is_exit(py, &error) => Err(error),
        Err(error) => {
            let failure = failures::failure_of(core, task, called.callback.as_ref(), error);
            report::report(py, &failure, propagate)
        }
        Ok(()) => Ok(()),
    }
}

/// What was called, which the task may have let go of.
#[derive(Default)]
struct Called {
    callback: Option<Py<PyAny>>,
    context: Option<Py<PyAny>>,
}

fn call_task<'py>(
    task: &Bound<'py, PyAny>,
    core: &Arc<TimerCore>,
    propagate: bool,
    called: &mut Called,
) -> PyResult<Bound<'py, PyAny>> {
    let py = task.py();
    let (run, context) = match task.cast::<TimerTask>() {
        Ok(task) => task.get().start(py),
        Err(_) => (DueCall::Method, None),
    };
    called.context = context;
    match run {
        DueCall::Callback(Some(callback), args) => {
            let callback = called.callback.insert(callback);
            callback_scope::call_in_context(
                called.context.as_ref(),
                callback.bind(py),
                args.as_ref().map(|args| args.bind(py)),
            )
        }
        // Straight from the claim, with the GIL never let go in between: no cancel finds it off the timer and open.
        DueCall::Expiry => {
            let origin = (Some(core), called.context.as_ref());
            operation::expire(task, origin, propagate, true).map(|()| py.None().into_bound(py))
        }
        DueCall::Method if called.context.is_some() => {
            callback_scope::call_in_context(called.context.as_ref(), &task.getattr(intern!(py, "run"))?, None)
        }
        _ => task.call_method0(intern!(py, "run")),
    }
}

fn call_group<'py>(py: Python<'py>, group: &BatchGroup, called: &mut Called) -> PyResult<Bound<'py, PyAny>> {
    // Only the garbage collector takes the callback away, from a batch that cannot be reached.
    let Some(callback) = &group.callback else { return Ok(py.None().into_bound(py)) };
    called.callback = Some(callback.clone_ref(py));
    called.context = group.context.as_ref().map(|context| context.clone_ref(py));
    let bytes: Vec<u8> = group.indices.iter().flat_map(|index| index.to_ne_bytes()).collect();
    let view = PyMemoryView::from(&PyBytes::new(py, &bytes))?.call_method1("cast", ("q",))?;
    callback_scope::call_in_context(called.context.as_ref(), callback.bind(py), Some(&PyTuple::new(py, [view])?))
}
