//! A callback of an event loop with its time: what `call_later` and `call_at` return (T21). It has what asyncio's own
//! `TimerHandle` has, and counts as one.

use pyo3::IntoPyObjectExt;
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyTuple, PyType};

use crate::classes::loop_objects::{self, LoopHandle, LoopTime};
use crate::scheduled::task_fields::CallbackAndArgs;
use crate::tools::finalizing;
use crate::tools::made_once::{MadeOnce, intern};
use crate::tools::times::{self, LoopUse};
use crate::values::callback_scope;
use tickwheel::Handle;

static TIMER_HANDLE: MadeOnce<Py<PyType>> = MadeOnce::new();
static FORMAT_SOURCE: MadeOnce<Py<PyAny>> = MadeOnce::new();

impl LoopHandle {
    /// Calls the callback, once. What it raises goes to the loop's exception handler, but for `KeyboardInterrupt` and
    /// `SystemExit`, which the caller gets.
    pub(super) fn run(slf: &Bound<'_, Self>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let taken = slf.get().content.with(py, |content| {
            (content.callback.take(), content.args.take(), content.context.take(), content.timers.take())
        });
        let (Some(callback), args, Some(context), _timers) = &taken else { return Ok(()) };
        let args_given = args.as_ref().map(|args| args.bind(py));
        let called = callback_scope::call_in_context(Some(context), callback.bind(py), args_given);
        let Err(error) = called else { return Ok(()) };
        if error.is_instance_of::<PySystemExit>(py) || error.is_instance_of::<PyKeyboardInterrupt>(py) {
            return Err(error);
        }
        let (callback, args, context, _) = taken;
        let source = source_of(callback.as_ref(), args.as_ref(), py)?;
        // Whoever is told of it asks the handle what it ran, and in which context.
        slf.get().content.with(py, |content| {
            (content.callback, content.args, content.context) = (callback, args, context);
        });
        let failure = PyDict::new(py);
        failure.set_item("message", format!("Exception in callback {source}"))?;
        failure.set_item("exception", error.into_value(py))?;
        failure.set_item("handle", slf)?;
        if let Some(traceback) = slf.get().source_traceback(py) {
            failure.set_item("source_traceback", traceback)?;
        }
        event_loop.call_method1(intern!(py, "call_exception_handler"), (failure,)).map(drop)
    }

    fn time(&self, py: Python<'_>) -> LoopTime {
        self.content.with(py, |content| content.when)
    }

    /// What it will call.
    pub(super) fn call(&self, py: Python<'_>) -> CallbackAndArgs {
        self.content.with(py, |content| {
            let callback = content.callback.as_ref().map(|callback| callback.clone_ref(py));
            (callback, content.args.as_ref().map(|args| args.clone_ref(py)))
        })
    }

    /// What it called, as a loop in debug mode shows it.
    pub(super) fn shown_call(&self, py: Python<'_>, call: &CallbackAndArgs) -> PyResult<String> {
        self.describe(py, false, call)
    }

    fn describe(&self, py: Python<'_>, is_cancelled: bool, (callback, args): &CallbackAndArgs) -> PyResult<String> {
        let state = if is_cancelled { " cancelled" } else { "" };
        let mut text = format!("<TimerHandle{state} when={}", self.when(py)?.repr()?);
        if callback.is_some() {
            text = format!("{text} {}", source_of(callback.as_ref(), args.as_ref(), py)?);
        }
        if let Some(traceback) = self.source_traceback(py) {
            let frame = traceback.bind(py).get_item(-1)?;
            text = format!("{text} created at {}:{}", frame.get_item(0)?, frame.get_item(1)?);
        }
        Ok(text + ">")
    }
}

