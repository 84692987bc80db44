//! The line of tasks that were released and not yet claimed.

use std::collections::VecDeque;

use tickwheel::{Handle, Released};

/// Tasks that were released and not yet claimed, in order.
#[derive(Default)]
pub(crate) struct DueLine {
    pub(crate) handles: VecDeque<Handle>,
    /// More of the same advance will follow.
    pub(crate) more: bool,
}

impl DueLine {
    pub(crate) fn of(handles: impl IntoIterator<Item = Handle>) -> Self {
        Self { handles: handles.into_iter().collect(), more: false }
    }

    pub(crate) fn append(&mut self, released: Released) {
        self.handles.extend(released.handles);
        self.more = released.more;
    }
}
