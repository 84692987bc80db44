//! `TimerTask` as Python sees it: its methods.

use std::sync::OnceLock;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::scheduled::awaiting;
use crate::scheduled::task_adding;
use crate::scheduled::task_fields::{TaskFields, TaskKind};
use crate::scheduled::task_leaving;
use crate::scheduled::task_object::TimerTask;
use crate::tools::args;
use crate::tools::errors;
use crate::tools::finalizing::ForeignCall;
use crate::tools::times::{self, Ms};
use crate::values::callback_scope;
use crate::values::coroutine_functions;
use tickwheel::When;

/// Called after a cancel with a task of a subclass, which may be an operation that waits in a purgatory. Operations are
/// on a higher floor, so the module sets this function, once.
static DEADLINE_CANCELLED: OnceLock<fn(Python<'_>, &Bound<'_, PyAny>)> = OnceLock::new();

/// Sets the function that a cancel calls, once.
pub(crate) fn set_deadline_cancelled(deadline_cancelled: fn(Python<'_>, &Bound<'_, PyAny>)) {
    // A module may be made twice in one process; the function is the same.
    let _ = DEADLINE_CANCELLED.set(deadline_cancelled);
}

#[pymethods]
impl TimerTask {
    /// Takes any arguments, as the `__init__` of a subclass may; `TimerTask.__init__` fills the object in.
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(delay_ms, callback=None, *args, name=None)")]
    fn __new__(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self::empty()
    }

    #[pyo3(signature = (delay_ms, callback=None, *args, name=None))]
    fn __init__(
        slf: &Bound<'_, Self>,
        delay_ms: &Bound<'_, PyAny>,
        callback: Option<&Bound<'_, PyAny>>,
        args: &Bound<'_, PyTuple>,
        name: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let _call = ForeignCall::enter(py)?;
        let delay = times::ms(delay_ms, "delay_ms")?;
        let base = py.get_type::<Self>();
        let overrides_run = !slf.get_type().is(&base) && !slf.get_type().getattr("run")?.is(&base.getattr("run")?);
        match callback {
            Some(callback) => args::callable(callback, "callback")?,
            None if overrides_run => {}
            None => {
                return Err(PyTypeError::new_err(
                    "a TimerTask needs something to run, got no callback: pass one, or override run() in a subclass",
                ));
            }
        }
        let args = (!args.is_empty()).then(|| args.clone().unbind());
        let function = callback.map(|callback| callback.clone().unbind());
        let mut fields = TaskFields::new(Some(delay), function, args, name.map(args::task_name).transpose()?);
        fields.kind = if overrides_run { TaskKind::Method } else { TaskKind::Callback };
        fields.set_plain(slf.get_type().is(&base));
        let is_coroutine = match callback {
            _ if overrides_run => coroutine_functions::is_coroutine_function(&slf.get_type().getattr("run")?)?,
            Some(callback) => coroutine_functions::is_coroutine_function(callback)?,
            None => false,
        };
        fields.set_coroutine(is_coroutine);
        Self::initialize(slf, fields)
    }

