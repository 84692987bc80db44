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

#[cfg(all(test, not(any(tickwheel_model, tickwheel_loom))))]
mod tests {
    use std::panic::resume_unwind;
    use std::sync::Arc;

    use super::*;
    use crate::clock::Clock;
    use crate::config::Config;
    use crate::state::When;
    use crate::sync::{spawn, unbounded};

    #[test]
    fn a_reaper_goes_on_after_its_executor_panicked__t13() {
        let timer =
            Arc::new(Timer::new(&Config::default(), Clock::monotonic(0)).expect("the default settings are good"));
        timer.add(When::AtUs(0), "costs the panic", 0).expect("in range");
        let (sender, released) = unbounded();
        let driven = Arc::clone(&timer);
        let mut has_panicked = false;
        let reaper = spawn("reaper", move || {
            run(&driven, &mut |batch: Released| {
                let _ = sender.send(batch.handles);
                if !std::mem::replace(&mut has_panicked, true) {
                    resume_unwind(Box::new("broken")); // without the panic hook's message
                }
            });
        });
        let first = released.recv().expect("the first batch");
        let second = timer.add(When::AtUs(0), "goes on", 0).expect("in range");
        assert_eq!(released.recv().expect("the reaper lives"), [second]);
        assert_eq!(timer.claim(second).map(|claimed| claimed.task), Some("goes on"));
        assert!(timer.claim(first[0]).is_none(), "it was given to an executor that broke");
        timer.close();
        reaper.expect("a thread").join().expect("it ended well");
        let kept: Vec<_> = timer.take_rejected().into_iter().map(|rejected| rejected.task).collect();
        assert_eq!(kept, ["costs the panic"]);
    }
}
