//! A sink that calls a coroutine function: an event loop runs a task for each message, many at a time (rules D4, D6,
//! D10).
//!
//! ```text
//! sender thread: start -> [Inbox] -> LoopSignal       loop's thread: take -> a task each -> arrived, failed -> Reply
//!                abort -> [Inbox] -> LoopSignal                      cancel the task
//! ```
//!
//! - The sender never takes the GIL: a busy loop delays its own messages, and nothing else of the engine.
//! - A loop of the program has the only reference to [`CoroutineCalls`]. A closed loop drops it, and from then on the
//!   destination can't be reached (D6). The sink's own thread makes a new loop instead; if it can't, the run ends. A loop
//!   that hangs is cut off like any sink: the engine takes back the messages that the loop has not taken.
//! - After a cut-off, a task keeps its place until it has ended, like a thread that hangs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;

use crate::delivery::calls::failures;
use crate::delivery::calls::loop_signal::LoopSignal;
use crate::delivery::values::attempt;
use crate::delivery::values::receipts::this_thread_is_of;
use crate::tools::finalizing::ForeignCall;
use crate::tools::fork::fork_epoch;
use crate::tools::gil_cell::GilCell;
use crate::tools::native_lock::attach;
use tickwheel::internal::sync::{PlainCondvar, PlainMutex};
use tickwheel_delivery::{Delivery, DeliveryError, Reply, ReplySink, Verdict};

/// How many tasks run at a time, if the settings do not say it.
const TASKS: usize = 256;
/// How many more, that take long.
const SPARE: usize = 1_024;
/// How long the loop may take at the end to cancel the remaining tasks.
const END_WITHIN: Duration = Duration::from_millis(900);
const LOOP_IS_CLOSED: &str = "the event loop of the sink is closed";

/// The calls that the loop has not taken yet.
struct Inbox {
    waiting: PlainMutex<Waiting>,
    changed: PlainCondvar,
    signal: LoopSignal,
}

#[derive(Default)]
struct Waiting {
    started: VecDeque<(Delivery, Reply)>,
    aborted: Vec<u64>,
    /// The sink is closed.
    is_over: bool,
    /// The loop takes nothing more.
    is_left: bool,
    /// Why no loop can ever take a call again.
    failed: Option<String>,
}

/// Gives each delivery to a loop.
pub(crate) struct CoroutineSink {
    inbox: Arc<Inbox>,
    max_in_flight: usize,
}

impl CoroutineSink {
    /// `concurrency` comes from the settings. `start` gets the [`CoroutineCalls`] for its loop.
    ///
    /// Errors: an exception of `start`; `DeliveryFailed` if the system gives no descriptor.
    pub(crate) fn open(start: &Bound<'_, PyAny>, engine: u64, concurrency: usize) -> PyResult<Self> {
        let signal = LoopSignal::new().map_err(|error| failures::no_descriptor(start.py(), &error))?;
        let inbox = Arc::new(Inbox { waiting: PlainMutex::default(), changed: PlainCondvar::default(), signal });
        start.call1((CoroutineCalls { epoch: fork_epoch(), engine, inbox: inbox.clone() },))?;
        Ok(Self { inbox, max_in_flight: if concurrency == usize::MAX { TASKS } else { concurrency } })
    }
}

impl ReplySink for CoroutineSink {
    fn max_in_flight(&self) -> usize {
        self.max_in_flight
    }

    fn max_bytes(&self) -> usize {
        16 << 20
    }

    fn spare(&self) -> usize {
        SPARE
    }

    fn start(&mut self, delivery: Delivery, reply: Reply) -> Result<(), DeliveryError> {
        let mut waiting = self.inbox.waiting.lock();
        if let Some(reason) = &waiting.failed {
            return Err(DeliveryError::Failed(reason.clone()));
        }
        if waiting.is_left {
            drop(waiting);
            reply.settle(Verdict::Unreachable { reason: LOOP_IS_CLOSED.to_owned(), retry_after_ms: None });
            return Ok(());
        }
        let is_first = waiting.started.is_empty();
        waiting.started.push_back((delivery, reply));
        drop(waiting);
        if is_first {
            self.inbox.signal.raise();
        }
        Ok(())
    }

    fn abort(&mut self, number: u64) {
        let mut waiting = self.inbox.waiting.lock();
        let place = waiting.started.iter().position(|(_, reply)| reply.number() == number);
        let taken_back = place.and_then(|place| waiting.started.remove(place));
        if taken_back.is_none() {
            waiting.aborted.push(number);
        }
        drop(waiting);
        if taken_back.is_none() {
            self.inbox.signal.raise();
        }
    }

    /// Waits a little for the loop to cancel the remaining tasks.
    fn close(&mut self) -> Result<(), DeliveryError> {
        let end = Instant::now() + END_WITHIN;
        let mut waiting = self.inbox.waiting.lock();
        waiting.is_over = true;
        let left = std::mem::take(&mut waiting.started);
        self.inbox.signal.raise();
        while !waiting.is_left && Instant::now() < end {
            waiting = self.inbox.changed.wait_until(waiting, end);
        }
        drop(waiting);
        drop(left);
        Ok(())
    }
}

