//! `PeriodicTask`: a task that goes back on its timer after each call (T20). `src/every.rs` says when.
//!
//! The GIL orders a call, a cancel and a pause: a call that finds the series ended or paused does nothing. So no call begins
//! after `cancel` or `pause` has returned.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::core::callback_rules;
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
    timer_ref: Py<TimerRef>,
    series: GilCell<Series>,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is set and read by itself")]
struct Series {
    /// The call that comes next, or runs.
    occurrences: Occurrences,
    is_over: bool,
    was_cancelled: bool,
    is_paused: bool,
    /// A call has begun, and its coroutine has not ended.
    is_running: bool,
    context: Option<Py<PyAny>>,
}

/// What `every` was given, and in which unit.
pub(crate) struct Periods<'a, 'py> {
    pub(crate) period: Option<&'a Bound<'py, PyAny>>,
    pub(crate) gap: Option<&'a Bound<'py, PyAny>>,
    pub(crate) first: Option<&'a Bound<'py, PyAny>>,
    pub(crate) jitter: Option<&'a Bound<'py, PyAny>>,
    pub(crate) missed: Option<&'a Bound<'py, PyAny>>,
    pub(crate) times: Option<&'a Bound<'py, PyAny>>,
    pub(crate) has_start: bool,
    pub(crate) in_seconds: bool,
}

