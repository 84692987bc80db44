//! Runs released tasks: claims each one right before its callback, and holds the timer's lock only for the claim.
//!
//! Consecutive timers of one batch are one group and one call (T18). If another task is due in between, the group is
//! split. The callers bound how long they run callbacks, and then let other threads have the GIL (T8).

use std::hint::black_box;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyTuple};

use crate::core::timer_core::{NO_INDEX, TaskRef, TimerCore, index_of};
use crate::engine::coroutine_tasks;
use crate::engine::failure_details;
use crate::operations::operation;
use crate::scheduled::awaiting;
use crate::scheduled::batch::TaskBatch;
use crate::scheduled::periodic::PeriodicTask;
use crate::scheduled::task_leaving;
use crate::scheduled::task_object::{DueCall, TimerTask};
use crate::tools::finalizing::ForeignCall;
use crate::tools::made_once::intern;
use crate::values::callback_scope;
use crate::values::due_line::DueLine;
use crate::values::report_failure;
use tickwheel::internal::sync::Receiver;
use tickwheel::internal::{STEP, State};
use tickwheel::{Handle, Released, Ticket};

/// How many claims ahead the entries and the tasks are read.
const ENTRIES_AHEAD: usize = 8;
const TASKS_AHEAD: usize = 4;

/// Claimed: its callback must run now.
pub(crate) struct ClaimedCall {
    tasks: ClaimedTasks,
    pub(crate) claimed_us: u64,
}

enum ClaimedTasks {
    One(TaskRef, Handle),
    /// Timers of one batch.
    Group(BatchGroup),
}

/// Timers of one batch that expire together.
struct BatchGroup {
    /// A reference to the batch for each timer.
    tasks: Vec<TaskRef>,
    indices: Vec<i64>,
    /// Taken with the claim, since the batch drops it with its last timer.
    callback: Option<Py<PyAny>>,
    context: Option<Py<PyAny>>,
}

impl ClaimedCall {
    /// The number of claims.
    pub(crate) fn len(&self) -> usize {
        match &self.tasks {
            ClaimedTasks::One(..) => 1,
            ClaimedTasks::Group(group) => group.tasks.len(),
        }
    }
}

/// Counts `finished` claims as ended, and claims the next call of the line; `None` if the rest of the line was
/// cancelled. While the line is incomplete, more of it comes from `queue`.
pub(crate) fn claim_next(
    py: Python<'_>,
    core: &TimerCore,
    line: &mut DueLine,
    mut queue: Option<&mut Receiver<Released>>,
    finished: usize,
) -> Option<ClaimedCall> {
    let mut state = core.lock_unchecked(py);
    core.timer.finish_locked(&mut state, finished);
    let Some(mut call) = claim_first(py, &mut state, core, line) else {
        drop(state);
        core.callees.entries_ended(py, finished);
        return None;
    };
    if let ClaimedTasks::Group(group) = &mut call.tasks {
        while extend_group(&mut state, core, line, group) {
            drop(state);
            if line.tickets.is_empty() && line.more {
                match queue.as_deref_mut().and_then(|queue| py.detach(|| queue.recv()).ok()) {
                    Some(released) => line.append(released),
                    None => line.more = false,
                }
            }
            state = core.lock_unchecked(py);
        }
    }
    drop(state);
    core.callees.entries_ended(py, finished);
    match &mut call.tasks {
        ClaimedTasks::One(task, handle) => {
            if let Ok(task) = task.bind(py).cast::<TimerTask>() {
                task_leaving::note_claimed(task, core, *handle);
            }
        }
        ClaimedTasks::Group(group) => {
            let batch = batch_of(py, group).clone();
            (group.callback, group.context) = batch.get().callback(py);
            batch.get().note_left_timer(py, group.tasks.len());
        }
    }
    Some(call)
}

