//! The loop of the reaper: wait until something is due, advance, wait again. `timer/waiting.rs` has the sleep.
//!
//! It wakes for three reasons: something is due, a task was added that is due earlier, the timer was closed. After a
//! wake-up the next one comes no sooner than `slack_us` later, so a dense second costs a bounded number of them (T5). It
//! never runs a task and never drops one; with Python on top it never takes the GIL. An executor that panics costs the
//! batch that it was given, which the timer keeps as rejected (T13).

use crate::executor::{Executor, Released};
use crate::lead::Wait;
use crate::panics;
use crate::sync::MinimalTimerSlack;
use crate::timer::Timer;

impl<T> Timer<T> {
    /// Drives the timer on this thread until it [closes](Timer::close): waits until something is due, advances, and gives what
    /// is released to `executor`.
    ///
    /// One thread at a time may drive a timer. [`SystemTimer`](crate::SystemTimer) has a thread that does. A manual clock wakes
    /// no thread when it is moved: step through it with [`Timer::advance`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use tickwheel::{Clock, Config, Released, Timer};
    ///
    /// let timer = Arc::new(Timer::new(&Config::default(), Clock::monotonic(0))?);
    /// timer.add(Duration::from_millis(1), "one")?;
    /// timer.close_when_empty();
    /// let mut ran = Vec::new();
    /// timer.drive(&mut |released: Released| {
    ///     for ticket in released.tickets {
    ///         ran.extend(timer.claim(ticket).map(|claimed| claimed.task));
    ///     }
    /// });
    /// assert_eq!(ran, ["one"]);
    /// # Ok::<(), tickwheel::Error>(())
    /// ```
    pub fn drive(&self, executor: &mut (impl Executor + ?Sized)) {
        let _timer_slack = MinimalTimerSlack::set();
        while self.wait_for_work(self.slack(), u64::MAX) == Wait::Due {
            let mut call = ExecutorCall { executor: &mut *executor, is_running: false };
            let returned = panics::contain(|| {
                self.advance(&mut call);
            });
            if !returned && !call.is_running {
                return; // a fault of the timer's own: to go on would be to meet it for ever
            }
        }
    }
}

/// Tells a panic of the executor from one of the timer.
struct ExecutorCall<'a, E: ?Sized> {
    executor: &'a mut E,
    is_running: bool,
}

impl<E: Executor + ?Sized> Executor for ExecutorCall<'_, E> {
    fn execute(&mut self, released: Released) -> Result<(), Released> {
        self.is_running = true;
        let answer = self.executor.execute(released);
        self.is_running = false;
        answer
    }
}
