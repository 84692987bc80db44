//! `PeriodicTask`: a task that goes back on its timer after each call (T20). `src/every.rs` says when.
//!
//! The GIL orders a call and a cancel: a call that finds the series ended does nothing. So no call begins after `cancel` has
//! returned.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::core::loop_only;
use crate::core::timer_ref::TimerRef;
use crate::scheduled::task_adding;
use crate::scheduled::task_fields::{TaskFields, TaskKind};
use crate::scheduled::task_leaving;
use crate::scheduled::task_object::TimerTask;
use crate::tools::args;
use crate::tools::describe;
use crate::tools::finalizing::ForeignCall;
use crate::tools::gil_cell::GilCell;
use crate::tools::times::{self, Ms};
use crate::values::callback_scope;
use crate::values::coroutine_functions;
use tickwheel::internal::{Occurrences, Room};
use tickwheel::{Every, Missed, When};

/// A callback that is called again and again. Get it from `Timer.every`.
#[pyclass(frozen, extends = TimerTask, module = "tickwheel")]
pub(crate) struct PeriodicTask {
    occurrences: Occurrences,
    timer_ref: Py<TimerRef>,
    series: GilCell<Series>,
}

#[derive(Default)]
struct Series {
    /// The call that comes next, or runs.
    number: u64,
    is_over: bool,
    was_cancelled: bool,
    /// A call has begun, and its coroutine has not ended.
    is_running: bool,
    context: Option<Py<PyAny>>,
}

/// What `every` was given.
pub(crate) struct Periods<'a, 'py> {
    pub(crate) period_ms: &'a Bound<'py, PyAny>,
    pub(crate) start_ms: Option<&'a Bound<'py, PyAny>>,
    pub(crate) jitter_ms: Option<&'a Bound<'py, PyAny>>,
    pub(crate) missed: Option<&'a Bound<'py, PyAny>>,
}

impl PeriodicTask {
    /// Puts the first call on the timer.
    pub(crate) fn start<'py>(
        timer_ref: &Py<TimerRef>,
        periods: &Periods<'_, 'py>,
        (callback, args): (&Bound<'py, PyAny>, &Bound<'py, PyTuple>),
        (context, name): (Option<&Bound<'py, PyAny>>, Option<&Bound<'py, PyAny>>),
    ) -> PyResult<Bound<'py, Self>> {
        let (py, core) = (callback.py(), timer_ref.get().core());
        let (period, every) = periods.read()?;
        args::callable(callback, "callback")?;
        let name = name.map(args::task_name).transpose()?;
        loop_only::check_callback(core, callback)?;
        let context = loop_only::context_of_add(core, context, py)?;
        core.check_process(py)?;
        let now = core.timer.clock().now_down_and_up_us();
        let occurrences = Occurrences::new(&every, now).map_err(|error| core.to_python_error(py, &error))?;
        let number = occurrences.first_from(now.0);
        let args = (!args.is_empty()).then(|| args.clone().unbind());
        let mut fields = TaskFields::new(Some(period), Some(callback.clone().unbind()), args, name);
        fields.kind = TaskKind::Periodic;
        let series = GilCell::new(Series { number, context, ..Series::default() });
        let task = Self { occurrences, timer_ref: timer_ref.clone_ref(py), series };
        let task = Bound::new(py, PyClassInitializer::from(TimerTask::new(fields)).add_subclass(task))?;
        Self::schedule(&task, number, Room::IfAny)?;
        Ok(task)
    }

    /// Ends the series, if it goes on: no call begins after this. Whether it did. It may stay on its timer until then.
    pub(crate) fn end(slf: &Bound<'_, Self>) -> bool {
        let (py, task) = (slf.py(), slf.as_super().get());
        let has_ended = slf.get().end_series(py) && task.is_open(py);
        if has_ended {
            task.note_cancelled(py);
            slf.get().series.with(py, |series| series.was_cancelled = true);
        }
        has_ended
    }

    /// As [`Self::end`]; the task itself stays as it is. The context goes with the calls for which it was kept.
    fn end_series(&self, py: Python<'_>) -> bool {
        let (was_over, context) =
            self.series.with(py, |series| (std::mem::replace(&mut series.is_over, true), series.context.take()));
        drop(context); // it may run Python
        !was_over
    }

    /// Errors: `ValueError` if the series has ended, so that nothing would be called.
    pub(crate) fn check_goes_on(slf: &Bound<'_, Self>) -> PyResult<()> {
        let is_over = slf.get().series.with(slf.py(), |series| series.is_over);
        if !is_over && slf.as_super().get().is_open(slf.py()) {
            return Ok(());
        }
        Err(PyValueError::new_err("this periodic task has ended, and can't be added again: call every() for a new one"))
    }

    fn schedule(slf: &Bound<'_, Self>, number: u64, room: Room) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let mut context = this.series.with(py, |series| {
            series.number = number;
            series.context.as_ref().map(|context| context.clone_ref(py))
        });
        let when = When::AtUs(this.occurrences.due_us(number));
        task_adding::schedule(slf.as_super(), &this.timer_ref, when, room, &mut context, &mut Vec::new()).map(drop)
    }

    /// A call that is due begins: the caller makes it, and then calls [`Self::go_on`], or once its coroutine has ended. `false`
    /// if another call runs, as the task was added once more meanwhile: that one goes on.
    pub(crate) fn begin(&self, py: Python<'_>) -> bool {
        !self.series.with(py, |series| std::mem::replace(&mut series.is_running, true))
    }

    /// Calls the callback, unless the series has ended.
    pub(crate) fn call<'py>(slf: &Bound<'py, Self>, context: Option<&Py<PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let is_over = slf.get().series.with(py, |series| series.is_over);
        // The collector may have taken the callback.
        let (Some(callback), args) = slf.as_super().get().call(py) else { return Ok(py.None().into_bound(py)) };
        if is_over {
            return Ok(py.None().into_bound(py));
        }
        callback_scope::call_in_context(context, callback.bind(py), args.as_ref().map(|args| args.bind(py)))
    }

    /// Puts the next call on the timer, if the series goes on. One of a `weak_method` ends with its object.
    pub(crate) fn go_on(slf: &Bound<'_, Self>) {
        let (py, this) = (slf.py(), slf.get());
        let core = this.timer_ref.get().core();
        let (number, is_over) = this.series.with(py, |series| {
            series.is_running = false;
            (series.number, series.is_over)
        });
        let is_over = is_over
            || core.lock(py).map_or(true, |state| state.closes_when_empty)
            || slf.as_super().get().callback(py).is_some_and(|it| coroutine_functions::is_of_gone_object(it.bind(py)));
        let next = || this.occurrences.after(number, core.timer.clock().now_us());
        // A timer that is closed takes no more tasks.
        if is_over || Self::schedule(slf, next(), Room::Always).is_err() {
            this.end_series(py);
        } else if this.series.with(py, |series| series.is_over) {
            // A cancel came while this thread waited for the timer's lock. The next call would find that too, a period later.
            let _ = task_leaving::take_off_and_drop(slf.as_super().get(), py);
        }
    }
}

