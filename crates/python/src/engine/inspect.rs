//! What users can read of a timer (T14): snapshot, pending tasks and statistics, as plain data.
//!
//! Under the lock only references are taken. Names and dictionaries are made after it (border rule 1).

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::core::timer_core::{NO_INDEX, TaskRef, TimerCore, index_of};
use crate::scheduled::task_object::TimerTask;
use crate::tools::made_once::MadeOnce;
use tickwheel::internal::STEP;
use tickwheel::{Occupancy, Pending, Seen, Snapshot, Timer as Native};

static BATCH_TIMER: MadeOnce<Py<PyAny>> = MadeOnce::new();
static NEW_TUPLE: MadeOnce<Py<PyAny>> = MadeOnce::new();
/// Answers percentiles.
static HISTOGRAM: MadeOnce<Py<PyAny>> = MadeOnce::new();

pub(crate) fn snapshot<'py>(py: Python<'py>, core: &TimerCore) -> PyResult<Bound<'py, PyAny>> {
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
            buckets.append(dict(
                py,
                [("expiration_ms", expiration_ms.into_bound_py_any(py)?), ("tasks", tasks.into_any())],
            )?)?;
        }
        shown_levels.append(dict(
            py,
            [
                ("level", level.level.into_bound_py_any(py)?),
                ("tick_ms", level.tick_ms.into_bound_py_any(py)?),
                ("interval_ms", level.interval_ms.into_bound_py_any(py)?),
                ("start_ms", level.start_ms.into_bound_py_any(py)?),
                ("current_time_ms", level.current_time_ms.into_bound_py_any(py)?),
                ("covers_ms", vec![level.covers_ms.0, level.covers_ms.1].into_bound_py_any(py)?),
                ("buckets", buckets.into_any()),
            ],
        )?)?;
    }
    let shown_queue = PyList::empty(py);
    for armed in queue {
        shown_queue.append(dict(
            py,
            [
                ("expiration_ms", armed.expiration_ms.into_bound_py_any(py)?),
                ("level", armed.level.into_bound_py_any(py)?),
                ("bucket", armed.bucket.into_bound_py_any(py)?),
            ],
        )?)?;
    }
    let shown_front = PyList::empty(py);
    for (due_us, task) in front {
        for name in shown_names(&[task])? {
            shown_front.append(dict(py, [("due_ms", to_ms(due_us).into_bound_py_any(py)?), ("task", name)])?)?;
        }
    }
    let all = [
        ("levels", shown_levels.into_any()),
        ("queue", shown_queue.into_any()),
        ("size", size.into_bound_py_any(py)?),
        ("front", shown_front.into_any()),
    ];
    Ok(dict(py, all)?.into_any())
}

/// How many tasks each bucket has.
pub(crate) fn occupancy<'py>(py: Python<'py>, occupancy: &Occupancy) -> PyResult<Bound<'py, PyAny>> {
    let levels = PyList::empty(py);
    for level in &occupancy.levels {
        let all = [
            ("level", level.level.into_bound_py_any(py)?),
            ("tick_ms", level.tick_ms.into_bound_py_any(py)?),
            ("interval_ms", level.interval_ms.into_bound_py_any(py)?),
            ("current_time_ms", level.current_time_ms.into_bound_py_any(py)?),
            ("tasks", PyList::new(py, &level.tasks)?.into_any()),
        ];
        levels.append(dict(py, all)?)?;
    }
    let all = [
        ("now_ms", to_ms(occupancy.now_us).into_bound_py_any(py)?),
        ("levels", levels.into_any()),
        ("front", occupancy.front.into_bound_py_any(py)?),
        ("size", occupancy.size.into_bound_py_any(py)?),
    ];
    Ok(dict(py, all)?.into_any())
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

/// How a task appears in a list: as itself, or as a `BatchTimer` (T18). It runs no Python code: a signal's handler that raises
/// would lose the rest of a shutdown's list.
pub(crate) fn as_listed<'py>(py: Python<'py>, task: &TaskRef, tag: u32) -> PyResult<Bound<'py, PyAny>> {
    if tag == NO_INDEX {
        return Ok(task.bind(py).clone());
    }
    let class = BATCH_TIMER.import(py, "tickwheel.batches", "BatchTimer")?;
    NEW_TUPLE
        .get_or_try_init(py, || Ok(py.get_type::<PyTuple>().getattr("__new__")?.unbind()))?
        .bind(py)
        .call1((class, (task, index_of(tag))))
}

pub(crate) fn stats<'py>(py: Python<'py>, core: &TimerCore) -> PyResult<Bound<'py, PyAny>> {
    let stats = core.lock(py)?.stats();
    let all = [
        ("added", stats.added.into_bound_py_any(py)?),
        ("moved", stats.moved.into_bound_py_any(py)?),
        ("cancelled", stats.cancelled.into_bound_py_any(py)?),
        ("expired", stats.expired.into_bound_py_any(py)?),
        ("cascaded", stats.cascaded.into_bound_py_any(py)?),
        ("wake_ups", stats.wake_ups.into_bound_py_any(py)?),
        ("pending", stats.pending.into_bound_py_any(py)?),
        ("executor_depth", stats.executor_depth.into_bound_py_any(py)?),
        ("running", stats.running.into_bound_py_any(py)?),
        ("lateness_us", HISTOGRAM.import(py, "tickwheel.histogram", "Histogram")?.call1((stats.lateness_us,))?),
    ];
    Ok(dict(py, all)?.into_any())
}

fn dict<'py, const N: usize>(py: Python<'py>, items: [(&str, Bound<'py, PyAny>); N]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in items {
        dict.set_item(key, value)?;
    }
    Ok(dict)
}

/// Exact to the microsecond for about 280 years, then to the precision of a float.
fn to_ms(us: u64) -> f64 {
    us as f64 / 1000.0
}
