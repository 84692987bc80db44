//! Whether this thread is inside a callback of a timer.

use std::cell::RefCell;

use crate::core::timer_core::TimerCore;

thread_local! {
    /// The timers whose callbacks run on this thread, by address.
    static RUNNING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, this thread counts as inside a callback of the timer.
pub(crate) struct InsideCallback;

impl InsideCallback {
    pub(crate) fn enter(core: &TimerCore) -> Self {
        RUNNING.with_borrow_mut(|running| running.push(std::ptr::from_ref(core) as usize));
        Self
    }

    pub(crate) fn is_inside(core: &TimerCore) -> bool {
        RUNNING.with_borrow(|running| running.contains(&(std::ptr::from_ref(core) as usize)))
    }
}

impl Drop for InsideCallback {
    fn drop(&mut self) {
        RUNNING.with_borrow_mut(Vec::pop);
    }
}
