//! `ManualTimer`: the same wheel on a clock that only its callers move (T15).
//!
//! It has no threads: callbacks run in the calling thread, while the clock shows the moment of their release.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::core::inside_callback::InsideCallback;
use crate::core::settings::{self, Settings, WheelSettings};
use crate::core::timer_core::{Driver, TimerCore};
use crate::core::timer_ref::TimerRef;
use crate::driving::timer_object::{EnteredTimer, Timer};
use crate::engine::dispatch;
use crate::tools::args::Omittable;
use crate::tools::errors;
use crate::tools::finalizing::ForeignCall;
use crate::tools::fork::ProcessOwned;
use crate::tools::gil_cell::GilCell;
use crate::tools::times;
use crate::values::callback_scope;
use crate::values::callback_target::CallbackTarget;
use crate::values::due_line::DueLine;
use tickwheel::{Clock, LIMIT_MS, Released, Timer as Native};

/// The same wheel on a clock that only the caller moves: deterministic, no threads.
///
/// Callbacks run in the calling thread, while the clock shows the moment of their release. Their exceptions go to
/// `on_error`. With `strict=True` they come out of `advance`, so an assertion in a callback fails the test.
/// `KeyboardInterrupt` and `SystemExit` always do. The remaining tasks run at the next advance. After Kafka's
/// `MockTimer`.
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
    /// Tasks that were released and have not run, after a `KeyboardInterrupt`.
    line: GilCell<DueLine>,
    is_strict: OnceLock<bool>,
}

