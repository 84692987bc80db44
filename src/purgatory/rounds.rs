//! Which operations the rounds of a call have tried, and when the rounds end (P6).
//!
//! A round makes all checks that were requested before it began, and tries each operation at most once. A check that a try
//! of the round requests belongs to the next round.
//!
//! The rounds end when no check was requested. A try may request one each time although nothing has happened. So they also end
//! after n rounds in a row without a completion, where n is the number of operations tried. In a chain of events each
//! operation fulfils once what another one waits for. It has at most n links, so the rounds reach its end.
//! With n operations a round makes at most n tries, and at most n rounds follow each completion: n * n * n tries.

use std::collections::HashSet;

/// How many rounds of checks one call has made.
#[derive(Default)]
pub struct Rounds {
    /// The operations tried since the last completion, by address.
    tried: HashSet<usize>,
    /// The operations tried in this round.
    in_this_round: HashSet<usize>,
    without_completion: usize,
    requested_by: Option<usize>,
}

impl Rounds {
    /// The rounds after the first pass along a list, which tried these operations.
    pub(super) fn after_first_pass(tried: impl IntoIterator<Item = usize>) -> Self {
        Self { tried: tried.into_iter().collect(), ..Self::default() }
    }

    /// Whether a chain of events may have links that were not followed yet.
    pub(super) fn should_continue(&self) -> bool {
        self.without_completion < self.tried.len()
    }

    /// Begins a pass along a list, for a check that the try of this operation requested.
    pub(super) fn begin_pass(&mut self, requested_by: Option<usize>) {
        self.requested_by = requested_by;
    }

    /// Whether this pass tries the operation. If it is a new operation at the address of an earlier one, its own watching
    /// call has tried it since the check was requested.
    pub(super) fn should_try(&mut self, operation: usize) -> bool {
        self.requested_by != Some(operation) && self.in_this_round.insert(operation)
    }

    pub(super) fn end_round(&mut self, completed: usize) {
        let tried = std::mem::take(&mut self.in_this_round);
        if completed > 0 {
            (self.tried, self.without_completion) = (tried, 0);
        } else {
            self.tried.extend(tried);
            self.without_completion += 1;
        }
    }
}
