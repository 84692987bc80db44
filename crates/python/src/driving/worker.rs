//! The thread of the executor: the only thread of a timer with a Python thread state, which it keeps (border rule 3).
//!
//! It holds the GIL while callbacks run and releases it while it waits. By default it runs the callbacks itself;
//! otherwise it passes them to the executor of the user. Python starts it as a daemon thread. So it has a name and is
//! visible in debuggers and profilers, and the exit hook ends it, not `threading`. In a program that gevent or eventlet
//! has patched it is a thread of the system all the same (T12).

use std::sync::Arc;

use pyo3::prelude::*;

use crate::core::inside_callback::InsideCallback;
use crate::core::timer_core::{Driver, TimerCore};
use crate::driving::budget::Budget;
use crate::driving::foreign_executor;
use crate::engine::at_exit;
use crate::engine::dispatch;
use crate::tools::fork::ProcessOwned;
use crate::tools::gil_cell::GilCell;
use crate::values::callback_target::CallbackTarget;
use crate::values::due_line::DueLine;
use tickwheel::Released;
use tickwheel::internal::Waiting;
use tickwheel::internal::sync::{Receiver, TryRecvError, set_system_thread_name};

/// The body of the thread, called by `threading.Thread`.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct Worker(GilCell<Option<WorkerParts>>);

struct WorkerParts {
    id: u64,
    core: ProcessOwned<TimerCore>,
    queue: Receiver<Released>,
}

#[pymethods]
impl Worker {
    fn __call__(&self, py: Python<'_>) {
        let Some(WorkerParts { id, core, mut queue }) = self.0.with(py, Option::take) else { return };
        let core = core.clone_arc();
        set_system_thread_name(&format!("exec-{}", core.name));
        let inside = InsideCallback::enter(&core);
        if matches!(core.callees.target(py), CallbackTarget::OwnThread) {
            run_callbacks(py, &core, &mut queue);
        } else {
            foreign_executor::feed_executor(py, &core, &mut queue);
        }
        drop(inside);
        if core.is_forked() {
            std::mem::forget((core, queue)); // they belong to the parent
            return;
        }
        py.detach(|| drop(queue)); // a sender may use it at the same time
        // At exit the module may be gone already, and its lists with it.
        let _ = at_exit::thread_ends(py, id);
    }
}

/// Starts the thread `executor-<name>`. Linux keeps 15 bytes of a name and shows it as `exec-<name>`. After an error,
/// call [`stop_and_join`].
pub(crate) fn start(py: Python<'_>, core: &Arc<TimerCore>, queue: Receiver<Released>) -> PyResult<()> {
    let id = at_exit::new_timer_id();
    let body = WorkerParts { id, core: ProcessOwned::new(Arc::clone(core)), queue };
    let worker = Bound::new(py, Worker(GilCell::new(Some(body))))?;
    let make_thread = py.import("tickwheel._system_threads")?.getattr("make_thread")?;
    let thread = make_thread.call1((&worker, format!("executor-{}", core.name)))?;
    at_exit::register(py, id, core, &thread)?;
    thread.call_method0("start").inspect_err(|_| {
        // The thread was refused, or the start was interrupted. Without its body it ends at once if it starts later. If
        // it has started, it leaves the list itself.
        if worker.get().0.with(py, Option::take).is_some() {
            at_exit::unregister(py, id);
        }
    })?;
    core.threads.worker.with(py, |worker| *worker = Some(thread.unbind()));
    Ok(())
}

/// Ends the threads of a timer whose `__init__` failed, and waits for them.
pub(crate) fn stop_and_join(py: Python<'_>, core: &TimerCore) {
    core.end_threads(py);
    if let Some(worker) = core.threads.worker.with(py, Option::take)
        && let Err(error) = worker.call_method0(py, "join")
    {
        // Only an interrupt. The thread has nothing to do, so it ends without the join too.
        error.write_unraisable(py, Some(worker.bind(py)));
    }
}

fn run_callbacks(py: Python<'_>, core: &Arc<TimerCore>, queue: &mut Receiver<Released>) {
    let native = core.timer.for_detached_thread();
    let leading = (core.driver == Driver::Reaper).then(|| Waiting::new(&native, &core.threads.queue));
    let mut line = DueLine::default();
    let mut finished = 0;
    let mut budget = Budget::default();
    loop {
        if line.tickets.is_empty() {
            let released = match queue.try_recv() {
                Ok(released) => Some(released),
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    dispatch::finish_claims(py, core, std::mem::take(&mut finished));
                    budget = Budget::default();
                    py.detach(|| match &leading {
                        Some(waiting) => waiting.next(queue),
                        None => queue.recv().ok(),
                    })
                }
            };
            let Some(released) = released else { break };
            line.append(released);
            continue;
        }
        let call = dispatch::claim_next(py, core, &mut line, Some(queue), std::mem::take(&mut finished));
        let Some(call) = call else { continue };
        finished = call.len();
        let may_continue = budget.count(call.claimed_us);
        // Not propagated: this thread has no caller.
        let _ = dispatch::call(py, core, &call, false);
        drop(call);
        if core.is_forked() {
            return; // the callback forked, and this is the child: the remaining tasks belong to the parent
        }
        if !may_continue {
            py.detach(|| ());
            budget = Budget::default();
        }
    }
    dispatch::finish_claims(py, core, finished);
}
