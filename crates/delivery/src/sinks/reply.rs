//! A reply: a sink gives the answer to one delivery later, from any thread (rules D4, D6).

use std::fmt;
use std::sync::Arc;

use super::delivery::Verdict;

/// Takes the answers of a sink.
pub(crate) trait Replies: Send + Sync {
    /// The sink is done with this delivery.
    fn settle(&self, number: u64, verdict: Verdict);
}

/// A [`ReplySink`](super::ReplySink) answers with it: once, from any thread, as late as it wants.
///
/// A reply that is dropped counts as unanswered, because the task that had it may have failed at any point. If all
/// tasks fail like this, the destination counts as down and is not asked again and again.
pub struct Reply {
    number: u64,
    to: Option<Arc<dyn Replies>>,
}

impl Reply {
    /// An answer that goes to `to`.
    pub(crate) fn new(number: u64, to: Arc<dyn Replies>) -> Self {
        Self { number, to: Some(to) }
    }

    /// The number with which [`ReplySink::abort`](super::ReplySink::abort) names the delivery. A sink never gets the
    /// same number twice.
    ///
    /// ```
    /// # use std::collections::HashMap;
    /// # use tickwheel_delivery::Reply;
    /// fn remember(in_flight: &mut HashMap<u64, Reply>, reply: Reply) {
    ///     in_flight.insert(reply.number(), reply);
    /// }
    /// ```
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Gives the answer. After a cut-off it has no effect.
    ///
    /// ```
    /// # use tickwheel_delivery::{Reply, Verdict};
    /// fn answer(reply: Reply, status: u16) {
    ///     reply.settle(match status {
    ///         200..300 => Verdict::Delivered,
    ///         503 => Verdict::Unanswered { reason: "503".to_owned(), retry_after_ms: Some(1_000) },
    ///         _ => Verdict::Refused(status.to_string()),
    ///     });
    /// }
    /// ```
    pub fn settle(mut self, verdict: Verdict) {
        self.answer(verdict);
    }

    fn answer(&mut self, verdict: Verdict) {
        if let Some(to) = self.to.take() {
            to.settle(self.number, verdict);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.answer(Verdict::Unanswered { reason: "the sink gave no answer".to_owned(), retry_after_ms: None });
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("number", &self.number).finish_non_exhaustive()
    }
}
