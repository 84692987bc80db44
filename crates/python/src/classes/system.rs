//! `SystemTimer`: the timer with a reaper and an executor.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::core::inside_callback::InsideCallback;
use crate::core::settings::{self, Settings, WheelSettings};
use crate::core::timer_core::{Driver, TimerCore};
use crate::core::timer_ref::TimerRef;
use crate::driving::timer_object::Timer;
use crate::driving::worker;
use crate::tools::args::Omittable;
use crate::tools::errors;
use crate::tools::finalizing::ForeignCall;
use crate::tools::fork::ProcessOwned;
use crate::tools::native_lock::{self, SIGNAL_CHECK_US};
use crate::tools::timerfd::SystemClock;
use crate::tools::times;
use crate::values::callback_target::CallbackTarget;
use crate::values::turnstile::{Entry, Turnstile};
use tickwheel::internal::sync::{self, unbounded};
use tickwheel::{Clock, Wait};

/// A timer for very many deadlines, on a hierarchical timing wheel; O(1) add and cancel.
///
/// `tick_ms`: the tick of the finest level. `wheel_size`: buckets per level, or a sequence with one size per level; the
/// last one repeats. `start_ms`: the first reading of the clock; by default that of the system's monotonic clock.
/// `reaper`: threads of the timer drive the clock; with `False` the program calls `advance_clock`. `executor`: where
/// callbacks run. The default is one thread, `executor-<name>`. It may be a `concurrent.futures.Executor` of threads,
/// or an asyncio loop, which also runs coroutine functions, as tasks of the loop (the timer counts one as running only
/// during the call). `precision`: `"exact"` to the microsecond, or `"tick"`, as in Kafka: up to one tick early, fewest
/// wake-ups. `slack_us`: the minimum time between two wake-ups, by which a task may be late. A given number always
/// holds. The default is 100; above 2,000 wake-ups in a second it grows to at most 1,000, until there are fewer than
/// 500. `max_pending`: the maximum number of pending tasks; an add that would exceed it raises `TimerFull`.
/// `on_error(task, exception)`: called with the `TimerTask`, or the `TaskBatch` of `add_many`, and what its callback
/// raised: an `Exception`, on a thread of the timer also `KeyboardInterrupt` and `SystemExit`. By default that goes
/// to the exception handler of the loop, or to the logger `tickwheel`, which tells of repeats within a minute by
/// their count. `clock`: `"boottime"` goes on while the machine is suspended, so that what came due meanwhile runs as
/// soon as the machine is awake; only on Linux. After Kafka's `SystemTimer`.
///
/// >>> with SystemTimer("demo") as timer:
/// ...     task = timer.after(60_000, print, "a minute has passed")
/// ...     task.cancel()
/// True
#[pyclass(frozen, extends = Timer, subclass, module = "tickwheel")]
pub(crate) struct SystemTimer {
    /// Entered by the one thread that shuts the timer down.
    ending: Turnstile,
}