/// Counts `count` claims as ended. Does nothing in a child that a callback forked.
pub(crate) fn finish_claims(py: Python<'_>, core: &TimerCore, count: usize) {
    if count > 0 && !core.is_forked() {
        let mut state = core.lock_unchecked(py);
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
    while let Some(ticket) = line.tickets.pop_front() {
        look_ahead(py, state, line);
        let claimed_us = core.timer.clock().now_us();
        if let Some(claimed) = state.claim(ticket, claimed_us) {
            let tasks = match claimed.tag {
                NO_INDEX => ClaimedTasks::One(claimed.task, claimed.handle),
                tag => ClaimedTasks::Group(BatchGroup {
                    tasks: vec![claimed.task],
                    indices: vec![i64::from(index_of(tag))],
                    callback: None,
                    context: None,
                }),
            };
            return Some(ClaimedCall { tasks, claimed_us });
        }
    }
    None
}

/// Reads some memory that the next claims need, so the processor loads it while callbacks run. It reads the entry some
/// claims ahead, and the task at a smaller distance. Among a million tasks neither is in a cache, and waiting for them
/// took longer than all other work.
fn look_ahead(py: Python<'_>, state: &State<TaskRef>, line: &DueLine) {
    if let Some(ticket) = line.tickets.get(ENTRIES_AHEAD) {
        state.schedule.slab.prefetch_released(*ticket);
    }
    if let Some((task, ..)) = line.tickets.get(TASKS_AHEAD).and_then(|ticket| state.schedule.peek_released(*ticket)) {
        black_box(task.bind(py).get_type_ptr());
    }
}

/// Claims while the next entries belong to the same batch, at most [`STEP`] of them. Returns whether the group may
/// continue after that.
fn extend_group(state: &mut State<TaskRef>, core: &TimerCore, line: &mut DueLine, group: &mut BatchGroup) -> bool {
    let now_us = core.timer.clock().now_us();
    for _ in 0..STEP {
        let Some(ticket) = line.tickets.front().copied() else { return line.more };
        match state.schedule.peek_released(ticket) {
            Some((task, _, tag)) if tag == NO_INDEX || !task.is(&group.tasks[0]) => return false,
            _ => line.tickets.pop_front(),
        };
        if let Some(claimed) = state.claim(ticket, now_us) {
            group.tasks.push(claimed.task);
            group.indices.push(i64::from(index_of(claimed.tag)));
        }
    }
    true
}

fn batch_of<'a, 'py>(py: Python<'py>, group: &'a BatchGroup) -> &'a Bound<'py, TaskBatch> {
    group.tasks[0].bind(py).cast().expect("only a batch is added with an index")
}

/// How many tickets at the head of a line belong in one call: 1, or a group. For executors that claim later.
pub(crate) fn group_len(state: &State<TaskRef>, tickets: &[Ticket]) -> usize {
    let peek = |ticket: &Ticket| state.schedule.peek_released(*ticket);
    match tickets.first().and_then(peek) {
        Some((batch, _, tag)) if tag != NO_INDEX => {
            // A cancelled timer does not split the group.
            let belongs =
                |ticket: &&Ticket| peek(ticket).is_none_or(|(task, _, tag)| tag != NO_INDEX && task.is(batch));
            tickets.iter().take_while(belongs).count()
        }
        _ => 1,
    }
}

/// Calls the callback, on a thread that is inside an `InsideCallback` of the timer. What it raises goes to `on_error`
/// (T10). With `propagate`, `KeyboardInterrupt` and `SystemExit` go to the caller instead.
pub(crate) fn call(py: Python<'_>, core: &Arc<TimerCore>, claimed: &ClaimedCall, propagate: bool) -> PyResult<()> {
    let Some(_call) = ForeignCall::try_enter(py) else { return Ok(()) }; // at exit, calls that have not started are dropped
    let outer = callback_scope::set_propagates(propagate);
    let mut called = Called::default();
    let (task, result) = match &claimed.tasks {
        ClaimedTasks::One(task, _) => (task.bind(py), call_task(task.bind(py), core, propagate, &mut called)),
        ClaimedTasks::Group(group) => (group.tasks[0].bind(py), call_group(py, group, &mut called)),
    };
    let result = result.and_then(|returned| {
        let (callback, context) = (called.callback.as_ref(), called.context.as_ref());
        coroutine_tasks::run_or_close(core, task, callback, context, &returned)
    });
    callback_scope::set_propagates(outer);
    let is_started = result.as_ref().is_ok_and(|is_started| *is_started);
    if called.is_periodic && !is_started {
        PeriodicTask::go_on(task.cast().expect(IS_PERIODIC));
    }
    let reported = match result {
        Err(error) if propagate && callback_scope::is_exit(py, &error) => Err(error),
        Err(error) => {
            let callback = called.callback.as_ref().map(|callback| callback.clone_ref(py));
            let one_shot = task.cast::<TimerTask>().ok().filter(|task| {
                let call = (called.callback.take(), called.args.take());
                task.get().give_back_call(py, call)
            });
            let failure = failure_details::failure_of(core, task, callback.as_ref(), error);
            let reported = report_failure::report(py, &failure, propagate);
            if let Some(task) = one_shot {
                drop(task.get().take_ended_call(py));
            }
            reported
        }
        Ok(_) => Ok(()),
    };
    if !is_started && let Ok(task) = task.cast::<TimerTask>() {
        awaiting::call_ended(task);
    }
    reported
}

/// What was called. The task may have dropped it.
#[derive(Default)]
struct Called {
    callback: Option<Py<PyAny>>,
    args: Option<Py<PyTuple>>,
    context: Option<Py<PyAny>>,
    is_periodic: bool,
}

const IS_PERIODIC: &str = "only a periodic task has this kind";

fn call_task<'py>(
    task: &Bound<'py, PyAny>,
    core: &Arc<TimerCore>,
    propagate: bool,
    called: &mut Called,
) -> PyResult<Bound<'py, PyAny>> {
    let py = task.py();
    let (run, context) = match task.cast::<TimerTask>() {
        Ok(task) => task.get().take_due_call(py),
        Err(_) => (DueCall::Method, None),
    };
    called.context = context;
    match run {
        DueCall::Callback(Some(callback), args) => {
            let callback = called.callback.insert(callback);
            called.args = args;
            callback_scope::call_in_context(
                called.context.as_ref(),
                callback.bind(py),
                called.args.as_ref().map(|args| args.bind(py)),
            )
        }
        // Right after the claim, and the GIL was not released in between: no cancel finds the operation off the timer
        // and open.
        DueCall::Expiry => {
            let origin = (Some(core), called.context.as_ref());
            operation::expire(task, origin, propagate, true).map(|()| py.None().into_bound(py))
        }
        DueCall::Periodic => {
            let series = task.cast().expect(IS_PERIODIC);
            let begins = PeriodicTask::begin(series.get(), py);
            called.is_periodic = begins.is_some();
            if begins != Some(true) {
                return Ok(py.None().into_bound(py));
            }
            called.callback = series.as_super().get().callback(py);
            PeriodicTask::call(series, called.context.as_ref())
        }
        DueCall::Method if called.context.is_some() => {
            callback_scope::call_in_context(called.context.as_ref(), &task.getattr(intern!(py, "run"))?, None)
        }
        _ => task.call_method0(intern!(py, "run")),
    }
}

fn call_group<'py>(py: Python<'py>, group: &BatchGroup, called: &mut Called) -> PyResult<Bound<'py, PyAny>> {
    // The callback is missing only if the garbage collector took it, from a batch that is not reachable.
    let Some(callback) = &group.callback else { return Ok(py.None().into_bound(py)) };
    called.callback = Some(callback.clone_ref(py));
    called.context = group.context.as_ref().map(|context| context.clone_ref(py));
    let bytes: Vec<u8> = group.indices.iter().flat_map(|index| index.to_ne_bytes()).collect();
    let view = PyMemoryView::from(&PyBytes::new(py, &bytes))?.call_method1("cast", ("q",))?;
    callback_scope::call_in_context(called.context.as_ref(), callback.bind(py), Some(&PyTuple::new(py, [view])?))
}
