//! The timers of one event loop and their handles, as objects: a schedule that the GIL guards, without lock or thread (T21).
//!
//! All is done on the loop's thread. The loop watches one descriptor, which is readable when something is due.

use std::collections::VecDeque;

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::tools::errors;
use crate::tools::fork::fork_epoch;
use crate::tools::gil_cell::GilCell;
use crate::tools::made_once::intern;
use crate::tools::timerfd::{SystemClock, TimerFd};
use tickwheel::internal::{STEP, Schedule};
use tickwheel::{Handle, LIMIT_US, Precision, Progress, Ticket};

/// A wheel for the timers of one event loop. Get it from `tickwheel.aio.timers()`.
#[pyclass(frozen, weakref, module = "tickwheel.aio")]
pub(crate) struct LoopTimers {
    inner: GilCell<Option<Box<Inner>>>,
    fd: i32,
    epoch: u32,
    /// The loop has timers of its own, and does not say when it is closed.
    is_beside: bool,
    pub(super) clock: SystemClock,
}

/// A callback with its time on an event loop. It counts as an `asyncio.TimerHandle`, and has its methods.
#[pyclass(frozen, weakref, name = "TimerHandle", module = "tickwheel.aio")]
pub(crate) struct LoopHandle {
    pub(super) content: GilCell<Content>,
    /// For its hash, which never changes.
    pub(super) first_when_s: f64,
}

/// A time of the loop's clock, in seconds. One that was given as an int is an int for its reader, as in asyncio.
#[derive(Clone, Copy, Default)]
pub(super) struct LoopTime {
    pub(super) seconds: f64,
    pub(super) is_int: bool,
}

/// What a handle refers to, until it has run or was cancelled.
#[derive(Default)]
pub(super) struct Content {
    pub(super) when: LoopTime,
    pub(super) callback: Option<Py<PyAny>>,
    pub(super) args: Option<Py<PyTuple>>,
    pub(super) context: Option<Py<PyAny>>,
    pub(super) timers: Option<Py<LoopTimers>>,
    pub(super) handle: u64,
    pub(super) is_cancelled: bool,
    pub(super) debug: Option<Box<Debug>>,
}

/// The information that a loop in debug mode has about it.
#[derive(Default)]
pub(super) struct Debug {
    /// Where it was made.
    pub(super) traceback: Option<Py<PyAny>>,
    /// How it was shown before its callback was dropped.
    pub(super) shown: Option<String>,
}

/// What the GIL guards.
pub(super) struct Inner {
    pub(super) schedule: Schedule<Py<LoopHandle>>,
    /// Released, and to be run, in order.
    line: VecDeque<Ticket>,
    released: Vec<Ticket>,
    /// `None` once the timers are closed.
    timer_fd: Option<TimerFd>,
    /// When the descriptor is readable.
    armed_us: u64,
    pub(super) slack_us: u64,
    /// When the last turn began.
    woke_us: u64,
    /// The schedule's last step was not all that there is to do.
    has_more: bool,
    /// A child process was told that it can't use them.
    pub(super) has_told_child: bool,
    pub(super) event_loop: Option<Py<PyAny>>,
}

/// What a turn does next.
pub(super) enum NextDue {
    /// The handle, and when it is due, in microseconds.
    Call(Py<LoopHandle>, u64),
    /// The wheel has more to do before it is known.
    Later,
    Nothing,
}

/// The tasks that were pending when the timers were closed. They are dropped where foreign code may run.
pub(super) struct Leftover {
    pub(super) schedule: Schedule<Py<LoopHandle>>,
    _event_loop: Option<Py<PyAny>>,
    _timer_fd: Option<TimerFd>,
}

const NEVER: u64 = u64::MAX;
const TICK_MS: u64 = 1;
const WHEEL_SIZE: u32 = 20;

impl LoopTimers {
    pub(super) fn make(
        py: Python<'_>,
        event_loop: Py<PyAny>,
        is_beside: bool,
        slack_us: u64,
        clock: SystemClock,
    ) -> PyResult<Self> {
        let timer_fd = TimerFd::new(clock).map_err(|error| errors::os_error(py, &error))?;
        let fd = timer_fd.fd();
        let inner = Inner {
            schedule: Schedule::new(TICK_MS, &[WHEEL_SIZE], clock.now_ns() / 1_000_000, Precision::Exact),
            line: VecDeque::new(),
            released: Vec::new(),
            timer_fd: Some(timer_fd),
            armed_us: NEVER,
            slack_us,
            woke_us: 0,
            has_more: false,
            has_told_child: false,
            event_loop: Some(event_loop),
        };
        Ok(Self { inner: GilCell::new(Some(Box::new(inner))), fd, epoch: fork_epoch(), is_beside, clock })
    }

