//! What users can read of a timer (T14): snapshot, pending tasks and statistics, as plain data.
//!
//! Under the lock only references are taken. Names and dictionaries are made after it (border rule 1).

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::core::timer_core::{NO_INDEX, TaskRef, TimerCore, index_of};
use crate::scheduled::task_object::TimerTask;
use crate::tools::describe::set_items;
use crate::tools::made_once::MadeOnce;
use tickwheel::internal::STEP;
use tickwheel::{Occupancy, Pending, Seen, Snapshot, Timer as Native};

/// Answers percentiles.
static HISTOGRAM: MadeOnce<Py<PyAny>> = MadeOnce::new();

pub(crate) fn snapshot<'py>(py: Python<'py>, core: &TimerCore) -> PyResult<Bound<'py, PyDict>> {
    core.check_process(py)?;
    let Snapshot { levels, queue, front, .. } = core.detach(py, Native::snapshot);
    let mut size = 0;
    let mut pace = Pace::default();
    let mut shown_names = |tasks: &[Seen]| -> PyResult<Vec<Bound<'py, PyAny>>> {
        // One that was released or taken off meanwhile is missing.
        let found: Vec<_> = {
            let state = core.lock_unchecked(py);
            let peek = |seen: &Seen| state.schedule.peek_pending(seen.handle);
            let find = |seen: &Seen| peek(seen).map(|(task, .., tag)| (task.clone_ref(py), tag));
            tasks.iter().filter_map(find).collect()
        };
        let mut names = Vec::new();
        for (task, tag) in found {
            size += 1;
            pace.count(py);
            names.push(match task.bind(py).cast::<TimerTask>() {
                Ok(task) if tag == NO_INDEX => TimerTask::shown_name(task)?.into_bound(py),
                _ => as_listed(py, &task, tag)?,
            });
        }
        Ok(names)
    };
    let shown_levels = PyList::empty(py);
    for level in levels {
        let buckets = PyList::empty(py);
        for bucket in level.buckets {
            let tasks = PyList::empty(py);
            for step in bucket.tasks.chunks(STEP) {
                for name in shown_names(step)? {
                    tasks.append(name)?;
                }
            }
            let expiration_ms = bucket.expiration_ms.map_or(-1, u64::cast_signed);
            let dict = PyDict::new(py);
            set_items!(dict, [expiration_ms, tasks]);
            buckets.append(dict)?;
        }
        let (dict, covers_ms) = (PyDict::new(py), vec![level.covers_ms.0, level.covers_ms.1]);
        set_items!(dict, level.[level, tick_ms, interval_ms, start_ms, current_time_ms], [covers_ms, buckets]);
        shown_levels.append(dict)?;
    }
    let shown_queue = PyList::empty(py);
    for armed in queue {
        let dict = PyDict::new(py);
        set_items!(dict, armed.[expiration_ms, level, bucket]);
        shown_queue.append(dict)?;
    }
    let shown_front = PyList::empty(py);
    for (due_us, seen) in front {
        for task in shown_names(&[seen])? {
            let (dict, due_ms) = (PyDict::new(py), to_ms(due_us));
            set_items!(dict, [due_ms, task]);
            shown_front.append(dict)?;
        }
    }
    let (dict, levels, queue, front) = (PyDict::new(py), shown_levels, shown_queue, shown_front);
    set_items!(dict, [levels, queue, size, front]);
    Ok(dict)
}

/// How many tasks each bucket has.
pub(crate) fn occupancy<'py>(py: Python<'py>, occupancy: &Occupancy) -> PyResult<Bound<'py, PyAny>> {
    let levels = PyList::empty(py);
    for level in &occupancy.levels {
        let dict = PyDict::new(py);
        set_items!(dict, level.[level, tick_ms, interval_ms, current_time_ms, tasks]);
        levels.append(dict)?;
    }
    let (dict, now_ms) = (PyDict::new(py), to_ms(occupancy.now_us));
    set_items!(dict, [now_ms, levels]);
    set_items!(dict, occupancy.[front, size]);
    Ok(dict.into_any())
}

pub(crate) fn pending<'py>(
    py: Python<'py>,
    core: &TimerCore,
    before_us: u64,
    limit: usize,
) -> PyResult<Bound<'py, PyList>> {
    core.check_process(py)?;
    let pending = core.detach(py, |timer| timer.pending(before_us, usize::MAX));
    let mut found = Vec::new();
    let mut pace = Pace::default();
    for step in pending.chunks(STEP) {
        let now: Vec<_> = {
            let state = core.lock_unchecked(py);
            let find = |pending: &Pending<()>| {
                // It may have been moved meanwhile.
                let (task, due_us, number, tag) = state.schedule.peek_pending(pending.handle)?;
                (due_us < before_us).then(|| (due_us, number, task.clone_ref(py), tag))
            };
            step.iter().filter_map(find).collect()
        };
        // The native timer does not know which tasks are internal, so the limit is kept here.
        found.extend(now.into_iter().filter(|(_, _, task, _)| !TimerTask::is_internal(task.bind(py))));
        if found.len() >= limit {
            break;
        }
        let_others_run(py);
    }
    py.detach(|| found.sort_unstable_by_key(|(due_us, number, ..)| (*due_us, *number)));
    let listed = PyList::empty(py);
    for (due_us, _, task, tag) in found.into_iter().take(limit) {
        listed.append((to_ms(due_us), as_listed(py, &task, tag)?))?;
        pace.count(py);
    }
    Ok(listed)
}

/// Lets other threads have the GIL in a long loop: no view keeps it for longer than a step (T14).
#[derive(Default)]
pub(crate) struct Pace {
    done: usize,
}

impl Pace {
    /// Something was done.
    pub(crate) fn count(&mut self, py: Python<'_>) {
        self.done += 1;
        if self.done.is_multiple_of(STEP) {
            let_others_run(py);
        }
    }
}

fn let_others_run(py: Python<'_>) {
    py.detach(|| {});
}

/// How a task appears in a list: as itself, or as a tuple of the batch and the index (T18). It runs no Python code: a signal's
/// handler that raises would lose the rest of a shutdown's list.
pub(crate) fn as_listed<'py>(py: Python<'py>, task: &TaskRef, tag: u32) -> PyResult<Bound<'py, PyAny>> {
    if tag == NO_INDEX {
        return Ok(task.bind(py).clone());
    }
    Ok((task, index_of(tag)).into_pyobject(py)?.into_any())
}

pub(crate) fn stats<'py>(py: Python<'py>, core: &TimerCore) -> PyResult<Bound<'py, PyDict>> {
    let (dict, stats) = (PyDict::new(py), core.lock(py)?.stats());
    set_items!(dict, stats.[added, moved, cancelled, expired, cascaded, wake_ups, pending, executor_depth, running]);
    let lateness_us = HISTOGRAM.import(py, "tickwheel.histogram", "Histogram")?.call1((stats.lateness_us,))?;
    set_items!(dict, [lateness_us]);
    Ok(dict)
}

/// Exact to the microsecond for about 280 years, then to the precision of a float.
fn to_ms(us: u64) -> f64 {
    us as f64 / 1000.0
}
