//! The running actions on many messages (D16). In each group, `bulk.rs` does a part of the first action.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use crate::message::recurrence::NEVER_MS;
use crate::store::{Action, Position};

/// The running actions, in the order in which they are done.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    pub(crate) running: VecDeque<Action>,
    /// The slot at which the first action goes on in memory; `None`: it has looked at all slots.
    pub(crate) slots: Option<usize>,
    /// Near messages that the first action found while they were being sent. Each counts as too late once.
    pub(crate) sending: FxHashSet<i64>,
    /// A destination was removed, and its messages become dead letters.
    pub(crate) removing: Option<Removing>,
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

/// How far the messages of a destination that was removed are dead letters (D23). Rules come first, because each of them would
/// make one occurrence after the other. Then come rounds, until nothing of it is left: a round goes through the messages in
/// memory without a row, and then through the rows.
#[derive(Debug)]
pub(crate) struct Removing {
    /// The number of the destination.
    pub(crate) share: i64,
    /// The one of its shares that this round has come to.
    pub(crate) of: i64,
    /// The last row of it that was looked at in this round.
    pub(crate) at: Position,
    /// Where this round begins in each share.
    pub(crate) from: Position,
    /// The slot at which it goes on in memory; `None`: this round has looked at all slots.
    pub(crate) slots: Option<usize>,
    /// What was being sent. It is waited for before the next round.
    pub(crate) sending: Vec<i64>,
    /// Whether the next group has a part to do at once.
    pub(crate) has_more: bool,
}

impl Removing {
    pub(crate) fn of(share: i64) -> Self {
        let from = (NEVER_MS - 1, i64::MAX);
        Self { share, of: share, at: from, from, slots: None, sending: Vec::new(), has_more: false }
    }
}

impl Actions {
    /// Continues the actions of earlier runs. All their messages have rows, so `slots` is `None`.
    pub(crate) fn go_on(running: Vec<Action>, followed: Option<i64>, removed: Option<i64>) -> Self {
        Self {
            running: running.into(),
            removing: removed.map(Removing::of),
            stepping: followed.map(|at| Stepping { at, ..Stepping::default() }),
            ..Self::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.stepping.is_none() && self.removing.is_none()
    }

    /// Whether the next group has a part to do at once. What is being sent is waited for.
    pub(crate) fn has_more(&self) -> bool {
        !self.running.is_empty()
            || self.removing.as_ref().is_some_and(|it| it.has_more)
            || self.stepping.as_ref().is_some_and(|it| it.at < i64::MAX)
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