impl PeriodicTask {
    /// Puts the first call on the timer.
    pub(crate) fn start<'py>(
        timer_ref: &Py<TimerRef>,
        periods: &Periods<'_, 'py>,
        (start_ms, until_ms): (Option<&Bound<'py, PyAny>>, Option<&Bound<'py, PyAny>>),
        (callback, args): (&Bound<'py, PyAny>, &Bound<'py, PyTuple>),
        (context, name): (Option<&Bound<'py, PyAny>>, Option<&Bound<'py, PyAny>>),
    ) -> PyResult<Bound<'py, Self>> {
        let (py, core) = (callback.py(), timer_ref.get().core());
        let (period, mut every) = periods.read()?;
        every.start = start_ms.map(|start_ms| instant(start_ms, "start_ms")).transpose()?.or(every.start);
        every.until = until_ms.map(|until_ms| instant(until_ms, "until_ms")).transpose()?;
        args::callable(callback, "callback")?;
        let name = name.map(args::task_name).transpose()?;
        callback_rules::check_callback(core, callback)?;
        let context = callback_rules::context_of_add(core, context, py)?;
        core.check_process(py)?;
        let occurrences = Occurrences::new(&every, core.timer.clock().now_down_and_up_us());
        let occurrences = occurrences.map_err(|error| core.to_python_error(py, &error))?;
        let args = (!args.is_empty()).then(|| args.clone().unbind());
        let mut fields = TaskFields::new(Some(period), Some(callback.clone().unbind()), args, name);
        fields.kind = TaskKind::Periodic;
        let series = GilCell::new(Series { occurrences, context, ..Series::default() });
        let task = Self { timer_ref: timer_ref.clone_ref(py), series };
        let task = Bound::new(py, PyClassInitializer::from(TimerTask::new(fields)).add_subclass(task))?;
        Self::schedule(&task, Room::IfAny)?;
        Ok(task)
    }

    /// Ends the series, if it goes on: no call begins after this. Whether it did. It may stay on its timer until then.
    pub(crate) fn end(slf: &Bound<'_, Self>) -> bool {
        let (py, task) = (slf.py(), slf.as_super().get());
        let is_paused = slf.get().series.with(py, |series| series.is_paused);
        let has_ended = slf.get().end_series(py) && (is_paused || task.is_open(py));
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

    /// Errors: `ValueError` if the series has ended, so that nothing would be called, or is paused.
    pub(crate) fn check_goes_on(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (is_over, is_paused) = slf.get().series.with(slf.py(), |series| (series.is_over, series.is_paused));
        if is_paused && !is_over {
            return Err(PyValueError::new_err("this periodic task is paused, and can't be added: call its resume()"));
        }
        if !is_over && slf.as_super().get().is_open(slf.py()) {
            return Ok(());
        }
        Err(PyValueError::new_err("this periodic task has ended, and can't be added again: call every() for a new one"))
    }

    /// Puts the next call on the timer. The series ends if there is none, or if the timer takes no more tasks. Returns whether it
    /// goes on.
    fn schedule(slf: &Bound<'_, Self>, room: Room) -> PyResult<bool> {
        let (py, this, task) = (slf.py(), slf.get(), slf.as_super());
        let (due_us, mut context) = this.series.with(py, |series| {
            (series.occurrences.due_us(), series.context.as_ref().map(|context| context.clone_ref(py)))
        });
        let scheduled = due_us.map(|due_us| {
            task_adding::schedule(task, &this.timer_ref, When::AtUs(due_us), room, &mut context, &mut Vec::new())
        });
        let Some(Ok(_)) = scheduled else {
            this.end_series(py);
            return scheduled.transpose().map(|_| false);
        };
        // A cancel or a pause came while this thread waited for the timer's lock. The next call would find that too, later.
        if this.series.with(py, |series| series.is_over || series.is_paused) {
            let _ = task_leaving::take_off_and_drop(task.get(), py);
            if !this.series.with(py, |series| series.is_over) {
                task.get().forget_cancel(py);
            }
        }
        Ok(true)
    }

    /// A call that is due begins, unless the series is paused: the caller makes it if this returns `true`, and then calls
    /// [`Self::go_on`], or once its coroutine has ended. `None` if another call runs, as the task was added once more meanwhile:
    /// that one goes on.
    pub(crate) fn begin(&self, py: Python<'_>) -> Option<bool> {
        self.series.with(py, |series| {
            if series.is_running {
                return None;
            }
            series.is_running = !series.is_paused;
            Some(series.is_running)
        })
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
        this.series.with(py, |series| {
            let now = core.timer.clock().now_down_and_up_us();
            if std::mem::take(&mut series.is_running) {
                series.occurrences.end_call(now);
            } else {
                series.occurrences.resume(now); // the call found a pause
            }
        });
        let is_over = core.lock(py).map_or(true, |state| state.closes_when_empty)
            || slf.as_super().get().callback(py).is_some_and(|it| coroutine_functions::is_of_gone_object(it.bind(py)));
        if is_over {
            this.end_series(py);
        } else if this.series.with(py, |series| !series.is_over && !series.is_paused) {
            let _ = Self::schedule(slf, Room::Always); // a timer that is closed takes no more tasks
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

    /// Stop the calls until `resume`. `True` if they went on: no call begins after this. O(1).
    ///
    /// Meanwhile the task is not pending, and it does not keep its timer alive.
    fn pause(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let (py, task) = (slf.py(), slf.as_super().get());
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(false) };
        slf.get().timer_ref.get().core().check_process(py)?;
        let removed = task_leaving::take_off(task, py)?;
        // Since it left its timer the GIL was not released.
        let is_off = removed.is_some();
        let is_paused = slf.get().series.with(py, |series| {
            let goes_on = !series.is_over && !series.is_paused;
            series.is_paused |= goes_on;
            goes_on
        });
        if is_off && is_paused {
            task.forget_cancel(py);
        }
        if let Some(removed) = removed {
            removed.end_and_drop(py);
        }
        Ok(is_paused)
    }

    /// End a pause. `True` if there was one, and calls come: at the instants from now on, or in a gap from now.
    ///
    /// Those that were due during the pause are left out. `False` also if no call is left until its end. O(levels).
    /// Errors: `TimerClosed`, `TimerForked`.
    fn resume(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        let _call = ForeignCall::enter(py)?;
        let core = this.timer_ref.get().core();
        core.check_process(py)?;
        let was_paused = this.series.with(py, |series| std::mem::take(&mut series.is_paused) && !series.is_over);
        if !was_paused || slf.as_super().get().is_open(py) {
            return Ok(was_paused); // after a call that runs the next one comes by itself
        }
        this.series.with(py, |series| series.occurrences.resume(core.timer.clock().now_down_and_up_us()));
        Self::schedule(slf, Room::Always)
    }

    /// Whether it is paused.
    #[getter]
    fn is_paused(&self, py: Python<'_>) -> bool {
        self.series.with(py, |series| series.is_paused && !series.is_over)
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
    /// Reads all but the start and the end, which are instants of a clock.
    pub(crate) fn read(&self) -> PyResult<(Ms, Every)> {
        let unit = if self.in_seconds { "" } else { "_ms" };
        let ms = |value, what: &str| {
            let what = format!("{what}{unit}");
            Ok::<_, PyErr>((if self.in_seconds { times::loop_delay } else { times::ms }(value, &what)?, what))
        };
        let ((period, what), from_end) = match (self.period, self.gap) {
            (Some(period), None) => (ms(period, "period")?, false),
            (None, Some(gap)) => (ms(gap, "gap")?, true),
            (period, _) => {
                let given = if period.is_some() { "both" } else { "none" };
                return Err(PyValueError::new_err(format!(
                    "every() needs period{unit} or gap{unit}, got {given}: give the time between the instants, or the one from \
                     the end of a call to the next"
                )));
            }
        };
        if period.0 <= 0.0 {
            let example = if self.in_seconds { "seconds, as 0.25" } else { "milliseconds, as 250" };
            return Err(PyValueError::new_err(format!("{what} must be more than 0, got {}: give {example}", period.0)));
        }
        let mut every = Every { from_end, ..Every::new(Duration::from_micros(period.to_us())) };
        if let Some(jitter) = self.jitter {
            let (jitter, what) = ms(jitter, "jitter")?;
            if jitter.0 < 0.0 {
                return Err(PyValueError::new_err(format!("{what} must be 0 or more, got {}: leave it out", jitter.0)));
            }
            every.jitter = Duration::from_micros(jitter.to_us());
        }
        if let Some(missed) = self.missed {
            every.missed = match missed.extract().unwrap_or("") {
                "skip" => Missed::Skip,
                "all" => Missed::All,
                "last" => Missed::Last,
                _ => return Err(refused(missed, "missed must be 'skip', 'all' or 'last'", "leave it out for 'skip'")),
            };
        }
        if let Some(first) = self.first {
            if first.extract().unwrap_or("") != "now" || self.has_start {
                let must = format!("first must be 'now', without start{unit}");
                return Err(refused(first, &must, "leave it out to begin in one period"));
            }
            every.start = Some(When::AfterUs(0));
        }
        let times = self.times.map(|times| args::int_in(times, "times", 1, 1 << 52, "leave it out for no end"));
        every.times = times.transpose()?;
        Ok((period, every))
    }
}

fn refused(value: &Bound<'_, PyAny>, must: &str, hint: &str) -> PyErr {
    describe::type_and_value(value)
        .map_or_else(|error| error, |given| PyValueError::new_err(format!("{must}, got {given}: {hint}")))
}

/// An instant of the timer's clock.
fn instant(value: &Bound<'_, PyAny>, what: &str) -> PyResult<When> {
    let instant = times::ms(value, what)?;
    if instant.0 >= 0.0 {
        return Ok(When::AtUs(instant.to_us()));
    }
    let given = instant.0;
    let text =
        format!("{what} is an instant of the timer's clock, 0 or later, got {given}: see now_ms(), or leave it out");
    Err(PyValueError::new_err(text))
}
