//! `ManualTimer`: the same wheel on a clock that moves only when told (T15).
//!
//! No threads: callbacks run in the calling thread while the clock stands at the moment of their release.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::clock::{Clock, LIMIT_MS};
use crate::executor::Released;
use crate::python::core::inside_callback::InsideCallback;
use crate::python::core::settings::{self, Settings, WheelSettings};
use crate::python::core::timer_core::{Driver, Shared};
use crate::python::core::timer_ref::Share;
use crate::python::driving::timer::{Open, Timer};
use crate::python::engine::dispatch;
use crate::python::tools::args::{self, Given};
use crate::python::tools::errors;
use crate::python::tools::finalizing::ForeignCall;
use crate::python::tools::fork::Own;
use crate::python::tools::gil_cell::GilCell;
use crate::python::values::callback_target::CallbackTarget;
use crate::python::values::due_line::DueLine;

/// The same wheel on a clock that moves only when told: deterministic, no threads.
///
/// Callbacks run in the calling thread while the clock stands at the moment of their release. What they raise goes to
/// `on_error`; `KeyboardInterrupt` and `SystemExit` reach the caller, and the rest runs at the next advance. After
/// Kafka's `MockTimer`.
///
/// >>> timer = ManualTimer()
/// >>> _ = timer.after(5, print, "five")
/// >>> timer.advance(4), len(timer)
/// (0, 1)
/// >>> timer.advance(1)
/// five
/// 1
#[pyclass(frozen, extends = Timer, subclass, module = "tickwheel.testing")]
pub(crate) struct ManualTimer {
    is_advancing: AtomicBool,
    /// Released and not yet run: what a `KeyboardInterrupt` left behind.
    line: GilCell<DueLine>,
}

#[pymethods]
impl ManualTimer {
    /// Takes whatever the `__init__` of a subclass takes; ours fills it in.
    #[new]
    #[pyo3(
        signature = (*_args, **_kwargs),
        text_signature = "(name='manual', *, tick_ms=1, wheel_size=20, start_ms=0, precision='exact', \
            max_pending=None, on_error=None)"
    )]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyClassInitializer<Self> {
        let manual = Self { is_advancing: AtomicBool::new(false), line: GilCell::default() };
        PyClassInitializer::from(Timer::empty()).add_subclass(manual)
    }

    #[pyo3(
        signature = (
            name=None, *, tick_ms=Given::LEFT_OUT, wheel_size=Given::LEFT_OUT, start_ms=None, precision=Given::LEFT_OUT, max_pending=None, on_error=None
        )
    )]
    #[expect(clippy::too_many_arguments, reason = "they are the keyword arguments of the Python class")]
    fn __init__<'py>(
        slf: &Bound<'py, Self>,
        name: Option<&Bound<'py, PyAny>>,
        tick_ms: Given<'py>,
        wheel_size: Given<'py>,
        start_ms: Option<&Bound<'py, PyAny>>,
        precision: Given<'py>,
        max_pending: Option<&Bound<'py, PyAny>>,
        on_error: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let (py, base) = (slf.py(), slf.as_super().get());
        let _call = ForeignCall::enter(py)?;
        base.check_new()?;
        let clock = Clock::manual(start_ms.map_or(Ok(0), settings::start_ms)?);
        let manual = "manual".into_pyobject(py)?.into_any();
        let name = name.unwrap_or(&manual);
        let wheel = WheelSettings { tick_ms, wheel_size, precision, slack_us: Given::LEFT_OUT };
        let settings = Settings { name, wheel, max_pending, on_error };
        let shared = Arc::new(settings.build(clock, Driver::Manual, CallbackTarget::Own)?);
        let share = Share::new(py, &shared)?;
        base.initialize(Own::new(shared), share)
    }

    /// Move the clock by `ms`, running what comes due on the way; returns how many tasks ran.
    ///
    /// Errors: `ValueError` for a negative time, `RuntimeError` for an advance while another one goes on.
    #[pyo3(signature = (ms))]
    fn advance(slf: &Bound<'_, Self>, ms: &Bound<'_, PyAny>) -> PyResult<usize> {
        let Some(drive) = Drive::of(slf)? else { return Ok(0) };
        let by = args::ms(ms, "ms")?;
        if by.0 < 0.0 {
            return Err(PyValueError::new_err(format!("a clock never goes back, got {} ms: pass 0 or more", by.0)));
        }
        let now_us = drive.shared.timer.clock().now_us();
        drive.advance_until(ms.py(), now_us.saturating_add(by.to_us()))
    }

    /// Move the clock to this instant; as `advance`.
    #[pyo3(signature = (now_ms))]
    fn advance_to(slf: &Bound<'_, Self>, now_ms: &Bound<'_, PyAny>) -> PyResult<usize> {
        let Some(drive) = Drive::of(slf)? else { return Ok(0) };
        let to = args::ms(now_ms, "now_ms")?;
        let now_us = drive.shared.timer.clock().now_us();
        if to.to_us() < now_us || to.0 < 0.0 {
            return Err(PyValueError::new_err(format!(
                "a clock never goes back, got {} ms where it reads {} ms: pass a later instant",
                to.0,
                now_us as f64 / 1000.0
            )));
        }
        drive.advance_until(now_ms.py(), to.to_us())
    }

    /// Move the clock to the next bucket or instant, a cascade included; `False` if nothing is pending.
    fn run_next(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let Some(drive) = Drive::of(slf)? else { return Ok(false) };
        let py = slf.py();
        let _token = drive.start(py)?;
        if drive.run_line(py)? > 0 {
            return Ok(true);
        }
        let Some(event_us) = drive.next_event_us(py) else { return Ok(false) };
        drive.step_to(py, event_us)?;
        Ok(true)
    }

    /// Stop: accept no more, run what is due by now, and return the tasks still pending, in order [T11].
    ///
    /// `timeout_ms` bounds the wait for callbacks; what has not started by then counts as pending. InsideCallback one of the
    /// timer's own callbacks, and in a signal handler or a destructor that interrupts a shutdown of the same thread,
    /// it waits for nothing. The list stays in `unfinished`; calling twice is fine.
    #[pyo3(signature = (timeout_ms=None))]
    fn shutdown<'py>(slf: &Bound<'py, Self>, timeout_ms: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyList>> {
        let (py, base) = (slf.py(), slf.as_super().get());
        let Some(drive) = Drive::of(slf)? else { return base.unfinished(py) };
        timeout_ms.map(|timeout_ms| args::ms(timeout_ms, "timeout_ms")).transpose()?;
        let shared = drive.shared;
        shared.check_process(py)?;
        if let Some(done) = base.unfinished_list(py) {
            return Ok(done);
        }
        shared.detach(py, || shared.timer.close());
        // InsideCallback a callback it runs nothing: what has not started is still pending.
        let result = match drive.token(py) {
            Ok(_token) => drive.run_line(py).and_then(|_| drive.step_to(py, shared.timer.clock().now_us())).map(drop),
            Err(_) => Ok(()),
        };
        let unfinished = base.keep_unfinished(py)?;
        result.map(|()| unfinished)
    }
}

