//! The answer to one delivery that a sink gives later, from any thread (rules D4, D6).

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use super::Verdict;

/// Takes the answers of a sink.
pub trait Replies: Send + Sync {
    /// The sink has nothing more to do with this delivery. `size`: bytes of its message.
    fn settle(&self, number: u64, size: usize, verdict: Verdict);
}

/// What a sink answers by: once, from any thread, as late as it wants.
///
/// One that is dropped counts as unanswered: the task that had it may have failed at any point, and if each task does, the
/// destination is down and not asked again and again.
pub struct Reply {
    number: u64,
    size: usize,
    to: Option<Arc<dyn Replies>>,
}

impl Reply {
    /// An answer that goes to `to`.
    #[must_use]
    pub fn new(number: u64, size: usize, to: Arc<dyn Replies>) -> Self {
        Self { number, size, to: Some(to) }
    }

    /// What [`Sink::abort`](super::Sink::abort) names the delivery by; no two of one sink are equal.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Answers. After a cut-off it is not heard.
    pub fn settle(mut self, verdict: Verdict) {
        self.answer(verdict);
    }

    fn answer(&mut self, verdict: Verdict) {
        if let Some(to) = self.to.take() {
            to.settle(self.number, self.size, verdict);
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
