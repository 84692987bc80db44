//! The line of tasks that were released and not yet claimed.

use std::collections::VecDeque;

use tickwheel::{Released, Ticket};

/// Tasks that were released and not yet claimed, in order.
#[derive(Default)]
pub(crate) struct DueLine {
    pub(crate) tickets: VecDeque<Ticket>,
    /// More of the same advance will follow.
    pub(crate) more: bool,
}

impl DueLine {
    pub(crate) fn of(tickets: impl IntoIterator<Item = Ticket>) -> Self {
        Self { tickets: tickets.into_iter().collect(), more: false }
    }

    pub(crate) fn append(&mut self, released: Released) {
        self.tickets.extend(released.tickets);
        self.more = released.more;
    }
}