/// For a sink that was opened and never used.
impl Drop for CoroutineSink {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

/// The calls that a loop has to make. While there is something to take, its descriptor is readable.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct CoroutineCalls {
    epoch: u32,
    engine: u64,
    inbox: Arc<Inbox>,
}

#[pymethods]
impl CoroutineCalls {
    /// The descriptor that the loop watches for reading.
    fn fileno(&self) -> i32 {
        self.inbox.signal.fd()
    }

    /// Says that this thread does nothing but make these calls: the end of the engine waits for it.
    fn have_this_thread(&self) {
        this_thread_is_of(self.engine);
    }

    /// Takes the new calls, at most `most`, the numbers of calls to cancel, and whether the sink is closed. Takes
    /// nothing in a forked child, because the child shares the descriptor and its watcher with the parent. Takes
    /// nothing at the end of the interpreter.
    fn take<'py>(&self, py: Python<'py>, most: usize) -> PyResult<(Vec<Bound<'py, CoroutineCall>>, Vec<u64>, bool)> {
        let call = ForeignCall::try_enter_sink(py);
        if self.epoch != fork_epoch() || call.is_none() {
            return Ok((Vec::new(), Vec::new(), false));
        }
        let (started, aborted, is_over) = py.detach(|| {
            self.inbox.signal.clear();
            let mut waiting = self.inbox.waiting.lock();
            let count = most.min(waiting.started.len());
            let started: Vec<_> = waiting.started.drain(..count).collect();
            if !waiting.started.is_empty() {
                self.inbox.signal.raise();
            }
            (started, std::mem::take(&mut waiting.aborted), waiting.is_over)
        });
        let calls = started.into_iter().map(|(delivery, reply)| {
            let number = reply.number();
            let delivery = Py::new(py, attempt::Delivery::of(delivery))?;
            let reply = GilCell::new(Some(reply));
            Bound::new(py, CoroutineCall { epoch: self.epoch, number, delivery, reply })
        });
        Ok((calls.collect::<PyResult<_>>()?, aborted, is_over))
    }

    /// No loop can take calls any more, for this reason: the next call ends the run.
    fn fail(&self, py: Python<'_>, reason: String) {
        if self.epoch == fork_epoch() {
            py.detach(|| self.leave(Some(reason)));
        }
    }
}

impl CoroutineCalls {
    fn leave(&self, failed: Option<String>) {
        let mut waiting = self.inbox.waiting.lock();
        waiting.is_left = true;
        waiting.failed = waiting.failed.take().or(failed);
        let left = std::mem::take(&mut waiting.started);
        drop(waiting);
        self.inbox.changed.notify_all();
        for (_, reply) in left {
            reply.settle(Verdict::Unreachable { reason: LOOP_IS_CLOSED.to_owned(), retry_after_ms: None });
        }
    }
}

/// The loop is closed, or has ended after the sink.
impl Drop for CoroutineCalls {
    fn drop(&mut self) {
        if self.epoch == fork_epoch() {
            attach(|py| py.detach(|| self.leave(None)));
        }
    }
}

/// A call of the coroutine function. If it is dropped without an answer, it counts as unanswered.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct CoroutineCall {
    epoch: u32,
    #[pyo3(get)]
    number: u64,
    #[pyo3(get)]
    delivery: Py<attempt::Delivery>,
    reply: GilCell<Option<Reply>>,
}

#[pymethods]
impl CoroutineCall {
    /// The message has arrived.
    fn arrived(&self, py: Python<'_>) {
        self.settle(py, Verdict::Delivered);
    }

    /// It has not, for this reason.
    fn refused(&self, py: Python<'_>, reason: String) {
        self.settle(py, Verdict::Refused(reason));
    }

    /// What the coroutine raised.
    fn failed(&self, py: Python<'_>, error: Bound<'_, PyBaseException>) {
        let Some(_call) = ForeignCall::try_enter_sink(py) else { return };
        let error = PyErr::from_value(error.into_any());
        self.settle(py, failures::of_function(py, &error));
    }
}

impl CoroutineCall {
    fn settle(&self, py: Python<'_>, verdict: Verdict) {
        let Some(reply) = self.reply.with(py, Option::take) else { return };
        if self.epoch == fork_epoch() {
            py.detach(|| reply.settle(verdict)); // it waits for a lock of the engine's
        } else {
            std::mem::forget(reply); // the message is the parent's
        }
    }
}

impl Drop for CoroutineCall {
    fn drop(&mut self) {
        let Some(reply) = self.reply.get_mut().take() else { return };
        if self.epoch == fork_epoch() {
            attach(|py| py.detach(|| drop(reply)));
        } else {
            std::mem::forget(reply);
        }
    }
}
