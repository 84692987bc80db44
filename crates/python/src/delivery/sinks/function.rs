//! A sink that calls a Python function with one `Delivery` at a time, in several threads (rules D6, D10).
//!
//! A thread attaches for each call. Groups of calls would save 2 to 3 us a message, of about 6 us, and delay the messages
//! behind a slow call.

use pyo3::prelude::*;

use crate::delivery::calls::failures;
use crate::delivery::sinks::sink::kept_attached;
use crate::delivery::values::attempt;
use crate::tools::finalizing::{ForeignCall, not_unwound};
use crate::tools::made_once::imported;
use crate::tools::native_lock::attach;
use tickwheel_delivery::internal::{AroundFn, FUNCTION_THREADS, MOST_FUNCTION_THREADS, SPARE_FUNCTION_THREADS};
use tickwheel_delivery::{Delivery, DeliveryError, Sink, Verdict, Verdicts};

/// Calls the function for an engine.
pub(crate) struct FunctionSink {
    engine: u64,
    function: Option<Py<PyAny>>,
}

impl FunctionSink {
    pub(crate) fn new(engine: u64, function: Py<PyAny>) -> Self {
        Self { engine, function: Some(function) }
    }
}

impl Sink for FunctionSink {
    fn max_messages(&self) -> usize {
        1
    }

    fn threads(&self) -> usize {
        FUNCTION_THREADS
    }

    fn most_threads(&self) -> usize {
        MOST_FUNCTION_THREADS
    }

    fn spare(&self) -> usize {
        SPARE_FUNCTION_THREADS
    }

    fn around(&self) -> Option<AroundFn> {
        Some(kept_attached(self.engine))
    }

    fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        let Some(function) = &self.function else { return Err(DeliveryError::Closed) };
        attach(|py| {
            let Some(_call) = ForeignCall::try_enter_sink(py) else { return Err(DeliveryError::Closed) };
            let function = function.bind(py);
            Ok(not_unwound(|| Verdicts::Each(deliveries.iter().map(|it| call(function, it)).collect())))
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
fn call(function: &Bound<'_, PyAny>, delivery: &Delivery) -> Verdict {
    let py = function.py();
    let called = || -> PyResult<Option<String>> {
        let returned = function.call1((Bound::new(py, attempt::Delivery::of(delivery.clone()))?,))?;
        if returned.is_none() {
            return Ok(None);
        }
        imported!(py, "tickwheel.delivery.sinks.returned", "problem_with")?.call1((returned,))?.extract()
    };
    match called() {
        Ok(None) => Verdict::Delivered,
        Ok(Some(problem)) => Verdict::Refused(problem),
        Err(error) => failures::of_function(py, &error),
    }
}
