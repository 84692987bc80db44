//! The executor's thread: the only one of a timer with a Python thread state, and it keeps it (border rule 3).
//!
//! Attached while callbacks run, detached while it waits. By default it runs them itself; a foreign executor or loop is
//! fed from it: one `submit` per task, or one `call_soon_threadsafe` per batch (T8). Python starts it as a daemon thread,
//! so it has a name, shows up in debuggers and profilers, and is ended by the exit hook, not by `threading`.

use std::collections::VecDeque;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::border::{Own, attach};
use super::coroutines;
use super::exit;
use super::finalizing::ForeignCall;
use super::gil::GilCell;
use super::run::{self, Budget, Line, Turn};
use super::shared::{Inside, Shared};
use crate::executor::Released;
use crate::sync::{Receiver, TryRecvError, set_system_thread_name};
use crate::timer::STEP;
use crate::wheel::Handle;

/// Where callbacks run.
#[derive(Default)]
pub(super) enum Target {
    /// On the worker's own thread.
    #[default]
    Own,
    /// A `concurrent.futures.Executor` of threads.
    Pool(Py<PyAny>),
    /// An asyncio loop.
    Loop(Py<PyAny>),
}

impl Target {
    pub(super) fn from_python(executor: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(executor) = executor else { return Ok(Self::Own) };
        if let Ok(class) = executor.cast::<PyType>() {
            let class = class.name()?;
            return Err(PyTypeError::new_err(format!(
                "executor must be a concurrent.futures.Executor of threads or an asyncio loop, got the class {class}: make \
                 one, as in executor={class}()"
            )));
        }
        if executor.hasattr("call_soon_threadsafe")? {
            return Ok(Self::Loop(executor.clone().unbind()));
        }
        let refuse = |why: &str| {
            let given = executor.get_type().name().map_or_else(|_| String::new(), |name| name.to_string());
            PyTypeError::new_err(format!(
                "executor must be a concurrent.futures.Executor of threads or an asyncio loop, got {given}{why}: leave it \
                 out for a thread of the timer's own"
            ))
        };
        if !executor.hasattr("submit")? {
            return Err(refuse(""));
        }
        for (module, class, why) in [
            ("concurrent.futures.process", "ProcessPoolExecutor", ", which runs tasks in other processes"),
            ("concurrent.futures.interpreter", "InterpreterPoolExecutor", ", which runs tasks in other interpreters"),
        ] {
            if is_instance_of(executor, module, class)? {
                return Err(refuse(why));
            }
        }
        Ok(Self::Pool(executor.clone().unbind()))
    }

    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Own => Self::Own,
            Self::Pool(executor) => Self::Pool(executor.clone_ref(py)),
            Self::Loop(executor) => Self::Loop(executor.clone_ref(py)),
        }
    }

    /// The executor that the user gave.
    pub(super) fn object(&self) -> Option<&Py<PyAny>> {
        match self {
            Self::Own => None,
            Self::Pool(executor) | Self::Loop(executor) => Some(executor),
        }
    }

    /// The loop that callbacks run in.
    pub(super) fn event_loop(&self) -> Option<&Py<PyAny>> {
        if let Self::Loop(event_loop) = self { Some(event_loop) } else { None }
    }

    /// Whether callbacks run in a loop.
    pub(super) fn is_loop(&self) -> bool {
        self.event_loop().is_some()
    }

    /// Whether this thread runs the loop: waiting for its callbacks here would wait for ever.
    pub(super) fn is_loop_of_this_thread(&self, py: Python<'_>) -> PyResult<bool> {
        self.event_loop().map_or(Ok(false), |event_loop| coroutines::is_loop_of_this_thread(event_loop.bind(py)))
    }
}

/// Whether it is an instance of that class. The module is looked up, not imported: it was imported by what has an
/// instance.
fn is_instance_of(object: &Bound<'_, PyAny>, module: &str, class: &str) -> PyResult<bool> {
    let modules = object.py().import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    let module = modules.get_item(module)?;
    let class = module.map(|module| module.getattr_opt(class)).transpose()?.flatten();
    class.map_or(Ok(false), |class| object.is_instance(&class))
}

/// The thread's body, handed to `threading.Thread`.
#[pyclass(frozen, module = "tickwheel._native")]
pub(super) struct Worker(GilCell<Option<Body>>);

struct Body {
    id: u64,
    shared: Own<Shared>,
    queue: Receiver<Released>,
}

