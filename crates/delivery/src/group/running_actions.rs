//! The running actions on many messages (D16). In each group, `bulk.rs` does a part of the first action.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use crate::store::Action;

/// The running actions, in the order in which they are done.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    pub(crate) running: VecDeque<Action>,
    /// The slot at which the first action goes on in memory; `None`: it has looked at all slots.
    pub(crate) slots: Option<usize>,
    /// Near messages that the first action found while they were being sent. Each counts as too late once.
    pub(crate) sending: FxHashSet<i64>,
    /// Rules have to follow a step of the wall clock: how far that is.
    pub(crate) stepping: Option<Stepping>,
}

/// How far the rules have followed a step of the wall clock (D19).
#[derive(Debug, Default)]
pub(crate) struct Stepping {
    /// Rules up to this number were looked at; `i64::MAX`: all.
    pub(crate) at: i64,
    /// Of these, the rules whose occurrence was being sent.
    pub(crate) sending: Vec<i64>,
}

impl Actions {
    /// Continues the actions of earlier runs. All their messages have rows, so `slots` is `None`.
    pub(crate) fn go_on(running: Vec<Action>, followed: Option<i64>) -> Self {
        Self {
            running: running.into(),
            stepping: followed.map(|at| Stepping { at, ..Stepping::default() }),
            ..Self::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.stepping.is_none()
    }

    /// Whether the next group has a part to do at once. What is being sent is waited for.
    pub(crate) fn has_more(&self) -> bool {
        !self.running.is_empty() || self.stepping.as_ref().is_some_and(|it| it.at < i64::MAX)
    }

    pub(crate) fn begin(&mut self, action: Action) {
        if self.running.is_empty() {
            self.slots = Some(0);
        }
        self.running.push_back(action);
    }

    pub(crate) fn end(&mut self) {
        self.running.pop_front();
        self.slots = Some(0); // for the next action
        self.sending.clear();
    }
}
