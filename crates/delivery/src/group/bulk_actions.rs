//! The actions on many messages that have not ended (D16). `bulk_step.rs` does a part of the first one in each group.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use crate::store::Action;

/// Those that have not ended: one after the other.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    pub(crate) running: VecDeque<Action>,
    /// How far the first of them is in memory; `None`: it is through.
    pub(crate) slots: Option<usize>,
    /// Found in the moment of sending there, without a row.
    pub(crate) sending: FxHashSet<i64>,
}

impl Actions {
    /// Of the runs before: their messages in memory have rows.
    pub(crate) fn go_on(running: Vec<Action>) -> Self {
        Self { running: running.into(), ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(crate) fn begin(&mut self, action: Action) {
        if self.running.is_empty() {
            self.slots = Some(0);
        }
        self.running.push_back(action);
    }

    pub(crate) fn end(&mut self) {
        self.running.pop_front();
        self.slots = Some(0); // of the next one
        self.sending.clear();
    }
}