#[pymethods]
impl Worker {
    fn __call__(&self, py: Python<'_>) {
        let Some(Body { id, shared, mut queue }) = self.0.with(py, Option::take) else { return };
        let shared = shared.share();
        set_system_thread_name(&format!("exec-{}", shared.name));
        let inside = Inside::enter(&shared);
        if matches!(shared.callees.target(py), Target::Own) {
            run_here(py, &shared, &mut queue);
        } else {
            feed(py, &shared, &mut queue);
        }
        drop(inside);
        if shared.is_forked() {
            std::mem::forget((shared, queue)); // the parent's
            return;
        }
        py.detach(|| drop(queue)); // a sender may be at it
        // At exit the module may be gone already, and its lists with it.
        let _ = exit::leave(py, id);
    }
}

/// Starts the thread `executor-<name>`; Linux, which keeps 15 bytes, shows it as `exec-<name>`. After an error, call
/// [`undo`].
pub(super) fn start(py: Python<'_>, shared: &Arc<Shared>, queue: Receiver<Released>) -> PyResult<()> {
    let id = exit::new_id();
    let body = Body { id, shared: Own::new(Arc::clone(shared)), queue };
    let worker = Bound::new(py, Worker(GilCell::new(Some(body))))?;
    let options = PyDict::new(py);
    options.set_item("target", &worker)?;
    options.set_item("name", format!("executor-{}", shared.name))?;
    options.set_item("daemon", true)?;
    let thread = py.import("threading")?.getattr("Thread")?.call((), Some(&options))?;
    exit::register(py, id, shared, &thread)?;
    thread.call_method0("start").inspect_err(|_| {
        // Refused, or interrupted while it starts. Without its body it ends at once, if it begins later. If it has begun, it
        // leaves the list itself.
        if worker.get().0.with(py, Option::take).is_some() {
            exit::unregister(py, id);
        }
    })?;
    shared.threads.worker.with(py, |worker| *worker = Some(thread.unbind()));
    Ok(())
}

/// Ends the threads of a timer that could not be made, and waits for them.
pub(super) fn undo(py: Python<'_>, shared: &Shared) {
    shared.end_threads(py);
    if let Some(worker) = shared.threads.worker.with(py, Option::take)
        && let Err(error) = worker.call_method0(py, "join")
    {
        // Only an interrupt. The thread has nothing to do, and ends all the same.
        error.write_unraisable(py, Some(worker.bind(py)));
    }
}

fn run_here(py: Python<'_>, shared: &Arc<Shared>, queue: &mut Receiver<Released>) {
    let mut line = Line::default();
    let mut finished = 0;
    let mut turn = Turn::default();
    loop {
        if line.handles.is_empty() {
            let released = match queue.try_recv() {
                Ok(released) => Ok(released),
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    run::finish(py, shared, std::mem::take(&mut finished));
                    turn = Turn::default();
                    py.detach(|| queue.recv())
                }
            };
            let Ok(released) = released else { break };
            line.append(released);
            continue;
        }
        let unit = run::next_unit(py, shared, &mut line, Some(queue), std::mem::take(&mut finished));
        let Some(unit) = unit else { continue };
        finished = unit.len();
        let goes_on = turn.goes_on(unit.claimed_us);
        // Not propagated: nobody stands above this thread.
        let _ = run::run(py, shared, &unit, false);
        drop(unit);
        if shared.is_forked() {
            return; // the callback forked, and this is the child: what is left is the parent's
        }
        if !goes_on {
            py.detach(|| ());
            turn = Turn::default();
        }
    }
    run::finish(py, shared, finished);
}

fn feed(py: Python<'_>, shared: &Arc<Shared>, queue: &mut Receiver<Released>) {
    // A whole advance at a time, so that a group is not cut where a step of the reaper ended.
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
        // Asked for anew each time: a reference in this thread would keep a cycle through the executor alive.
        match &shared.callees.target(py) {
            Target::Loop(event_loop) => {
                submit(py, shared, event_loop, "call_soon_threadsafe", &handles, Some(event_loop));
            }
            Target::Pool(pool) => {
                let mut budget = Budget::new();
                for unit in split(py, shared, &handles) {
                    submit(py, shared, pool, "submit", unit, None);
                    if !budget.go_on() {
                        py.detach(|| ());
                        budget = Budget::new();
                    }
                }
            }
            Target::Own => {} // the timer has let go of its executor: all of these were taken out
        }
    }
}

