//! A sink that calls a function of the program with one message at a time, in several threads.
//!
//! A thread takes no message before its last call has ended, so no message waits behind a slow call. Groups of messages
//! would save 2 us a message and delay the others: with a call of 50 ms in 20, and 100 messages due at once, they were 1 to
//! 6 ms late on average, 140 ms in groups of 256, and 11 to 23 ms in groups of which the rest moved to another thread after
//! 2 ms.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{Delivery, Sink, Verdict, Verdicts};
use crate::base::error::DeliveryError;

/// How many threads may be in the function at a time.
pub const FUNCTION_THREADS: usize = 8;
/// How many there may be if `concurrency` asks for them.
pub const MOST_FUNCTION_THREADS: usize = 256;
/// How many more, in calls that take long.
pub const SPARE_FUNCTION_THREADS: usize = 64;

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

    fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        Ok(Verdicts::Each(deliveries.iter().map(|it| self.call(it)).collect()))
    }
}
