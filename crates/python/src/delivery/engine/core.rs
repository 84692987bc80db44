//! A running engine of one process, from its start to its end, without a Python object.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::delivery::calls::callees::Callees;
use crate::delivery::calls::failures;
use crate::delivery::engine::sqlite_at_fork::SqliteInUse;
use crate::delivery::values::receipts::{Receipts, is_thread_of};
use crate::tools::finalizing::{self, ForeignCall};
use crate::tools::fork::{BelongsToProcess, ProcessOwned, fork_epoch};
use crate::tools::native_lock::SIGNAL_CHECK_US;
use tickwheel::internal::sync::{PlainCondvar, PlainMutex, spawn};
use tickwheel_delivery::DeliveryError;
use tickwheel_delivery::internal::{Running, is_open_here, store_is_open};

/// The end of the interpreter waits `EXIT_WITHIN` for a hanging sink, and `COMMIT_WITHIN` for the last commit.
pub(crate) const EXIT_WITHIN: Duration = Duration::from_secs(2);
const COMMIT_WITHIN: Duration = Duration::from_secs(10);

/// A running engine. [`Core::close`] closes it, at the latest at the end of the interpreter.
pub(crate) struct Core {
    epoch: u32,
    pub(crate) id: u64,
    pub(crate) running: Running,
    pub(crate) receipts: Receipts,
    callees: Callees,
    /// Device and inode of the store.
    store: Option<(u64, u64)>,
    /// Whether the engine was started, or took anything. If not, a store that was created for it is removed.
    pub(crate) is_used: Arc<AtomicBool>,
    /// Present until the store is closed.
    in_use: PlainMutex<Option<SqliteInUse>>,
    is_closing: AtomicBool,
    /// Whether a call of `close` has returned the result.
    is_told: AtomicBool,
    /// The result of the end, once it is over.
    ended: PlainMutex<Option<Result<(), DeliveryError>>>,
    has_ended: PlainCondvar,
}

impl BelongsToProcess for Core {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

impl Core {
    pub(crate) fn new(
        path: &Path,
        running: Running,
        receipts: Receipts,
        callees: Callees,
        is_used: Arc<AtomicBool>,
        in_use: SqliteInUse,
    ) -> Self {
        Self {
            epoch: fork_epoch(),
            id: callees.engine(),
            running,
            receipts,
            callees,
            store: file_at(path),
            is_used,
            in_use: PlainMutex::new(Some(in_use)),
            is_closing: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
            ended: PlainMutex::new(None),
            has_ended: PlainCondvar::default(),
        }
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.epoch != fork_epoch()
    }

    /// Errors: `WrongUsage` in a forked child.
    pub(crate) fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_forked() {
            let text = "this queue belongs to the parent process, and its threads did not survive the fork: start \
                        processes with spawn or forkserver, and open another store there";
            return Err(failures::wrong_usage(py, text));
        }
        Ok(())
    }

    /// Called in a forked child: the store is free once the parent has ended. It takes no lock that a thread of the
    /// parent may hold.
    pub(crate) fn forget_in_child(&self) {
        if self.is_forked() {
            self.running.engine().forget_in_child();
        }
    }

    /// Ends the engine in another thread, and waits for the end. A further call waits too, and its time-out can shorten
    /// the wait for hanging sends. The error, if there is one, is raised in one of the calls.
    pub(crate) fn close(self: &Arc<Self>, py: Python<'_>, timeout: Option<Duration>) -> PyResult<()> {
        self.check_process(py)?;
        if is_thread_of(self.id) {
            let text =
                "a queue can't be closed in one of its own threads: let the function return, and close it outside";
            return Err(PyRuntimeError::new_err(text));
        }
        self.begin_end(py, timeout);
        let ended = self.wait_for_end(py, None)?;
        self.callees.forget(py);
        if self.is_told.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        unlist(py, self.id);
        ended.unwrap_or(Ok(())).map_err(|error| failures::to_python(py, &error))
    }

    /// Ends the engine in another thread, so that a signal's handler can run meanwhile. If the system gives no thread,
    /// ends it in this thread. If the engine is ending already, hanging sends are given up after `timeout`.
    fn begin_end(self: &Arc<Self>, py: Python<'_>, timeout: Option<Duration>) {
        if self.is_closing.swap(true, Ordering::SeqCst) {
            if let Some(timeout) = timeout {
                py.detach(|| self.running.hurry(timeout));
            }
            return;
        }
        let core = self.clone();
        if spawn("closer-deliver", move || core.end(timeout)).is_err() {
            py.detach(|| self.end(timeout));
        }
    }

    fn end(&self, timeout: Option<Duration>) {
        let closed = self.running.close(timeout);
        self.receipts.end(timeout);
        drop(self.in_use.lock().take());
        *self.ended.lock() = Some(closed.map(drop));
        self.has_ended.notify_all();
    }