/// Cuts a line into units without claiming them.
fn split<'a>(py: Python<'_>, shared: &Shared, handles: &'a [Handle]) -> Vec<&'a [Handle]> {
    let mut units = Vec::new();
    let mut rest = handles;
    while !rest.is_empty() {
        let state = shared.state(py);
        for _ in 0..STEP {
            if rest.is_empty() {
                break;
            }
            let (unit, after) = rest.split_at(run::unit_len(&state, rest));
            units.push(unit);
            rest = after;
        }
    }
    units
}

fn submit(
    py: Python<'_>,
    shared: &Arc<Shared>,
    executor: &Py<PyAny>,
    method: &str,
    handles: &[Handle],
    event_loop: Option<&Py<PyAny>>,
) {
    let due = Due {
        shared: Own::new(Arc::clone(shared)),
        line: GilCell::new(Line::of(handles.iter().copied())),
        event_loop: event_loop.map(|event_loop| event_loop.clone_ref(py)),
        has_backlog: GilCell::new(false),
    };
    let result = Bound::new(py, due).and_then(|due| {
        let result = executor.bind(py).call_method1(method, (&due,));
        if result.is_err() {
            drop(due.get().take(py));
        }
        result
    });
    if let Err(error) = result {
        shared.reject(py, handles, &error.to_string(), Some(&error));
    }
}

/// What a foreign executor is given: it claims when it is called. Dropped unrun, its tasks were rejected.
#[pyclass(frozen, module = "tickwheel._native")]
pub(super) struct Due {
    shared: Own<Shared>,
    line: GilCell<Line>,
    /// Where to go on when a turn of the loop has been long enough.
    event_loop: Option<Py<PyAny>>,
    /// It stands in the loop's line once more, for what its last turn left.
    has_backlog: GilCell<bool>,
}

impl Due {
    fn take(&self, py: Python<'_>) -> Line {
        self.line.with(py, std::mem::take)
    }
}

#[pymethods]
impl Due {
    fn __call__(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(()) };
        let shared = this.shared.share();
        shared.check_process(py)?;
        let line = this.take(py);
        let Some(event_loop) = &this.event_loop else { return run_line(py, &shared, line, None).0 };
        // What an earlier turn left is due before this, and behind it in the loop's own line: it goes there (T6).
        let goes_on = this.has_backlog.with(py, std::mem::take);
        let mut lines = shared.backlog.with(py, |backlog| {
            backlog.extend((!line.handles.is_empty()).then_some(line));
            if goes_on || backlog.len() == 1 { std::mem::take(backlog) } else { VecDeque::new() }
        });
        let mut budget = Budget::new();
        let mut result = Ok(());
        while let Some(line) = lines.pop_front() {
            let rest;
            (result, rest) = run_line(py, &shared, line, Some(&mut budget));
            let is_over = result.is_err() || !rest.handles.is_empty();
            if !rest.handles.is_empty() {
                lines.push_front(rest);
            }
            if is_over {
                break;
            }
        }
        if !lines.is_empty() && !shared.is_forked() {
            shared.backlog.with(py, |backlog| {
                lines.append(backlog);
                *backlog = lines;
            });
            this.has_backlog.with(py, |has_backlog| *has_backlog = true);
            let goes_on = event_loop.bind(py).call_method1("call_soon", (slf,));
            result = result.and(goes_on.map(drop));
        }
        result
    }

    /// A loop has it in its line, and it has the loop.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)
    }
}

/// Runs a line until it is empty, a callback raises what ends the program, or the budget is used up; returns the rest.
fn run_line(
    py: Python<'_>,
    shared: &Arc<Shared>,
    mut line: Line,
    mut budget: Option<&mut Budget>,
) -> (PyResult<()>, Line) {
    let in_loop = budget.is_some();
    let _inside = Inside::enter(shared);
    let mut result = Ok(());
    while !shared.is_forked()
        && let Some(unit) = run::next_unit(py, shared, &mut line, None, 0)
    {
        result = run::run(py, shared, &unit, in_loop);
        run::finish(py, shared, unit.len());
        if result.is_err() || !budget.as_mut().is_none_or(|budget| budget.go_on()) {
            break;
        }
    }
    (result, line)
}

impl Drop for Due {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            return;
        }
        attach(|py| {
            let Some(_call) = ForeignCall::try_enter(py) else { return };
            let mut lines = VecDeque::from([self.take(py)]);
            if self.has_backlog.with(py, |has_backlog| *has_backlog) {
                lines.extend(self.shared.backlog.with(py, std::mem::take));
            }
            let handles: Vec<_> = lines.into_iter().flat_map(|line| line.handles).collect();
            if !handles.is_empty() {
                self.shared.reject(py, &handles, "it dropped the task without running it", None);
            }
        });
    }
}