    #[getter]
    fn delay_ms<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.delay(py)?.to_python(py)
    }

    #[getter]
    fn get_name(&self, py: Python<'_>) -> Option<Py<PyString>> {
        self.name(py)
    }

    /// When it is due, on its timer's clock; `None` if it is on no timer. A past one waits for the executor.
    #[getter]
    fn due_ms<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.due(py).map(|due_us| Ms::from_us(due_us).to_python(py)).transpose()
    }

    /// Whether it is on a timer, and its call has not begun.
    #[getter]
    fn is_pending(&self, py: Python<'_>) -> bool {
        self.due(py).is_some()
    }

    /// Whether it was cancelled, and not added since.
    pub(super) fn cancelled(&self, py: Python<'_>) -> bool {
        self.fields.with(py, |fields| fields.is_cancelled())
    }

    /// The timer that it is on; `None` if it is on none, or that object is gone.
    #[getter]
    fn timer<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let timer_ref = self.fields.with(py, |fields| fields.timer_ref(py))?;
        timer_ref.get().timer(py)
    }

    /// What it calls; `None` for a class with a `run` of its own, and once a task of `after` or `at` has ended.
    #[getter]
    fn get_callback(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.call(py).0
    }

    /// The arguments of the callback.
    #[getter]
    fn args<'py>(&self, py: Python<'py>) -> Bound<'py, PyTuple> {
        self.call(py).1.map_or_else(|| PyTuple::empty(py), |args| args.into_bound(py))
    }

    /// Move it to `delay_ms` from now, if its call has not begun: `True` exactly then. O(levels).
    ///
    /// Errors: as `Timer.add`. `False` also for a task that was never added, was cancelled, or has run.
    #[pyo3(signature = (delay_ms))]
    fn reschedule(slf: &Bound<'_, Self>, delay_ms: &Bound<'_, PyAny>) -> PyResult<bool> {
        let _call = ForeignCall::enter(slf.py())?;
        let delay = times::ms(delay_ms, "delay_ms")?;
        task_adding::reschedule(slf, When::AfterUs(delay.to_us()))
    }

    /// Call `callback(*args)`. The timer calls this when the task is due. Override it in a subclass.
    fn run<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let _call = ForeignCall::enter(py)?;
        let (Some(callback), args) = self.fields.with(py, |fields| fields.call(py)) else {
            return Err(PyValueError::new_err(
                "this task has nothing to run: it was made by after() or at() and has ended, or its class has no run()",
            ));
        };
        callback_scope::call_in_context(None, callback.bind(py), args.as_ref().map(|args| args.bind(py)))
    }

    /// Take the task off its timer. `True` exactly if it is certain that the task will not run. O(1).
    ///
    /// `False` for a task that was never added, was cancelled before, is running or has run. The timer drops its
    /// reference to the task at once. Errors: `TimerForked`.
    fn cancel(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let Some(_call) = ForeignCall::try_enter(slf.py()) else { return Ok(false) };
        let is_off = task_leaving::take_off_and_drop(slf.get(), slf.py())?;
        if is_off
            && !slf.get_type().is(slf.py().get_type::<Self>())
            && let Some(deadline_cancelled) = DEADLINE_CANCELLED.get()
        {
            deadline_cancelled(slf.py(), slf.as_any());
        }
        Ok(is_off)
    }

    /// Wait from a loop until its call has ended: `True`; `False` if there is none, as after a cancel or a shutdown.
    ///
    /// At once if it is on no timer. What the callback raises goes to `on_error` alone. If a task goes on, as one of
    /// `every` does, the next call counts. Errors: `RuntimeError` without a running loop; `TimerForked`.
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let _call = ForeignCall::enter(py)?;
        if slf.get().is_deadline(py) {
            return Err(PyTypeError::new_err(
                "an operation waits in a purgatory: write await purgatory.wait(operation, keys)",
            ));
        }
        let waiting = py.import("tickwheel.aio.waiting")?.call_method1("until_called", (slf,))?;
        waiting.call_method0("__await__")
    }

    fn _watch(&self, waiter: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
        let py = waiter.py();
        let _call = ForeignCall::enter(py)?;
        if let Some((core, _)) = self.timer_and_handle(py) {
            core.check_process(py)?;
        }
        Ok(awaiting::watch(self, waiter))
    }

    fn _unwatch(&self, waiter: &Bound<'_, PyAny>) {
        let Some(_call) = ForeignCall::try_enter(waiter.py()) else { return };
        awaiting::unwatch(self, waiter);
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(errors::not_picklable("TimerTask"))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let py = slf.py();
        let class = slf.get_type().name()?;
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(format!("<{class}>")) };
        let this = slf.get();
        let (name, callback) = this.fields.with(py, |fields| (fields.name(py), fields.call(py).0));
        let what = match (name, callback) {
            (Some(name), _) => format!(" '{}'", name.bind(py)),
            (None, Some(callback)) => format!(" {}", callback.bind(py).repr()?),
            (None, None) => String::new(),
        };
        let state = if this.timer_and_handle(py).is_some() { " pending" } else { "" };
        Ok(format!("<{class}{what}{state}>"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.fields.visit(&visit, |fields| fields.visit(&visit))
    }

    fn __clear__(&self, py: Python<'_>) {
        let Some(_call) = ForeignCall::try_enter(py) else { return };
        let taken = self.fields.with(py, TaskFields::clear);
        drop(taken);
    }
}