    /// Errors: an exception of a signal's handler. The end continues then.
    fn wait_for_end(&self, py: Python<'_>, until: Option<Instant>) -> PyResult<Option<Result<(), DeliveryError>>> {
        loop {
            let ended = py.detach(|| {
                let ended = self.ended.lock();
                if ended.is_some() {
                    return ended.clone();
                }
                self.has_ended.wait_timeout(ended, Duration::from_micros(SIGNAL_CHECK_US)).clone()
            });
            if ended.is_some() || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(ended);
            }
            py.check_signals()?;
        }
    }

    /// Whether nothing waits any more, within `timeout`. Takes the GIL only to look for signals.
    pub(crate) fn wait_until_empty(&self, py: Python<'_>, timeout: Duration) -> PyResult<bool> {
        let end = Instant::now().checked_add(timeout);
        loop {
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            let slice = left.min(Duration::from_micros(SIGNAL_CHECK_US));
            let is_empty = py.detach(|| self.running.wait_until_empty(slice));
            if is_empty.map_err(|error| failures::to_python(py, &error))? {
                return Ok(true);
            }
            if left <= slice {
                return Ok(false);
            }
            py.check_signals()?;
        }
    }
}

/// An engine that was not closed yet.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct RunningDelivery(ProcessOwned<Core>);

fn listed(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    Ok(py.import("tickwheel._native")?.getattr("_running_deliveries")?.cast_into()?)
}

/// Whether the exit hook has begun. An engine opened after it would never be closed.
static IS_EXITING: AtomicBool = AtomicBool::new(false);

/// How many engines the threads of this process are opening.
static OPENING: AtomicUsize = AtomicUsize::new(0);

/// Counts an engine that a thread opens, until the engine is listed or closed again: the exit hook waits for it.
pub(crate) struct Opening {
    epoch: u32,
}

impl Opening {
    /// Errors: `RuntimeError` at the end of the interpreter.
    pub(crate) fn begin(_py: Python<'_>) -> PyResult<Self> {
        check_not_exiting()?; // with the GIL, which the hook has too: so one of the two sees the other
        OPENING.fetch_add(1, Ordering::SeqCst);
        Ok(Self { epoch: fork_epoch() })
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if self.epoch == fork_epoch() {
            OPENING.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Errors: `RuntimeError` at the end of the interpreter.
pub(crate) fn check_not_exiting() -> PyResult<()> {
    if IS_EXITING.load(Ordering::SeqCst) {
        return Err(PyRuntimeError::new_err("the interpreter is exiting: no queue can be opened any more"));
    }
    Ok(())
}

/// Lists the engine, so that the end of the interpreter closes it.
pub(crate) fn list(py: Python<'_>, core: &Arc<Core>) -> PyResult<()> {
    let entry = RunningDelivery(ProcessOwned::new(core.clone()));
    listed(py)?.set_item(core.id, Py::new(py, entry)?)
}

fn file_at(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|it| (it.dev(), it.ino()))
}

/// The use of a store in this process.
#[derive(PartialEq, Eq)]
pub(crate) enum UseHere {
    /// Not in use here. Another process may use it.
    None,
    /// An engine has it open, and no thread is closing the engine.
    Open,
    /// A thread is opening or closing an engine on it.
    Passing,
}

/// Looks at the engines of this process.
pub(crate) fn use_here(py: Python<'_>, path: &Path) -> PyResult<UseHere> {
    if !is_open_here(path) {
        return Ok(UseHere::None);
    }
    let file = file_at(path);
    for entry in listed(py)?.copy()?.values() {
        let entry = entry.cast_into::<RunningDelivery>()?;
        let core = &entry.get().0;
        if core.store == file && !core.is_forked() && !core.is_closing.load(Ordering::SeqCst) {
            return Ok(UseHere::Open);
        }
    }
    Ok(UseHere::Passing)
}

fn unlist(py: Python<'_>, id: u64) {
    let _ = listed(py).and_then(|listed| listed.del_item(id));
}

/// Refuses a file that is an open store of this process. Another SQLite library in this process, or a closed descriptor
/// of the file, would drop the engine's locks.
///
/// Errors: `WrongUsage`.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts it")]
pub(crate) fn refuse_open_store(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    if is_open_here(&path) { Err(failures::wrong_usage(py, &store_is_open(&path))) } else { Ok(()) }
}

/// The exit hook: ends every engine that is open. It is called before the one of the timers.
#[pyfunction]
pub(crate) fn _close_deliveries_at_exit(py: Python<'_>) -> PyResult<()> {
    let Some(_call) = ForeignCall::try_enter(py) else { return Ok(()) };
    IS_EXITING.store(true, Ordering::SeqCst);
    let mut open = Vec::new();
    for entry in listed(py)?.copy()?.values() {
        let core = entry.cast_into::<RunningDelivery>()?.get().0.clone_arc();
        if core.is_forked() {
            std::mem::forget(core);
            continue;
        }
        core.begin_end(py, Some(EXIT_WITHIN));
        open.push(core);
    }
    let (began, mut waited) = (Instant::now(), Ok(()));
    for core in open {
        waited = waited.and_then(|()| core.wait_for_end(py, Some(began + COMMIT_WITHIN)).map(drop));
    }
    if waited.is_ok() {
        py.detach(|| {
            while OPENING.load(Ordering::SeqCst) > 0 && began.elapsed() < 2 * EXIT_WITHIN {
                std::thread::park_timeout(Duration::from_millis(1));
            }
        });
    }
    // A call that has not ended now hangs and was waited for, or a signal's handler ended the wait.
    finalizing::give_up_sinks();
    waited
}

/// In a forked child, for every engine of the parent.
#[pyfunction]
pub(crate) fn _forget_deliveries_in_child(py: Python<'_>) -> PyResult<()> {
    OPENING.store(0, Ordering::SeqCst);
    for entry in listed(py)?.copy()?.values() {
        entry.cast_into::<RunningDelivery>()?.get().0.forget_in_child();
    }
    Ok(())
}
