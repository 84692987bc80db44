//! The class `LoopTimers`: the timers of an event loop, as Python sees them (T21).
//!
//! **Garbage.** A pending handle is off the collector's lists: with a million of them a full collection would stop the loop
//! for a quarter of a second. The timers show the collector what those handles refer to that nobody else holds. One that
//! somebody else holds too has to be on the lists for a full collection, or a loop that was left unclosed would never be
//! freed: `loop_collecting.rs` puts those there before one begins.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyTuple};

use crate::classes::loop_collecting;
use crate::classes::loop_objects::{self as object, Inner, LoopHandle, LoopTime, LoopTimers, NextDue};
use crate::tools::args;
use crate::tools::errors;
use crate::tools::finalizing::{self, ForeignCall};
use crate::tools::gil_cell;
use crate::tools::made_once::{MadeOnce, intern};
use crate::tools::python_clock;
use crate::tools::timerfd::SystemClock;
use crate::tools::times::{self, LoopUse};

/// How long due callbacks run before the loop has its turn.
const TURN_NS: u64 = 1_000_000;
const MOST_TOGETHER: u32 = 1000;

static COPY_CONTEXT: MadeOnce<Py<PyAny>> = MadeOnce::new();
static LOGGER: MadeOnce<Py<PyAny>> = MadeOnce::new();
static EXTRACT_STACK: MadeOnce<Py<PyAny>> = MadeOnce::new();

#[pymethods]
impl LoopTimers {
    #[new]
    #[pyo3(signature = (event_loop, *, is_beside=false, slack_us=None, clock=None))]
    fn __new__(
        py: Python<'_>,
        event_loop: Py<PyAny>,
        is_beside: bool,
        slack_us: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let _call = ForeignCall::enter(py)?;
        let hint = "leave it out to wake for each timer";
        let slack_us = slack_us.map_or(Ok(0), |it| args::int_in(it, "slack_us", 0, 1 << 40, hint))?;
        Self::make(py, event_loop, is_beside, slack_us, SystemClock::from_python(clock)?)
    }

