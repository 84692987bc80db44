//! The actions on many messages that have not ended (D16). `group/actions.rs` does a part of the first one in each group.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use super::store::Action;

/// Those that have not ended: one after the other.
#[derive(Debug, Default)]
pub(super) struct Actions {
    pub(super) running: VecDeque<Action>,
    /// How far the first of them is in memory; `None`: it is through.
    pub(super) slots: Option<usize>,
    /// Found in the moment of sending there, without a row.
    pub(super) sending: FxHashSet<i64>,
}

impl Actions {
    /// Of the runs before: their messages in memory have rows.
    pub(super) fn go_on(running: Vec<Action>) -> Self {
        Self { running: running.into(), ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(super) fn begin(&mut self, action: Action) {
        if self.running.is_empty() {
            self.slots = Some(0);
        }
        self.running.push_back(action);
    }

    pub(super) fn end(&mut self) {
        self.running.pop_front();
        self.slots = Some(0); // of the next one
        self.sending.clear();
    }
}
