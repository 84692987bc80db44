//! A sink that calls a function of the program with one delivery after another.
//!
//! One thread calls it for many messages in a row, as long as it is fast. A message that waits for a slow call goes to another
//! thread: see [`Turns`](super::Turns).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{Delivery, Sink, Verdict, Verdicts};
use crate::base::error::DeliveryError;

/// How many threads may be in the function at a time.
const THREADS: usize = 8;
/// How many more, in calls that take long.
const SPARE: usize = 64;

/// Calls the function.
pub(crate) struct FunctionSink<F>(Arc<F>);

impl<F: Fn(&Delivery) -> Verdict + Send + Sync> FunctionSink<F> {
    pub(crate) fn new(function: Arc<F>) -> Self {
        Self(function)
    }

    fn call(&self, delivery: &Delivery) -> Verdict {
        let mut verdict = Verdict::Refused("the function panicked: see the output of the panic hook".to_owned());
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| verdict = (self.0)(delivery))) {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
            dropped.unwrap_or_else(std::mem::forget); // the payload panicked as it was dropped, and its own payload may too
        }
        verdict
    }
}

impl<F: Fn(&Delivery) -> Verdict + Send + Sync> Sink for FunctionSink<F> {
    fn threads(&self) -> usize {
        THREADS
    }

    fn spare(&self) -> usize {
        SPARE
    }

    fn is_in_turn(&self) -> bool {
        true
    }

    fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        Ok(Verdicts::Each(deliveries.iter().map(|it| self.call(it)).collect()))
    }
}