    /// Call `callback(*args)` on the loop in `delay` seconds, a number or a `timedelta`. Returns its handle.
    ///
    /// Never early; O(levels). `context`: by default a copy of the current one. What the callback raises goes to the
    /// loop's exception handler. Errors: `ValueError`, `TypeError`; `RuntimeError` on a closed loop; `TimerForked`.
    #[pyo3(signature = (delay, callback, *args, context=None))]
    fn call_later<'py>(
        slf: &Bound<'py, Self>,
        delay: &Bound<'py, PyAny>,
        callback: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        context: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let delay = times::loop_seconds(delay, "delay", LoopUse::Delay)?;
        if python_clock::is_replaced(slf.py())? {
            return slf.get().add_to_loop("call_later", delay, callback, args, context);
        }
        let now_ns = slf.get().clock.now_ns();
        let when = LoopTime { seconds: now_ns as f64 / 1e9 + delay, is_int: false };
        Ok(Self::add(slf, when, now_ns, callback, args, context)?.into_any())
    }

    /// As `call_later`, at a time of the loop's clock.
    #[pyo3(signature = (when, callback, *args, context=None))]
    fn call_at<'py>(
        slf: &Bound<'py, Self>,
        when: &Bound<'py, PyAny>,
        callback: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        context: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let seconds = times::loop_seconds(when, "when", LoopUse::Time)?;
        if python_clock::is_replaced(slf.py())? {
            return slf.get().add_to_loop("call_at", when, callback, args, context);
        }
        // A large negative int is read as minus infinity.
        let when = LoopTime { seconds, is_int: when.is_instance_of::<PyInt>() && seconds.is_finite() };
        Ok(Self::add(slf, when, slf.get().clock.now_ns(), callback, args, context)?.into_any())
    }

    /// The time in seconds: that of `time.monotonic`, or of `CLOCK_BOOTTIME`.
    fn time(&self, py: Python<'_>) -> PyResult<f64> {
        if python_clock::is_replaced(py)?
            && let Some(event_loop) = self.event_loop(py)
        {
            return event_loop.bind(py).get_type().call_method1(intern!(py, "time"), (event_loop,))?.extract();
        }
        Ok(self.clock.now_ns() as f64 / 1e9)
    }

    /// How many callbacks are pending.
    fn __len__(&self, py: Python<'_>) -> usize {
        self.with(py, |inner| inner.len())
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// The descriptor that the loop watches for reading.
    fn fileno(&self) -> i32 {
        self.fd()
    }

    /// The shortest time between two wake-ups, in microseconds.
    #[getter]
    fn slack_us(&self, py: Python<'_>) -> u64 {
        self.with(py, |inner| inner.slack_us)
    }

    /// The clock: `"monotonic"` or `"boottime"`.
    #[getter]
    fn clock(&self) -> &'static str {
        self.clock.name()
    }

    /// Runs what is due, in order, for about a millisecond; the loop calls it when the descriptor is readable.
    ///
    /// What is due at the same time runs in the same turn, as on asyncio's loop, however slow the machine: two time-outs
    /// of one deadline both expire. Where a thousand and more are due at the same time, a turn may end among them.
    fn _run_due(&self, py: Python<'_>) -> PyResult<()> {
        let Some(_call) = ForeignCall::try_enter(py) else { return Ok(()) };
        if self.is_forked() {
            return self.tell_child(py);
        }
        let Some(event_loop) = self.event_loop(py) else { return Ok(()) };
        let event_loop = event_loop.into_bound(py);
        let began_ns = self.clock.now_ns();
        let now_us = began_ns / 1000;
        // A `get_debug` that raises is reported after the callbacks. The turn ends all the same, or the loop would spin.
        let (slow_s, asked) = slow_s(&event_loop).map_or_else(|error| (None, Err(error)), |slow_s| (slow_s, Ok(())));
        self.with(py, |inner| inner.begin_turn(now_us));
        let until_ns = began_ns + TURN_NS;
        let (mut last_us, mut together) = (None, 0);
        let result = loop {
            let ran = match self.with(py, |inner| inner.next_due(now_us)) {
                NextDue::Nothing => break Ok(()),
                NextDue::Later => Ok(()),
                NextDue::Call(handle, due_us) => {
                    together = if last_us == Some(due_us) { together + 1 } else { 1 };
                    last_us = Some(due_us);
                    match slow_s {
                        None => LoopHandle::run(handle.bind(py), &event_loop),
                        Some(slow_s) => run_watched(handle.bind(py), &event_loop, slow_s),
                    }
                }
            };
            if self.is_forked() {
                return ran.and_then(|()| self.tell_child(py)); // the callback has forked, and what is left is the parent's
            }
            let is_over = || match last_us {
                Some(due_us) if together < MOST_TOGETHER => !self.with(py, |inner| inner.continues(due_us)),
                _ => true,
            };
            if ran.is_err() || (self.clock.now_ns() >= until_ns && is_over()) {
                break ran;
            }
        };
        self.with(py, Inner::end_turn);
        result.and(asked)
    }

    /// Lets go of all that is pending; nothing is accepted any more.
    #[pyo3(name = "_close")]
    fn close(&self, py: Python<'_>) {
        let leftover = self.with(py, Inner::close);
        let mut taken = Vec::new();
        for page in 0.. {
            let Some(entries) = leftover.schedule.page(page) else { break };
            for (_, _, handle) in entries {
                taken.push(handle.get().take(py));
            }
        }
        finalizing::drop_or_leak((taken, leftover));
    }

    /// From now on each full collection begins with `loop_collecting::show_held`.
    fn _prepare_collections(slf: &Bound<'_, Self>) -> PyResult<()> {
        loop_collecting::know(slf)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(errors::not_picklable("LoopTimers"))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (count, event_loop) =
            self.with(py, |inner| (inner.len(), inner.event_loop.as_ref().map(|event_loop| event_loop.clone_ref(py))));
        Ok(match event_loop {
            Some(event_loop) => format!("<LoopTimers {count} pending, of {}>", event_loop.bind(py).repr()?),
            None => "<LoopTimers closed>".to_owned(),
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.visit(&visit, |inner| {
            visit.call(&inner.event_loop)?;
            for page in 0.. {
                let Some(entries) = inner.schedule.page(page) else { break };
                for (_, _, handle) in entries {
                    if gil_cell::is_tracked(handle, &visit) {
                        visit.call(handle)?;
                    } else if gil_cell::is_held_once(handle, &visit) {
                        handle.get().visit_content(&visit)?;
                    }
                }
            }
            Ok(())
        })
        .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        self.close(py);
    }
}

impl LoopTimers {
    /// Makes the loop itself call it. The wheel reads the clock of the system, and a test has put another one in its place.
    #[cold]
    fn add_to_loop<'py>(
        &self,
        method: &str,
        time: impl IntoPyObject<'py>,
        callback: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        context: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = callback.py();
        args::callable(callback, "callback")?;
        self.check_process(py)?;
        let event_loop = self.event_loop(py).ok_or_else(object::loop_is_closed)?.into_bound(py);
        let options = PyDict::new(py);
        options.set_item("context", context)?;
        let given = (&event_loop, time, callback).into_pyobject(py)?;
        let all = given.as_sequence().concat(args.as_sequence())?.to_tuple()?;
        // The method of the class: that of the object may be the shortcut to this one.
        event_loop.get_type().getattr(method)?.call(all, Some(&options))
    }

    #[inline]
    fn add<'py>(
        slf: &Bound<'py, Self>,
        when: LoopTime,
        now_ns: u64,
        callback: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        context: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, LoopHandle>> {
        let (py, this) = (slf.py(), slf.get());
        args::callable(callback, "callback")?;
        this.check_process(py)?;
        let is_debugged = this.check_loop(py)?;
        let context = match context {
            Some(context) => context,
            None => COPY_CONTEXT.import(py, "contextvars", "copy_context")?.call0()?.unbind(),
        };
        let args = (!args.is_empty()).then(|| args.clone().unbind());
        let handle = LoopHandle::new(when, callback.clone().unbind(), args, context, slf.clone().unbind());
        let handle = Bound::new(py, handle)?;
        gil_cell::untrack(&handle);
        let reference = handle.clone().unbind();
        let added = this.with(py, |inner| {
            if inner.is_closed() {
                Err(reference)
            } else {
                Ok(inner.add(now_ns / 1000, object::due_us(when.seconds), reference))
            }
        });
        match added {
            Ok(place) => {
                handle.get().put_on(py, place);
                if is_debugged {
                    let stack = EXTRACT_STACK.import(py, "asyncio.format_helpers", "extract_stack")?.call0()?;
                    handle.get().set_source_traceback(py, stack.unbind());
                }
                Ok(handle)
            }
            Err(_reference) => Err(object::loop_is_closed()),
        }
    }
}

/// From how many seconds on a callback is slow, if the loop is in debug mode.
fn slow_s(event_loop: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    let py = event_loop.py();
    if !event_loop.call_method0(intern!(py, "get_debug"))?.is_truthy()? {
        return Ok(None);
    }
    Ok(Some(event_loop.getattr(intern!(py, "slow_callback_duration"))?.extract()?))
}

/// Runs it as a loop in debug mode does: says so if it was slow.
fn run_watched(handle: &Bound<'_, LoopHandle>, event_loop: &Bound<'_, PyAny>, slow_s: f64) -> PyResult<()> {
    let py = handle.py();
    let call = handle.get().call(py);
    let began_ns = SystemClock::Monotonic.now_ns();
    let ran = LoopHandle::run(handle, event_loop);
    let took_s = (SystemClock::Monotonic.now_ns() - began_ns) as f64 * 1e-9;
    if took_s >= slow_s {
        let shown = handle.get().shown_call(py, &call)?;
        let logger = LOGGER.import(py, "asyncio.log", "logger")?;
        logger.call_method1(intern!(py, "warning"), ("Executing %s took %.3f seconds", shown, took_s))?;
    }
    ran
}
