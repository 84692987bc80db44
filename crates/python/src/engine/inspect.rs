//! What users can read of a timer (T14): snapshot, pending tasks and statistics, as plain data.
//!
//! Under the lock only references are taken. Names and dictionaries are made after it (border rule 1).

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::core::timer_core::{NO_INDEX, TaskRef, TimerCore, index_of};
use crate::scheduled::task_object::TimerTask;
use crate::tools::made_once::MadeOnce;
use tickwheel::Occupancy;
use tickwheel::internal::{STEP, take_snapshot};

/// Answers percentiles.
static HISTOGRAM: MadeOnce<Py<PyAny>> = MadeOnce::new();

pub(crate) fn snapshot<'py>(py: Python<'py>, core: &TimerCore) -> PyResult<Bound<'py, PyAny>> {
    let snapshot = {
        let mut state = core.lock(py)?;
        take_snapshot(&mut state.schedule, |_, tag, task| (task.clone_ref(py), tag))
    };
    let shown_name = |(task, tag): &(TaskRef, u32)| -> PyResult<Bound<'py, PyAny>> {
        match task.bind(py).cast::<TimerTask>() {
            Ok(task) if *tag == NO_INDEX => Ok(TimerTask::shown_name(task)?.into_bound(py)),
            _ => as_listed(py, task, *tag),
        }
    };
    let levels = PyList::empty(py);
    for level in &snapshot.levels {
        let buckets = PyList::empty(py);
        for bucket in &level.buckets {
            let tasks = bucket.tasks.iter().map(shown_name).collect::<PyResult<Vec<_>>>()?;
            let expiration_ms = bucket.expiration_ms.map_or(-1, u64::cast_signed);
            buckets.append(dict(
                py,
                [("expiration_ms", expiration_ms.into_bound_py_any(py)?), ("tasks", tasks.into_bound_py_any(py)?)],
            )?)?;
        }
        levels.append(dict(
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
    let queue = PyList::empty(py);
    for armed in &snapshot.queue {
        queue.append(dict(
            py,
            [
                ("expiration_ms", armed.expiration_ms.into_bound_py_any(py)?),
                ("level", armed.level.into_bound_py_any(py)?),
                ("bucket", armed.bucket.into_bound_py_any(py)?),
            ],
        )?)?;
    }
    let front = PyList::empty(py);
    for (due_us, task) in &snapshot.front {
        front.append(dict(py, [("due_ms", to_ms(*due_us).into_bound_py_any(py)?), ("task", shown_name(task)?)])?)?;
    }
    let all = [
        ("levels", levels.into_any()),
        ("queue", queue.into_any()),
        ("size", snapshot.size.into_bound_py_any(py)?),
        ("front", front.into_any()),
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
) -> PyResult<Vec<(f64, Bound<'py, PyAny>)>> {
    core.check_process(py)?;
    // The limit counts the listed tasks. The native timer does not know which tasks are internal.
    let found = core.detach(py, |timer| timer.pending(before_us, usize::MAX));
    let mut listed = Vec::new();
    for step in found.chunks(STEP) {
        let state = core.lock_unchecked(py);
        let tasks: Vec<_> = step
            .iter()
            .filter_map(|pending| {
                let (task, tag) = state.schedule.peek(pending.handle)?;
                Some((pending.due_us, task.clone_ref(py), tag))
            })
            .collect();
        drop(state);
        for (due_us, task, tag) in tasks {
            if listed.len() == limit {
                return Ok(listed);
            }
            if !TimerTask::is_internal(task.bind(py)) {
                listed.push((to_ms(due_us), as_listed(py, &task, tag)?));
            }
        }
    }
    Ok(listed)
}

/// How a task appears in a list: as itself, or as `(batch, index)` (T18).
pub(crate) fn as_listed<'py>(py: Python<'py>, task: &TaskRef, tag: u32) -> PyResult<Bound<'py, PyAny>> {
    if tag == NO_INDEX {
        return Ok(task.bind(py).clone());
    }
    Ok((task, index_of(tag)).into_pyobject(py)?.into_any())
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