    pub(super) fn fd(&self) -> i32 {
        self.fd
    }

    /// Runs `f`, which neither runs Python code nor drops a Python object.
    #[inline]
    pub(super) fn with<R>(&self, py: Python<'_>, f: impl FnOnce(&mut Inner) -> R) -> R {
        self.inner.with(py, |inner| f(inner.as_mut().expect("no call is inside another one")))
    }

    /// For the garbage collector.
    pub(super) fn visit<R>(&self, visit: &PyVisit<'_>, f: impl FnOnce(&Inner) -> R) -> Option<R> {
        self.inner.visit(visit, |inner| inner.as_ref().map(|inner| f(inner)))
    }

    /// Whether this is the child of a fork: the loop, and what it waits for, belong to the parent.
    #[inline]
    pub(super) fn is_forked(&self) -> bool {
        self.epoch != fork_epoch()
    }

    /// Errors: `TimerForked`.
    #[inline]
    pub(super) fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_forked() { Err(errors::timer_forked(py, "of an event loop")) } else { Ok(()) }
    }

    /// `TimerForked`, once: the loop of the child goes on to find the descriptor readable, which it shares with the parent.
    pub(super) fn tell_child(&self, py: Python<'_>) -> PyResult<()> {
        let has_told = self.with(py, |inner| std::mem::replace(&mut inner.has_told_child, true));
        if has_told { Ok(()) } else { self.check_process(py) }
    }

    /// Whether the loop is in debug mode, which one with timers of its own does not say otherwise. Errors: `RuntimeError`
    /// where that is closed, and nothing would be called.
    #[inline]
    pub(super) fn check_loop(&self, py: Python<'_>) -> PyResult<bool> {
        if !self.is_beside {
            return Ok(false);
        }
        match self.event_loop(py) {
            Some(event_loop) if !event_loop.bind(py).call_method0(intern!(py, "is_closed"))?.is_truthy()? => {
                event_loop.bind(py).call_method0(intern!(py, "get_debug"))?.is_truthy()
            }
            _ => Err(loop_is_closed()),
        }
    }

    /// Removes what has not begun; what the wheel kept of it, to be dropped by the caller.
    pub(super) fn remove(&self, py: Python<'_>, handle: Handle) -> Option<Py<LoopHandle>> {
        self.with(py, |inner| inner.schedule.remove(handle))
    }

    pub(super) fn event_loop(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.with(py, |inner| inner.event_loop.as_ref().map(|event_loop| event_loop.clone_ref(py)))
    }
}

impl LoopHandle {
    /// It is not pending yet.
    pub(super) fn new(
        when: LoopTime,
        callback: Py<PyAny>,
        args: Option<Py<PyTuple>>,
        context: Py<PyAny>,
        timers: Py<LoopTimers>,
    ) -> Self {
        let (callback, context, timers) = (Some(callback), Some(context), Some(timers));
        let content = Content { when, callback, args, context, timers, ..Content::default() };
        Self { content: GilCell::new(content), first_when_s: when.seconds }
    }

    /// It is on the wheel.
    #[inline]
    pub(super) fn put_on(&self, py: Python<'_>, handle: Handle) {
        self.content.with(py, |content| content.handle = handle.to_bits());
    }

    /// Everything that it refers to, to be dropped by the caller.
    pub(super) fn take(&self, py: Python<'_>) -> Content {
        self.content.with(py, |content| {
            let taken = std::mem::take(content);
            (content.when, content.is_cancelled) = (taken.when, taken.is_cancelled);
            taken
        })
    }

    /// For the garbage collector: what it refers to.
    pub(super) fn visit_content(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.content.visit(visit, |content| {
            visit.call(&content.callback)?;
            visit.call(&content.args)?;
            visit.call(&content.context)?;
            visit.call(&content.timers)?;
            visit.call(content.debug.as_ref().and_then(|debug| debug.traceback.as_ref()))
        })
    }
}