#[pymethods]
impl ManualTimer {
    /// Takes any arguments, as the `__init__` of a subclass may; `ManualTimer.__init__` fills the object in.
    #[new]
    #[pyo3(
        signature = (*_args, **_kwargs),
        text_signature = "(name='manual', *, tick_ms=1, wheel_size=20, start_ms=0, precision='exact', \
            max_pending=None, on_error=None, strict=False)"
    )]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyClassInitializer<Self> {
        let manual =
            Self { is_advancing: AtomicBool::new(false), line: GilCell::default(), is_strict: OnceLock::new() };
        PyClassInitializer::from(Timer::empty()).add_subclass(manual)
    }

    #[pyo3(
        signature = (
            name=None, *, tick_ms=Omittable::OMITTED, wheel_size=Omittable::OMITTED, start_ms=None, precision=Omittable::OMITTED, max_pending=None, on_error=None,
            strict=Omittable::OMITTED
        )
    )]
    #[expect(clippy::too_many_arguments, reason = "they are the keyword arguments of the Python class")]
    fn __init__<'py>(
        slf: &Bound<'py, Self>,
        name: Option<&Bound<'py, PyAny>>,
        tick_ms: Omittable<'py>,
        wheel_size: Omittable<'py>,
        start_ms: Option<&Bound<'py, PyAny>>,
        precision: Omittable<'py>,
        max_pending: Option<&Bound<'py, PyAny>>,
        on_error: Option<&Bound<'py, PyAny>>,
        strict: Omittable<'py>,
    ) -> PyResult<()> {
        let (py, base) = (slf.py(), slf.as_super().get());
        let _call = ForeignCall::enter(py)?;
        base.check_new()?;
        let is_strict = strict.flag("strict", false, "with True what a callback raises comes out of advance()")?;
        if is_strict && on_error.is_some() {
            let text = "strict=True gives what a callback raises to the caller of advance(), and on_error would never be called: \
                        give one of both";
            return Err(PyValueError::new_err(text));
        }
        let clock = Clock::manual(start_ms.map_or(Ok(0), settings::start_ms)?);
        let manual = "manual".into_pyobject(py)?.into_any();
        let name = name.unwrap_or(&manual);
        let wheel = WheelSettings { tick_ms, wheel_size, precision, slack_us: Omittable::OMITTED };
        let settings = Settings { name, wheel, max_pending, on_error };
        let core = Arc::new(settings.build(clock, Driver::Manual, CallbackTarget::OwnThread)?);
        let timer_ref = TimerRef::new(py, &core)?;
        timer_ref.get().set_timer(slf.as_any())?;
        base.initialize(ProcessOwned::new(core), timer_ref)?;
        let _ = slf.get().is_strict.set(is_strict); // it was not initialized before
        Ok(())
    }

    /// Move the clock by `ms` and run the tasks that become due on the way. Returns how many ran.
    ///
    /// Errors: `ValueError` for a negative time, `RuntimeError` if another advance is in progress.
    #[pyo3(signature = (ms))]
    fn advance(slf: &Bound<'_, Self>, ms: &Bound<'_, PyAny>) -> PyResult<usize> {
        let Some(driver) = ManualDriver::of(slf)? else { return Ok(0) };
        let by = times::ms(ms, "ms")?;
        if by.0 < 0.0 {
            return Err(PyValueError::new_err(format!("a clock never goes back, got {} ms: pass 0 or more", by.0)));
        }
        let now_us = driver.core.timer.clock().now_us();
        driver.advance_until(ms.py(), now_us.saturating_add(by.to_us()))
    }

    /// Move the clock to this instant, as `advance`.
    #[pyo3(signature = (now_ms))]
    fn advance_to(slf: &Bound<'_, Self>, now_ms: &Bound<'_, PyAny>) -> PyResult<usize> {
        let Some(driver) = ManualDriver::of(slf)? else { return Ok(0) };
        let to = times::ms(now_ms, "now_ms")?;
        let now_us = driver.core.timer.clock().now_us();
        if to.to_us() < now_us || to.0 < 0.0 {
            return Err(PyValueError::new_err(format!(
                "a clock never goes back, got {} ms where it reads {} ms: pass a later instant",
                to.0,
                now_us as f64 / 1000.0
            )));
        }
        driver.advance_until(now_ms.py(), to.to_us())
    }

    /// Move the clock to the next bucket or instant, including cascades. `False` if nothing is pending.
    fn run_next(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let Some(driver) = ManualDriver::of(slf)? else { return Ok(false) };
        let py = slf.py();
        let _token = driver.start(py)?;
        if driver.run_line(py)? > 0 {
            return Ok(true);
        }
        let Some(event_us) = driver.next_event_us(py) else { return Ok(false) };
        driver.step_to(py, event_us)?;
        Ok(true)
    }

    // `help` shows the docstring of `Timer`.
    #[pyo3(
        signature = (timeout_ms=None, *, wait_pending=Omittable::OMITTED),
        text_signature = "($self, timeout_ms=None, *, wait_pending=False)"
    )]
    fn shutdown<'py>(
        slf: &Bound<'py, Self>,
        timeout_ms: Option<&Bound<'py, PyAny>>,
        wait_pending: Omittable<'py>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (py, base) = (slf.py(), slf.as_super().get());
        let Some(driver) = ManualDriver::of(slf)? else { return base.unfinished(py) };
        let timeout = timeout_ms.map(|timeout_ms| times::ms(timeout_ms, "timeout_ms")).transpose()?;
        let waits = wait_pending.flag("wait_pending", false, "with True what is pending runs first")?;
        let core = driver.core;
        core.check_process(py)?;
        if let Some(done) = base.unfinished_list(py) {
            return Ok(done);
        }
        if waits && !InsideCallback::is_inside(core) {
            let limit_us =
                timeout.map_or(u64::MAX, |timeout| core.timer.clock().now_us().saturating_add(timeout.to_us()));
            let _token = driver.start(py)?;
            driver.run_line(py)?;
            while let Some(event_us) = driver.next_event_us(py).filter(|event_us| *event_us <= limit_us) {
                driver.step_to(py, event_us)?;
            }
        }
        core.detach(py, Native::close);
        // Inside a callback it runs nothing: tasks that have not started are still pending.
        let result = match driver.token(py) {
            Ok(_token) => driver.run_line(py).and_then(|_| driver.step_to(py, core.timer.clock().now_us())).map(drop),
            Err(_) => Ok(()),
        };
        let unfinished = base.keep_unfinished(py)?;
        result.map(|()| unfinished)
    }
}