/// Held by the one advance that is under way.
struct Token<'a>(&'a AtomicBool);

impl Drop for Token<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A timer that was initialized, and how far it is.
struct Drive<'a> {
    _open: Open<'a>,
    shared: &'a Arc<Shared>,
    manual: &'a ManualTimer,
}

impl<'a> Drive<'a> {
    /// `None` at the end of the interpreter.
    fn of(timer: &'a Bound<'_, ManualTimer>) -> PyResult<Option<Self>> {
        let base = timer.as_super().get();
        let shared = base.shared()?;
        Ok(base.try_open(timer.py())?.map(|open| Self { _open: open, shared, manual: timer.get() }))
    }

    fn start(&self, py: Python<'_>) -> PyResult<Token<'_>> {
        let token = self.token(py)?;
        if self.shared.lock(py)?.is_closed {
            return Err(errors::closed(py, &self.shared.name));
        }
        Ok(token)
    }

    fn token(&self, py: Python<'_>) -> PyResult<Token<'_>> {
        self.shared.check_process(py)?;
        if self.manual.is_advancing.swap(true, Ordering::Acquire) {
            let why = if InsideCallback::is(self.shared) {
                "a callback can't move the clock that it runs on"
            } else {
                "another call moves its clock; let one thread at a time do so"
            };
            return Err(PyRuntimeError::new_err(format!("timer '{}' is advancing already: {why}", self.shared.name)));
        }
        Ok(Token(&self.manual.is_advancing))
    }

    fn advance_until(&self, py: Python<'_>, to_us: u64) -> PyResult<usize> {
        if to_us >= LIMIT_MS * 1000 {
            return Err(PyValueError::new_err(format!(
                "a clock must stay below 2^52 ms, got {} ms: start it lower",
                to_us / 1000
            )));
        }
        let _token = self.start(py)?;
        let clock = self.shared.timer.clock();
        let mut count = self.run_line(py)?;
        while let Some(event_us) = self.next_event_us(py).filter(|event_us| *event_us <= to_us) {
            count += self.step_to(py, event_us)?;
        }
        clock.set_us(to_us);
        Ok(count)
    }

    fn next_event_us(&self, py: Python<'_>) -> Option<u64> {
        self.shared.detach(py, || self.shared.timer.next_event_us())
    }

    /// Moves the clock to an instant at which something happens, and runs what is released there.
    fn step_to(&self, py: Python<'_>, now_us: u64) -> PyResult<usize> {
        let mut released = Vec::new();
        self.shared.detach(py, || {
            self.shared.timer.clock().set_us(now_us);
            self.shared.timer.advance(&mut |batch: Released| released.push(batch));
        });
        self.manual.line.with(py, |line| released.into_iter().for_each(|batch| line.append(batch)));
        self.run_line(py)
    }

    fn run_line(&self, py: Python<'_>) -> PyResult<usize> {
        let _inside = InsideCallback::enter(self.shared);
        let mut line = self.manual.line.with(py, std::mem::take);
        let mut count = 0;
        while let Some(unit) = dispatch::next_unit(py, self.shared, &mut line, None, 0) {
            count += unit.len();
            let result = dispatch::run(py, self.shared, &unit, true);
            self.shared.check_process(py)?; // the callback may have forked, and this may be the child
            dispatch::finish(py, self.shared, unit.len());
            if let Err(error) = result {
                self.manual.line.with(py, |kept| *kept = line);
                return Err(error);
            }
        }
        Ok(count)
    }
}