impl Inner {
    pub(super) fn is_closed(&self) -> bool {
        self.timer_fd.is_none()
    }

    pub(super) fn len(&self) -> usize {
        self.schedule.len() + self.schedule.released()
    }

    /// Adds a handle, and wakes the loop in time.
    #[inline]
    pub(super) fn add(&mut self, now_us: u64, due_us: u64, handle: Py<LoopHandle>) -> Handle {
        let (handle, wake_us) = self.schedule.add(now_us, due_us, handle, 0);
        self.arm_by(wake_us);
        handle
    }

    /// Moves a handle that has not begun, and wakes the loop in time; `false` if it has begun, or was removed.
    pub(super) fn reschedule(&mut self, now_us: u64, due_us: u64, handle: Handle) -> bool {
        let wake_us = self.schedule.reschedule(now_us, handle, due_us);
        wake_us.inspect(|wake_us| self.arm_by(*wake_us)).is_some()
    }

    /// A turn of the loop begins.
    pub(super) fn begin_turn(&mut self, now_us: u64) {
        self.woke_us = now_us;
    }

    /// The next one that is due by then; its reference is the caller's. Without one, a short step towards it.
    ///
    /// None is returned before all that are due stand in line. So any number of callbacks may add others at a past
    /// time, and callbacks that were due before do not wait for these.
    pub(super) fn next_due(&mut self, now_us: u64) -> NextDue {
        if !self.has_more {
            while let Some(ticket) = self.line.pop_front() {
                if let Some(claimed) = self.schedule.claim(ticket) {
                    return NextDue::Call(claimed.task, claimed.due_us);
                }
            }
            self.line.shrink_to(STEP);
        }
        let mut progress = Progress::default();
        self.has_more = self.schedule.step(now_us, STEP, &mut self.released, &mut progress);
        self.line.extend(self.released.drain(..));
        if self.line.is_empty() && !self.has_more { NextDue::Nothing } else { NextDue::Later }
    }

    /// Whether the next in line is due at just that time. What stands in no line yet does not count.
    pub(super) fn continues(&mut self, due_us: u64) -> bool {
        while let Some(&first) = self.line.front() {
            if let Some((_, next_us, _)) = self.schedule.peek_released(first) {
                return next_us == due_us;
            }
            self.line.pop_front(); // it was cancelled, or moved
        }
        false
    }

    /// A turn ends: the loop is woken for what comes next.
    pub(super) fn end_turn(&mut self) {
        let goes_on = self.has_more || !self.line.is_empty();
        let next_us = if goes_on { Some(0) } else { self.schedule.next_wake_us() };
        self.arm(match next_us {
            None => NEVER,
            Some(0) => 0,
            Some(next_us) => next_us.max(self.may_wake_us()),
        });
    }

    /// From when on the slack allows the next wake-up; it is past where there is no slack.
    #[inline]
    fn may_wake_us(&self) -> u64 {
        self.woke_us.saturating_add(self.slack_us)
    }

    pub(super) fn close(&mut self) -> Leftover {
        let empty = Schedule::new(1, &[20], 0, Precision::Exact);
        self.line.clear();
        Leftover {
            schedule: std::mem::replace(&mut self.schedule, empty),
            _event_loop: self.event_loop.take(),
            _timer_fd: self.timer_fd.take(),
        }
    }

    #[inline]
    fn arm_by(&mut self, wake_us: u64) {
        let wake_us = wake_us.max(self.may_wake_us());
        if wake_us < self.armed_us {
            self.arm(wake_us);
        }
    }

    fn arm(&mut self, at_us: u64) {
        self.armed_us = at_us;
        if let Some(timer_fd) = &self.timer_fd {
            timer_fd.arm((at_us != NEVER).then_some(at_us));
        }
    }
}

/// As asyncio says it.
pub(super) fn loop_is_closed() -> PyErr {
    PyRuntimeError::new_err("Event loop is closed")
}

/// In microseconds, rounded up, so that nothing is early; what is too far, or infinite, is as far as can be.
#[inline]
pub(super) fn due_us(when: f64) -> u64 {
    // The casts saturate.
    let whole_us = (when * 1e6).ceil() as u64;
    whole_us.min(LIMIT_US - 1)
}