/// Held by the one advance that is in progress.
struct AdvanceToken<'a>(&'a AtomicBool);

impl Drop for AdvanceToken<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// An initialized timer, during a call that drives it.
struct ManualDriver<'a> {
    _entered: EnteredTimer<'a>,
    core: &'a Arc<TimerCore>,
    manual: &'a ManualTimer,
}

impl<'a> ManualDriver<'a> {
    /// `None` at the end of the interpreter.
    fn of(timer: &'a Bound<'_, ManualTimer>) -> PyResult<Option<Self>> {
        let base = timer.as_super().get();
        let core = base.core()?;
        Ok(base.try_enter(timer.py())?.map(|entered| Self { _entered: entered, core, manual: timer.get() }))
    }

    fn start(&self, py: Python<'_>) -> PyResult<AdvanceToken<'_>> {
        let token = self.token(py)?;
        if self.core.lock(py)?.is_closed {
            return Err(errors::timer_closed(py, &self.core.name));
        }
        Ok(token)
    }

    fn token(&self, py: Python<'_>) -> PyResult<AdvanceToken<'_>> {
        self.core.check_process(py)?;
        if self.manual.is_advancing.swap(true, Ordering::Acquire) {
            let why = if InsideCallback::is_inside(self.core) {
                "a callback can't move the clock that it runs on"
            } else {
                "another call is moving its clock; use one thread at a time"
            };
            return Err(PyRuntimeError::new_err(format!("timer '{}' is advancing already: {why}", self.core.name)));
        }
        Ok(AdvanceToken(&self.manual.is_advancing))
    }

    fn advance_until(&self, py: Python<'_>, to_us: u64) -> PyResult<usize> {
        if to_us >= LIMIT_MS * 1000 {
            return Err(PyValueError::new_err(format!(
                "a clock must stay below 2^52 ms, got {} ms: start it lower",
                to_us / 1000
            )));
        }
        let _token = self.start(py)?;
        let clock = self.core.timer.clock();
        let mut count = self.run_line(py)?;
        while let Some(event_us) = self.next_event_us(py).filter(|event_us| *event_us <= to_us) {
            count += self.step_to(py, event_us)?;
        }
        clock.set_us(to_us);
        Ok(count)
    }

    fn next_event_us(&self, py: Python<'_>) -> Option<u64> {
        self.core.detach(py, Native::next_event_us)
    }

    /// Moves the clock to an instant at which something happens, and runs the tasks that are released there.
    fn step_to(&self, py: Python<'_>, now_us: u64) -> PyResult<usize> {
        let mut released = Vec::new();
        self.core.detach(py, |timer| {
            timer.clock().set_us(now_us);
            timer.advance(&mut |batch: Released| released.push(batch));
        });
        self.manual.line.with(py, |line| released.into_iter().for_each(|batch| line.append(batch)));
        self.run_line(py)
    }

    fn run_line(&self, py: Python<'_>) -> PyResult<usize> {
        let _inside = InsideCallback::enter(self.core);
        let mut line = self.manual.line.with(py, std::mem::take);
        let mut count = 0;
        while let Some(call) = dispatch::claim_next(py, self.core, &mut line, None, 0) {
            count += call.len();
            let outer = callback_scope::set_strict(self.manual.is_strict.get() == Some(&true));
            let result = dispatch::call(py, self.core, &call, true);
            callback_scope::set_strict(outer);
            self.core.check_process(py)?; // the callback may have forked, and this may be the child
            dispatch::finish_claims(py, self.core, call.len());
            if let Err(error) = result {
                self.manual.line.with(py, |kept| *kept = line);
                return Err(error);
            }
        }
        Ok(count)
    }
}
