//! The reaper: the thread that sleeps until the earliest deadline and hands on what is released.
//!
//! It wakes for three reasons: something is due, an add came in that is due earlier, the timer was closed. After a
//! wake-up the next one comes no sooner than `slack_us` later, so a dense second costs a bounded number of them (T5). It
//! never runs a task and never drops one; with Python on top it never takes the GIL. An executor that panics costs the
//! batch that it was given, which the timer keeps as rejected (T13).

#![forbid(unsafe_code)]

use crate::executor::{Executor, Released};
use crate::panics;
use crate::state::Wait;
use crate::timer::Timer;

/// Drives the timer until it is closed, or abandoned and empty.
pub(crate) fn run<T>(timer: &Timer<T>, executor: &mut impl Executor) {
    minimise_timer_slack();
    let mut floor_us = 0;
    while timer.wait_for_work(floor_us, u64::MAX) == Wait::Work {
        floor_us = timer.clock().now_us().saturating_add(timer.slack_us());
        let mut watched = Watched { executor: &mut *executor, is_inside: false };
        let returned = panics::contain(|| {
            timer.advance(&mut watched);
        });
        if !returned && !watched.is_inside {
            return; // a fault of the timer's own: to go on would be to meet it for ever
        }
    }
}

/// Tells a panic of the executor from one of the timer.
struct Watched<'a, E> {
    executor: &'a mut E,
    is_inside: bool,
}

impl<E: Executor> Executor for Watched<'_, E> {
    fn execute(&mut self, released: Released) -> Result<(), Released> {
        self.is_inside = true;
        let answer = self.executor.execute(released);
        self.is_inside = false;
        answer
    }
}

/// Linux rounds a sleep up by 50 µs unless told otherwise; without this the median lateness doubles.
fn minimise_timer_slack() {
    #[cfg(all(target_os = "linux", not(tickwheel_model)))]
    {
        // Refused only by a sandbox; the timer is then as late as any other thread.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    }
}