#[pymethods]
impl LoopHandle {
    /// It will not run. Once it has run, this does nothing more than say so. O(1).
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let (timers, handle, call, context, is_debugged) = self.content.with(py, |content| {
            let is_debugged = content.debug.is_some() && !content.is_cancelled;
            content.is_cancelled = true;
            let call = (content.callback.take(), content.args.take());
            (content.timers.take(), Handle::from_bits(content.handle), call, content.context.take(), is_debugged)
        });
        let removed = timers.as_ref().and_then(|timers| timers.get().remove(py, handle));
        // Only now, as what shows the callback may raise.
        let shown = if is_debugged { self.describe(py, true, &call).map(Some) } else { Ok(None) };
        finalizing::drop_or_leak((removed, timers, call, context));
        if let Some(shown) = shown? {
            self.content.with(py, |content| content.debug.get_or_insert_default().shown = Some(shown));
        }
        Ok(())
    }

    /// Move it to `delay` seconds from now, if it has not run and was not cancelled: `True` exactly then. O(levels).
    ///
    /// `delay`: a number or a `timedelta`. Errors: as `LoopTimers.call_later`.
    #[pyo3(signature = (delay))]
    fn reschedule(&self, delay: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = delay.py();
        let delay = times::loop_seconds(delay, "delay", LoopUse::Delay)?;
        let timers = self.content.with(py, |content| content.timers.as_ref().map(|timers| timers.clone_ref(py)));
        let Some(timers) = timers else { return Ok(false) };
        timers.get().check_process(py)?;
        timers.get().check_loop(py)?;
        let now_ns = timers.get().clock.now_ns();
        let when = LoopTime { seconds: now_ns as f64 / 1e9 + delay, is_int: false };
        let moved = timers.get().with(py, |inner| {
            self.content.with(py, |content| {
                let handle = Handle::from_bits(content.handle);
                let moved = inner.reschedule(now_ns / 1000, loop_objects::due_us(when.seconds), handle);
                if moved {
                    content.when = when;
                }
                moved
            })
        });
        Ok(moved)
    }

    /// Whether it was cancelled.
    fn cancelled(&self, py: Python<'_>) -> bool {
        self.content.with(py, |content| content.is_cancelled)
    }

    /// When it is due, on the loop's clock, in seconds.
    fn when<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let LoopTime { seconds, is_int } = self.time(py);
        if is_int {
            PyFloat::new(py, seconds).call_method0(intern!(py, "__int__"))
        } else {
            seconds.into_bound_py_any(py)
        }
    }

    /// The context that the callback runs in; `None` once it has run.
    fn get_context(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.content.with(py, |content| content.context.as_ref().map(|context| context.clone_ref(py)))
    }

    // The attributes of asyncio's own, which its code and that of others reads.

    #[getter]
    fn _when<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.when(py)
    }

    #[getter]
    fn _cancelled(&self, py: Python<'_>) -> bool {
        self.cancelled(py)
    }

    #[getter]
    fn _scheduled(&self, py: Python<'_>) -> bool {
        self.content.with(py, |content| content.timers.is_some())
    }

    #[getter]
    fn _callback(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.content.with(py, |content| content.callback.as_ref().map(|callback| callback.clone_ref(py)))
    }

    #[getter]
    fn _args<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyTuple>> {
        let (is_there, args) = self
            .content
            .with(py, |content| (content.callback.is_some(), content.args.as_ref().map(|args| args.clone_ref(py))));
        is_there.then(|| args.map_or_else(|| PyTuple::empty(py), |args| args.into_bound(py)))
    }

    #[getter]
    fn _context(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.get_context(py)
    }

    #[getter]
    fn _loop(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let timers = self.content.with(py, |content| content.timers.as_ref().map(|timers| timers.clone_ref(py)));
        timers.and_then(|timers| timers.get().event_loop(py))
    }

    #[getter(_source_traceback)]
    fn source_traceback(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.content.with(py, |content| Some(content.debug.as_ref()?.traceback.as_ref()?.clone_ref(py)))
    }

    #[setter(_source_traceback)]
    pub(super) fn set_source_traceback(&self, py: Python<'_>, traceback: Py<PyAny>) {
        let old = self.content.with(py, |content| content.debug.get_or_insert_default().traceback.replace(traceback));
        finalizing::drop_or_leak(old);
    }

    /// `isinstance(handle, asyncio.TimerHandle)` is true.
    #[getter]
    fn __class__<'py>(&self, py: Python<'py>) -> PyResult<&'py Bound<'py, PyType>> {
        TIMER_HANDLE.import(py, "asyncio", "TimerHandle")
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shown = self.content.with(py, |content| content.debug.as_ref().and_then(|debug| debug.shown.clone()));
        shown.map_or_else(|| self.describe(py, self.cancelled(py), &self.call(py)), Ok)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.first_when_s.into_pyobject(py)?.hash()
    }

    fn __richcmp__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        if !other.is_instance(TIMER_HANDLE.import(py, "asyncio", "TimerHandle")?)? {
            return Ok(py.NotImplemented());
        }
        let (when, other_when) = (slf.get().time(py).seconds, other.getattr(intern!(py, "_when"))?.extract::<f64>()?);
        let is_equal = || -> PyResult<bool> {
            for name in ["_when", "_callback", "_args", "_cancelled"] {
                if !slf.getattr(name)?.eq(other.getattr(name)?)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let answer = match op {
            CompareOp::Lt => when < other_when,
            CompareOp::Gt => when > other_when,
            CompareOp::Le => when < other_when || is_equal()?,
            CompareOp::Ge => when > other_when || is_equal()?,
            CompareOp::Eq => is_equal()?,
            CompareOp::Ne => !is_equal()?,
        };
        Ok(PyBool::new(py, answer).to_owned().into_any().unbind())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.visit_content(&visit)
    }

    fn __clear__(&self, py: Python<'_>) {
        finalizing::drop_or_leak(self.take(py));
    }
}

impl Drop for LoopHandle {
    fn drop(&mut self) {
        let content = self.content.get_mut();
        if content.callback.is_some() || content.debug.is_some() || content.timers.is_some() {
            finalizing::drop_or_leak(std::mem::take(content));
        }
    }
}

/// A callback with its arguments, as asyncio shows it.
fn source_of(callback: Option<&Py<PyAny>>, args: Option<&Py<PyTuple>>, py: Python<'_>) -> PyResult<String> {
    let args = args.map_or_else(|| PyTuple::empty(py), |args| args.bind(py).clone());
    let format = FORMAT_SOURCE.import(py, "asyncio.format_helpers", "_format_callback_source")?;
    format.call1((callback, args))?.extract()
}