#[pymethods]
impl SystemTimer {
    /// Takes any arguments, as the `__init__` of a subclass may; `SystemTimer.__init__` fills the object in.
    #[new]
    #[pyo3(
        signature = (*_args, **_kwargs),
        text_signature = "(name, tick_ms=1, wheel_size=20, start_ms=None, *, reaper=True, executor=None, \
            precision='exact', slack_us=100, max_pending=None, on_error=None, clock='monotonic')"
    )]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyClassInitializer<Self> {
        PyClassInitializer::from(Timer::empty()).add_subclass(Self { ending: Turnstile::default() })
    }

    #[pyo3(
        signature = (
            name, tick_ms=Omittable::OMITTED, wheel_size=Omittable::OMITTED, start_ms=None, *, reaper=Omittable::OMITTED, executor=None,
            precision=Omittable::OMITTED, slack_us=Omittable::OMITTED, max_pending=None, on_error=None, clock=None
        )
    )]
    #[expect(clippy::too_many_arguments, reason = "they are the keyword arguments of the Python class")]
    fn __init__<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyAny>,
        tick_ms: Omittable<'py>,
        wheel_size: Omittable<'py>,
        start_ms: Option<&Bound<'py, PyAny>>,
        reaper: Omittable<'py>,
        executor: Option<&Bound<'py, PyAny>>,
        precision: Omittable<'py>,
        slack_us: Omittable<'py>,
        max_pending: Option<&Bound<'py, PyAny>>,
        on_error: Option<&Bound<'py, PyAny>>,
        clock: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let (py, base) = (slf.py(), slf.as_super().get());
        let _call = ForeignCall::enter(py)?;
        base.check_new()?;
        let clock = SystemClock::from_python(clock)?;
        let start_us = match start_ms {
            Some(start_ms) => settings::start_ms(start_ms)? * 1000,
            None if clock == SystemClock::Boottime => clock.now_ns() / 1000,
            None => py.import("time")?.call_method0("monotonic_ns")?.extract::<u64>()? / 1000,
        };
        let clock = match clock {
            SystemClock::Monotonic => Clock::monotonic_us(start_us),
            SystemClock::Boottime => {
                Clock::boottime_us(start_us).map_err(|error| PyValueError::new_err(error.to_string()))?
            }
        };
        let target = CallbackTarget::from_python(executor)?;
        let reaper = reaper.flag("reaper", true, "with False call advance_clock")?;
        let wheel = WheelSettings { tick_ms, wheel_size, precision, slack_us };
        let settings = Settings { name, wheel, max_pending, on_error };
        let driver = if reaper { Driver::Reaper } else { Driver::Caller };
        let core = Arc::new(settings.build(clock, driver, target)?);
        let timer_ref = TimerRef::new(py, &core)?;
        timer_ref.get().set_timer(slf.as_any())?;
        let started = start_threads(py, &core);
        let result = started.and_then(|()| base.initialize(ProcessOwned::new(Arc::clone(&core)), timer_ref));
        // An `__init__` that fails leaves no thread.
        result.inspect_err(|_| worker::stop_and_join(py, &core))
    }

    /// Wait at most `timeout_ms` until something is due, and advance the clock. Only with `reaper=False`.
    ///
    /// Returns whether a bucket was due or a task was released: `while timer.advance_clock(2000): pass` drains the
    /// timer. Errors: `RuntimeError` with a reaper, `TimerClosed`, `TimerForked`.
    #[pyo3(signature = (timeout_ms))]
    fn advance_clock(slf: &Bound<'_, Self>, timeout_ms: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = slf.py();
        let entered = slf.as_super().get().enter(py)?;
        let core = entered.core();
        let timeout = times::ms(timeout_ms, "timeout_ms")?;
        core.check_process(py)?;
        if core.driver == Driver::Reaper {
            return Err(PyRuntimeError::new_err(format!(
                "timer '{}' has a reaper that drives its clock: make it with reaper=False to drive it yourself",
                core.name
            )));
        }
        let clock = core.timer.clock();
        let limit_us = clock.now_us().saturating_add(timeout.to_us());
        loop {
            let slice_us = limit_us.min(clock.now_us().saturating_add(SIGNAL_CHECK_US));
            let wait = core.detach(py, |timer| {
                let _one_driver = core.threads.driving.lock();
                timer.wait_for_work(0_u64.into(), slice_us)
            });
            match wait {
                Wait::Closed => return Err(errors::timer_closed(py, &core.name)),
                Wait::Due => {
                    let progress = core.detach(py, |timer| {
                        let mut queue = core.threads.queue.lock().clone()?;
                        Some(timer.advance(&mut queue))
                    });
                    return progress
                        .map(|progress| !progress.is_idle())
                        .ok_or_else(|| errors::timer_closed(py, &core.name));
                }
                Wait::TimedOut if slice_us == limit_us => return Ok(false),
                Wait::TimedOut => core.check_signals(py)?,
            }
        }
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
        let (py, this, base) = (slf.py(), slf.get(), slf.as_super().get());
        let Some(entered) = base.try_enter(py)? else { return base.unfinished(py) };
        let timeout = timeout_ms.map(|timeout_ms| times::ms(timeout_ms, "timeout_ms")).transpose()?;
        let waits = wait_pending.flag("wait_pending", false, "with True it waits for what is pending")?;
        let core = entered.core();
        core.check_process(py)?;
        let is_on_loop = core.callees.target(py).is_loop_of_this_thread(py)?;
        if waits && is_on_loop && !core.lock(py)?.is_closed {
            return Err(PyRuntimeError::new_err(format!(
                "timer '{}' runs its callbacks on the loop of this thread, and a wait for them would block that: call `await \
                 timer.aclose(wait_pending=True)` in a coroutine",
                core.name
            )));
        }
        let is_inside = is_on_loop || InsideCallback::is_inside(core);
        let limit_us = timeout.map(|timeout| core.timer.clock().now_us().saturating_add(timeout.to_us()));
        if waits && !is_inside {
            wait_for_pending(py, core, limit_us.unwrap_or(u64::MAX))?;
        }
        let entry = if is_inside {
            this.ending.try_enter(py)
        } else {
            let until = timeout.and_then(|timeout| Instant::now().checked_add(Duration::from_micros(timeout.to_us())));
            this.ending.enter(py, until, || core.check_signals(py))?
        };
        match entry {
            // Another thread shuts the timer down, and will return the remaining tasks.
            Entry::OtherThread if is_inside => Ok(PyList::empty(py)),
            Entry::Entered(_) if !is_inside => finish(py, base, limit_us.unwrap_or(u64::MAX), true),
            // In a callback, or inside a shutdown of the same thread, it would wait for itself. If another thread shuts
            // the timer down for longer than this one may wait, the time is up.
            Entry::Entered(_) | Entry::SameThread | Entry::OtherThread => finish(py, base, 0, false),
        }
    }
}