#[pymethods]
impl PeriodicTask {
    /// Call `callback(*args)` once, unless the series has ended. The calls of the timer come as before.
    fn run<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let _call = ForeignCall::enter(slf.py())?;
        Self::call(slf, None)
    }

    fn cancelled(slf: &Bound<'_, Self>) -> bool {
        // The mark of the task is gone for a moment if a cancel meets the end of a call.
        slf.get().series.with(slf.py(), |series| series.was_cancelled) || slf.as_super().get().cancelled(slf.py())
    }

    /// End it. `True` for the first cancel of one that goes on: no call begins after it. O(1).
    fn cancel(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let py = slf.py();
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(false) };
        slf.get().timer_ref.get().core().check_process(py)?;
        let has_ended = Self::end(slf);
        task_leaving::take_off_and_drop(slf.as_super().get(), py)?;
        Ok(has_ended)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.series.visit(&visit, |series| visit.call(&series.context))
    }

    fn __clear__(&self, py: Python<'_>) {
        let Some(_call) = ForeignCall::try_enter(py) else { return };
        let context = self.series.with(py, |series| series.context.take());
        drop(context);
    }
}

impl Periods<'_, '_> {
    fn read(&self) -> PyResult<(Ms, Every)> {
        let period = positive(self.period_ms, "period_ms")?;
        let mut every = Every::new(Duration::from_micros(period.to_us()));
        if let Some(start_ms) = self.start_ms {
            let start = times::ms(start_ms, "start_ms")?;
            if start.0 < 0.0 {
                return Err(PyValueError::new_err(format!(
                    "start_ms is an instant of the timer's clock, 0 or later, got {}: leave it out to begin in one period",
                    start.0
                )));
            }
            every.start = Some(When::AtUs(start.to_us()));
        }
        if let Some(jitter_ms) = self.jitter_ms {
            let jitter = times::ms(jitter_ms, "jitter_ms")?;
            if jitter.0 < 0.0 {
                return Err(PyValueError::new_err(format!(
                    "jitter_ms must be 0 or more, got {}: leave it out",
                    jitter.0
                )));
            }
            every.jitter = Duration::from_micros(jitter.to_us());
        }
        if let Some(missed) = self.missed {
            every.missed = match missed.extract().unwrap_or("") {
                "skip" => Missed::Skip,
                "all" => Missed::All,
                "last" => Missed::Last,
                _ => {
                    let given = describe::type_and_value(missed)?;
                    let text = format!("missed must be 'skip', 'all' or 'last', got {given}: leave it out for 'skip'");
                    return Err(PyValueError::new_err(text));
                }
            };
        }
        Ok((period, every))
    }
}

fn positive(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Ms> {
    let ms = times::ms(value, what)?;
    if ms.0 > 0.0 {
        return Ok(ms);
    }
    Err(PyValueError::new_err(format!("{what} must be more than 0, got {}: give milliseconds, as 250", ms.0)))
}
