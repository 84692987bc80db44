//! Functions with which an operator maintains a store (D20). Each waits without the GIL, and reacts to signals.

#![expect(clippy::needless_pass_by_value, reason = "pyo3 extracts them")]

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

use crate::delivery::calls::failures;
use crate::delivery::engine::sqlite_at_fork::SqliteInUse;
use tickwheel_delivery::internal::{self, Stop, SystemWallTime, WallTime, backup, check, compact, owners_of, restore};
use tickwheel_delivery::{DeliveryError, Replicate};

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Messages, those without an outcome, and a line for each problem.
type Checked = (u64, u64, Vec<String>);

fn checked(found: internal::Checked) -> Checked {
    (found.messages, found.open, found.problems)
}

#[pyfunction]
pub(crate) fn check_store(py: Python<'_>, path: PathBuf) -> PyResult<Checked> {
    run(py, |stop| check(&path, stop)).map(checked)
}

/// Bytes before and after.
#[pyfunction]
pub(crate) fn compact_store(py: Python<'_>, path: PathBuf) -> PyResult<(u64, u64)> {
    run(py, |stop| compact(&path, stop)).map(|sizes| (sizes.before, sizes.after))
}

#[pyfunction]
pub(crate) fn backup_store(py: Python<'_>, path: PathBuf, to: PathBuf) -> PyResult<Checked> {
    run(py, |stop| backup(&path, &to, now_ms(), stop)).map(checked)
}

/// Returns the place of the store that was replaced.
#[pyfunction]
pub(crate) fn restore_store(
    py: Python<'_>,
    backup: PathBuf,
    store: PathBuf,
    is_forced: bool,
) -> PyResult<Option<PathBuf>> {
    run(py, |stop| restore(&backup, &store, is_forced, now_ms(), stop))
}

/// Makes a file of what the chain has.
#[pyfunction]
pub(crate) fn restore_replicated(py: Python<'_>, address: &str, store: PathBuf) -> PyResult<()> {
    run(py, |stop| stoppable(address, stop)?.restore(&store))
}

/// Ends the chain, and leaves the file alone.
#[pyfunction]
pub(crate) fn leave_replication(py: Python<'_>, store: PathBuf, address: &str) -> PyResult<()> {
    run(py, |stop| {
        let left = stoppable(address, stop)?.leave(&store);
        let is_owned = matches!(left, Err(DeliveryError::Closed)) && !stop.is_asked();
        let text = "another process owns the store: stop it first, with its standbys".to_owned();
        if is_owned { Err(DeliveryError::Usage(text)) } else { left }
    })
}

/// Statements of SQL that make the tables.
#[pyfunction]
pub(crate) fn replication_script() -> &'static str {
    Replicate::script()
}

fn stoppable(address: &str, stop: &Arc<Stop>) -> Result<Replicate, DeliveryError> {
    let stop = stop.clone();
    Ok(Replicate::to(address)?.while_opening(move |_| !stop.is_asked()))
}

/// Whether a process works with the store, and its number; `None` where the system does not tell.
#[pyfunction]
pub(crate) fn store_owner(py: Python<'_>, path: PathBuf) -> Option<(bool, Option<u32>)> {
    py.detach(|| owners_of(&path)).map(|owners| (!owners.is_empty(), owners.first().copied()))
}

fn now_ms() -> i64 {
    SystemWallTime.now_us() / 1000
}

/// Runs the work in another thread. Errors: also an exception of a signal's handler, once the work has ended.
fn run<T: Send>(py: Python<'_>, work: impl FnOnce(&Arc<Stop>) -> Result<T, DeliveryError> + Send) -> PyResult<T> {
    let in_use = SqliteInUse::begin(py)?;
    let stop = Arc::new(Stop::default());
    let mut raised = None;
    let done = thread::scope(|scope| {
        let begun = thread::Builder::new().name("store-maintenance".to_owned()).spawn_scoped(scope, || work(&stop));
        let worker = begun.map_err(|error| DeliveryError::no_thread(&error))?;
        while !py.detach(|| {
            thread::park_timeout(LOOK_EVERY);
            worker.is_finished()
        }) {
            raised = raised.take().or_else(|| py.check_signals().err());
            if raised.is_some() {
                stop.ask();
            }
        }
        worker.join().unwrap_or_else(|_| Err(DeliveryError::Failed("it panicked: report it".to_owned())))
    });
    drop(in_use);
    match raised {
        Some(raised) => Err(raised),
        None => done.map_err(|error| failures::to_python(py, &error)),
    }
}