/// Waits until nothing is pending or running, or the timer is closed. A thread of the program drives the clock, if the timer has no
/// reaper.
fn wait_for_pending(py: Python<'_>, core: &Arc<TimerCore>, limit_us: u64) -> PyResult<()> {
    loop {
        let left_us = limit_us.saturating_sub(core.timer.clock().now_us());
        let slice = Duration::from_micros(left_us.min(SIGNAL_CHECK_US));
        if core.detach(py, |timer| timer.wait_empty(Some(slice))) || left_us <= SIGNAL_CHECK_US {
            return Ok(());
        }
        core.check_signals(py)?;
    }
}

/// T11: closes the timer, advances it once more, waits for what is due, and returns the remaining tasks. A second call
/// only waits for callbacks that are still running. Another thread, a signal handler or a destructor may do the same
/// meanwhile.
fn finish<'py>(py: Python<'py>, base: &Timer, limit_us: u64, joins: bool) -> PyResult<Bound<'py, PyList>> {
    let core = base.core()?;
    if base.unfinished_list(py).is_none() {
        let queue = py.detach(|| core.threads.queue.lock().clone());
        core.end_threads(py);
        core.detach(py, |timer| queue.map(|mut queue| timer.advance(&mut queue)));
    }
    // An interrupt ends the wait, but the remaining tasks are kept all the same.
    let finished = core.wait_idle(py, limit_us);
    core.check_process(py)?; // a signal handler may have forked, and this may be the child
    let unfinished = base.keep_unfinished(py)?;
    if finished? && joins {
        let worker = core.threads.worker.with(py, |worker| worker.as_ref().map(|worker| worker.clone_ref(py)));
        worker.map(|worker| worker.call_method0(py, "join")).transpose()?;
    }
    Ok(unfinished)
}

fn start_threads(py: Python<'_>, core: &Arc<TimerCore>) -> PyResult<()> {
    let (queue, released) = unbounded();
    *core.threads.queue.lock() = Some(queue.clone());
    worker::start(py, core, released)?;
    if core.driver == Driver::Reaper {
        let (native, mut queue) = (core.timer.for_detached_thread(), queue);
        let body = move || {
            native_lock::this_thread_is_a_reaper();
            native.drive(&mut queue);
        };
        let thread = sync::spawn(&format!("reaper-{}", core.name), body).map_err(|error| {
            PyRuntimeError::new_err(format!("the system could not start a thread for timer '{}': {error}", core.name))
        })?;
        *core.threads.reaper.lock() = Some(thread);
    }
    Ok(())
}
