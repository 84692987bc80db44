//! `OutcomeReader`: the outcomes of messages after their commit, for an event loop to read (rule D8).

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::delivery::calls::failures;
use crate::delivery::calls::loop_signal::LoopSignal;
use crate::tools::fork::fork_epoch;
use tickwheel_delivery::internal::{Ended, OutcomeFeed};

/// Reads what became of messages. While there is something to read, or all is over, its descriptor is readable.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct OutcomeReader {
    epoch: u32,
    feed: Arc<OutcomeFeed>,
    signal: Arc<LoopSignal>,
}

impl OutcomeReader {
    /// Errors: `DeliveryFailed` where the system gives no descriptor.
    pub(crate) fn new(py: Python<'_>) -> PyResult<Self> {
        let signal = Arc::new(LoopSignal::new().map_err(|error| failures::no_descriptor(py, &error))?);
        let to_wake = signal.clone();
        let feed = Arc::new(OutcomeFeed::new(move || to_wake.raise()));
        Ok(Self { epoch: fork_epoch(), feed, signal })
    }

    pub(crate) fn feed(&self) -> &Arc<OutcomeFeed> {
        &self.feed
    }
}

#[pymethods]
impl OutcomeReader {
    /// The descriptor that the loop watches for reading.
    fn fileno(&self) -> i32 {
        self.signal.fd()
    }

    /// The next ones, at most so many: how many were lost before them, the outcomes, and whether no more will come. Empty in a
    /// forked child.
    fn read<'py>(&self, py: Python<'py>, most: usize) -> PyResult<(u64, Vec<Bound<'py, PyTuple>>, bool)> {
        if self.epoch != fork_epoch() {
            return Ok((0, Vec::new(), true));
        }
        self.signal.clear();
        let read = py.detach(|| self.feed.read(most));
        if read.has_more {
            self.signal.raise();
        }
        let outcomes = read.outcomes.iter().map(|it| to_python(py, it)).collect::<PyResult<Vec<_>>>()?;
        Ok((read.missed, outcomes, read.is_over))
    }
}

/// Id, key, when it was due, the number of the outcome, when it ended, lateness in us, attempts, whether it may be a repeat, why.
fn to_python<'py>(py: Python<'py>, it: &Ended) -> PyResult<Bound<'py, PyTuple>> {
    let (id, key, reason, outcome) = (&*it.id, it.key.as_deref(), it.reason.as_deref(), it.outcome as i64);
    (id, key, it.due_ms, outcome, it.at_ms, it.lateness_us, it.attempts, it.redelivered, reason).into_pyobject(py)
}
