//! `EngineMeasures`: what an engine has measured of its own work, at one moment; and its counts.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use tickwheel_delivery::Summary;
use tickwheel_delivery::internal::{BOUNDS_US, CAUSES, Histogram, Running};

/// A dict with these fields of a value, each by its own name or as another one.
macro_rules! fields {
    ($py:expr, $it:expr, $($name:ident $(: $key:literal)?)*) => {{
        let fields = pyo3::types::PyDict::new($py);
        $(fields.set_item([$($key,)? stringify!($name)][0], $it.$name)?;)*
        fields
    }};
}
pub(crate) use fields;

/// The counts, by the names of the Python class `Summary`.
pub(crate) fn counts_to_python<'py>(py: Python<'py>, it: &Summary) -> PyResult<Bound<'py, PyDict>> {
    Ok(fields!(
        py,
        it,
        resumed accepted delivered duplicates cancelled dead_letters undeliverable expired requeued rescheduled
        reschedules_too_late cancels_too_late cancels_unknown conflicts events let_go
    ))
}

/// The upper bounds in microseconds, a count for each bound, and the sum in microseconds. A count has the values up to
/// its bound and above the bound before; one more count has the rest.
type Buckets = (Vec<i64>, Vec<u64>, i64);

/// The measurements of an engine since it was opened. The figures about waiting messages are of this moment.
#[pyclass(frozen, get_all, module = "tickwheel._native")]
pub(crate) struct EngineMeasures {
    attempts: u64,
    /// By their causes.
    failures: Vec<(&'static str, u64)>,
    redelivered: u64,
    cut_off_sends: u64,
    hanging_senders: usize,
    lateness: Buckets,
    send_durations: Buckets,
    commit_durations: Buckets,
    last_commit_ms: i64,
    /// For how long a group has been on its way to the disk.
    commit_running_us: u64,
    /// Since when the store's own destination is up, or down; `None`: each message names one.
    destination_changed_ms: Option<i64>,
    /// Messages without an outcome, by their states.
    states: Vec<(&'static str, u64)>,
    /// Keys whose next message is due and waits, by what for.
    blocked_keys: Vec<(&'static str, u64)>,
    /// Keys whose last send was not accepted, or was slow.
    keys_in_doubt: usize,
    /// Spare places that are taken, and all of them.
    spare_places: (usize, usize),
}

impl EngineMeasures {
    pub(crate) fn of(running: &Running) -> Self {
        let engine = running.engine();
        let (memory, recurring) = (engine.states(), engine.recurring_count());
        let waiting = engine.open_count().saturating_sub(recurring);
        let (sends, commits) = (engine.sends(), engine.commits());
        let (keys_in_doubt, spare_taken) = engine.doubts();
        Self {
            attempts: sends.attempts,
            failures: CAUSES.into_iter().zip(sends.failures).collect(),
            redelivered: sends.redelivered,
            cut_off_sends: sends.cut_off,
            hanging_senders: running.hanging_senders(),
            lateness: buckets(&commits.lateness),
            send_durations: buckets(&sends.durations),
            commit_durations: buckets(&commits.durations),
            last_commit_ms: commits.last_ms,
            commit_running_us: engine.commit_running_us(),
            destination_changed_ms: sends.changed_us.map(|us| engine.epoch_ms(us)),
            states: vec![
                ("waiting", waiting.saturating_sub(memory.messages())),
                ("near", memory.near),
                ("due", memory.due),
                ("in_flight", memory.in_flight),
                ("retrying", memory.retrying),
                ("recurring", recurring),
            ],
            blocked_keys: vec![
                ("send", memory.behind_send),
                ("retry", memory.behind_retry),
                ("commit", memory.behind_commit),
            ],
            keys_in_doubt,
            spare_places: (spare_taken, engine.places().spare),
        }
    }
}

fn buckets(histogram: &Histogram) -> Buckets {
    (BOUNDS_US.to_vec(), histogram.counts.to_vec(), histogram.sum_us)
}
