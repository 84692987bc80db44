//! A sink that calls a Python function with one `Delivery` after another (rules D6, D10).
//!
//! A thread attaches once for a group of calls: about a millisecond's work by the last times, at most 256 calls. So a
//! fast function costs little. A slow function is called with one message at a time in each of [`THREADS`] threads.
//! Calls that have not begun after two milliseconds go to another thread: see [`Turns`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pyo3::prelude::*;

use crate::delivery::calls::failures;
use crate::delivery::sinks::sink::{kept_attached, verdict_of};
use crate::delivery::values::attempt;
use crate::tools::finalizing::ForeignCall;
use crate::tools::fork::fork_epoch;
use crate::tools::made_once::MadeOnce;
use crate::tools::native_lock::attach;
use tickwheel_delivery::internal::{AroundFn, Turns};
use tickwheel_delivery::{Delivery, DeliveryError, Sink, Verdict, Verdicts};

/// How many threads may be in the function at a time.
pub(crate) const THREADS: usize = 8;
/// How many more, in calls that take long.
const SPARE: usize = 64;

const MOST: usize = 256;
/// How long the calls of one group take.
const GROUP_NS: u64 = 1_000_000;

/// How long a call takes: it rises at once and falls slowly.
#[derive(Debug)]
pub(crate) struct Pace(AtomicU64);

impl Default for Pace {
    /// Slow, until it is known.
    fn default() -> Self {
        Self(AtomicU64::new(GROUP_NS))
    }
}

impl Pace {
    fn calls(&self) -> usize {
        ((GROUP_NS / self.0.load(Ordering::Relaxed).max(1)) as usize).clamp(1, MOST)
    }

    /// Two threads may write at the same time. Then one value is lost, which does no harm.
    fn took(&self, began: Instant, calls: usize) {
        let Some(each_ns) = (began.elapsed().as_nanos() as u64).checked_div(calls as u64) else { return };
        let before_ns = self.0.load(Ordering::Relaxed);
        self.0.store(each_ns.max((3 * before_ns + each_ns) / 4), Ordering::Relaxed);
    }
}

/// Calls the function for an engine; `pace` is one for all its threads.
pub(crate) struct FunctionSink {
    engine: u64,
    function: Option<Py<PyAny>>,
    pace: Arc<Pace>,
}

impl FunctionSink {
    pub(crate) fn new(engine: u64, function: Py<PyAny>, pace: Arc<Pace>) -> Self {
        Self { engine, function: Some(function), pace }
    }
}

impl Sink for FunctionSink {
    fn max_messages(&self) -> usize {
        self.pace.calls()
    }

    fn threads(&self) -> usize {
        THREADS
    }

    fn spare(&self) -> usize {
        SPARE
    }

    fn around(&self) -> Option<AroundFn> {
        Some(kept_attached(self.engine))
    }

    fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        let turns = Turns::new(deliveries.len());
        let last = self.send_in_turn(deliveries, &turns)?;
        Ok(turns.verdicts(last))
    }

    fn is_in_turn(&self) -> bool {
        true
    }

    fn send_in_turn(&mut self, deliveries: &[Delivery], turns: &Turns) -> Result<Option<Verdict>, DeliveryError> {
        let Some(function) = &self.function else { return Err(DeliveryError::Closed) };
        attach(|py| {
            let Some(_call) = ForeignCall::try_enter_sink(py) else { return Err(DeliveryError::Closed) };
            let (began, epoch, function) = (Instant::now(), fork_epoch(), function.bind(py));
            let mut calls = 0;
            let mut last = None;
            while let Some(place) = turns.begin() {
                calls += 1;
                let called = call(function, &deliveries[place]);
                if fork_epoch() != epoch {
                    return Ok(None); // it forked: the messages are the parent's
                }
                if let Err(failed) = called {
                    last = Some(failed);
                    break;
                }
                turns.ended();
            }
            self.pace.took(began, calls);
            Ok(last)
        })
    }

    fn close(&mut self) -> Result<(), DeliveryError> {
        let Some(function) = self.function.take() else { return Ok(()) };
        attach(|py| match ForeignCall::try_enter_sink(py) {
            Some(_call) => drop(function),
            None => std::mem::forget(function), // the interpreter is gone
        });
        Ok(())
    }
}

/// For a sink that was opened and never used.
impl Drop for FunctionSink {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

/// Calls it once. When it returns, the message has arrived, whatever it returns, unless that would still have to be run.
fn call(function: &Bound<'_, PyAny>, delivery: &Delivery) -> Result<(), Verdict> {
    static CHECK: MadeOnce<Py<PyAny>> = MadeOnce::new();
    let py = function.py();
    let called = || -> PyResult<Option<String>> {
        let returned = function.call1((Bound::new(py, attempt::Delivery::of(delivery.clone()))?,))?;
        if returned.is_none() {
            return Ok(None);
        }
        CHECK.import(py, "tickwheel.delivery.sinks.returned", "problem_with")?.call1((returned,))?.extract()
    };
    match called() {
        Ok(None) => Ok(()),
        Ok(Some(problem)) => Err(Verdict::Refused(problem)),
        Err(error) => Err(verdict_of(failures::of_function(py, &error))),
    }
}
