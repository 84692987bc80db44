//! How a thread waits for what is due, and how a timer ends.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::{STEP, Timer};
use crate::lead::{Wait, WorkerDoes};
use crate::slack::Slack;
use crate::state::State;
use crate::sync::{MinimalTimerSlack, MutexGuard, Ordering};
use crate::when::rounded_up_us;

/// How a thread waits for what is due, and how a timer ends.
///
/// ```
/// # use std::time::Duration;
/// # use tickwheel::{Clock, Config, Error, Released, Timer, Wait};
/// let timer = Timer::new(&Config::default(), Clock::monotonic(0))?;
/// assert_eq!(timer.wait(Some(Duration::from_millis(1))), Wait::TimedOut);
/// timer.add(Duration::from_millis(5), "five")?;
/// assert_eq!(timer.wait(None), Wait::Due);
/// timer.advance(&mut |_: Released| ());
/// assert!(!timer.wait_idle(Some(Duration::ZERO)), "it is released, and not claimed");
/// timer.close_when_empty(); // `wait` would end once nothing is pending
/// timer.close();
/// assert!(timer.is_closed() && timer.wait(None) == Wait::Closed);
/// assert_eq!(timer.add(Duration::ZERO, "late").unwrap_err().error(), &Error::Closed);
///
/// let timer = Timer::new(&Config::default(), Clock::manual(0))?;
/// timer.add(Duration::from_millis(25), "it cascades at 20")?;
/// assert_eq!((timer.next_wake_us(), timer.next_event_us()), (Some(20_000), Some(20_000)));
/// # Ok::<(), tickwheel::Error>(())
/// ```
impl<T> Timer<T> {
    /// Waits until something is due, so that one thread can drive the timer without polling. [`Timer::advance`] comes next.
    ///
    /// A wait that has a time-out ends with [`Wait::TimedOut`] when that has passed. On a manual clock nothing can come due
    /// during the wait: the call returns at once, with [`Wait::TimedOut`] if nothing is due. One thread at a time may wait: a
    /// second one could sleep through an add. [`Timer::drive`] does it all in one call, with at least `slack_us` between two
    /// wake-ups.
    pub fn wait(&self, timeout: Option<Duration>) -> Wait {
        let now_us = self.clock.now_us();
        let limit_us = match timeout {
            _ if self.clock.is_manual() => now_us,
            None => u64::MAX,
            Some(timeout) => now_us.saturating_add(rounded_up_us(timeout)),
        };
        self.wait_for_work(0_u64.into(), limit_us)
    }

    /// Waits until something is due, at the longest to `limit_us`; the next wait ends the slack later at the earliest.
    #[doc(hidden)]
    pub fn wait_for_work(&self, slack: Slack, limit_us: u64) -> Wait {
        let mut state = self.lock_state();
        loop {
            state = self.drop_empty_buckets(state);
            let until_us = match state.start_sleep(self.clock.now_us(), slack, limit_us) {
                ControlFlow::Continue(until_us) => until_us,
                ControlFlow::Break(wait) => return wait,
            };
            let deadline = (until_us < u64::MAX).then(|| self.clock.instant_of(until_us)).flatten();
            state = self.wake.wait(state, deadline);
            state.note_wake_up(&self.clock);
        }
    }

    /// The worker waits until something is due: then it calls [`Timer::advance_one_step`]. The next wait ends the slack later at
    /// the earliest. Returns `false` where it must wait at its queue instead, because the reaper drives the timer, or the
    /// timer is closed.
    pub(crate) fn lead(&self, slack: Slack) -> bool {
        let mut timer_slack = None;
        let mut state = self.lock_state();
        loop {
            state = self.drop_empty_buckets(state);
            let does = state.start_worker_sleep(self.clock.now_us(), slack);
            self.worker_sleeps.store(matches!(does, WorkerDoes::Sleep { .. }), Ordering::Relaxed);
            let WorkerDoes::Sleep { until_us } = does else {
                let is_closed = state.is_closed;
                drop(state);
                if is_closed {
                    self.wake.notify_all(); // the reaper sleeps behind this thread, and no other thread wakes it
                }
                return does == WorkerDoes::Advance;
            };
            let deadline = (until_us < u64::MAX).then(|| self.clock.instant_of(until_us)).flatten();
            timer_slack.get_or_insert_with(MinimalTimerSlack::set);
            state = self.worker_wake.wait(state, deadline);
            state.note_worker_wake_up(&self.clock);
        }
    }

    /// The worker can lead no more: the reaper drives the timer from now on.
    pub(crate) fn leave_to_reaper(&self) {
        let must_wake = self.lock_state().lead.leave_to_reaper();
        if must_wake {
            self.wake.notify_all();
        }
    }

    /// Wakes the thread that drives the timer, if the caller found under the lock that it must.
    #[inline]
    #[doc(hidden)]
    pub fn wake_driver_if(&self, must_wake: bool) {
        if must_wake {
            let sleeping = if self.worker_sleeps.load(Ordering::Relaxed) { &self.worker_wake } else { &self.wake };
            sleeping.notify_all();
        }
    }

    /// Ends the sleeps that would have ended by now, in a model, which has no time.
    #[cfg(all(test, tickwheel_model))]
    pub(crate) fn end_due_sleeps(&self) {
        // A thread that read the clock before it was moved holds the lock until it sleeps.
        let (reaper, worker) = self.lock_state().lead.due_sleeps(self.clock.now_us());
        if reaper {
            self.wake.notify_all();
        }
        if worker {
            self.worker_wake.notify_all();
        }
    }

    /// When to advance next, at the latest, so that nothing is late, in microseconds of the timer's clock; 0 for at once,
    /// `None` if nothing is pending.
    pub fn next_wake_us(&self) -> Option<u64> {
        self.drop_empty_buckets(self.lock_state()).schedule.next_wake_us()
    }

    /// As [`Timer::next_wake_us`], but with a stop at every due bucket, to step a manual clock.
    pub fn next_event_us(&self) -> Option<u64> {
        self.drop_empty_buckets(self.lock_state()).schedule.next_event_us()
    }

    /// Drops all empty buckets at the head of the bucket queue, in steps (T9).
    fn drop_empty_buckets<'a>(&'a self, mut state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        while state.schedule.drop_empty_buckets(STEP) {
            self.unlock_fair(state);
            state = self.lock_state();
        }
        state
    }

    /// The least time between two wake-ups.
    pub(crate) fn slack(&self) -> Slack {
        self.slack
    }

    /// Accepts no more tasks, and ends every [`wait`](Timer::wait) and [`drive`](Timer::drive). What is pending stays.
    pub fn close(&self) {
        let whole_batches = self.bulk.lock();
        self.lock_state().is_closed = true;
        drop(whole_batches);
        self.wake_driver_if(true);
    }

    /// Closes the timer as soon as nothing is pending: then [`wait`](Timer::wait) and [`drive`](Timer::drive) end. Until then it
    /// takes tasks.
    pub fn close_when_empty(&self) {
        self.lock_state().closes_when_empty = true;
        self.wake_driver_if(true);
    }

    /// Whether the timer takes no more tasks.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.lock_state().is_closed
    }

    /// Whether [`Timer::close_when_empty`] was called.
    pub(crate) fn closes_when_empty(&self) -> bool {
        self.lock_state().closes_when_empty
    }

    /// Waits until no released task is left and no callback runs. Returns whether that came within the time-out. After
    /// [`Timer::close`] the timer stays idle as soon as no thread advances it any more. The time-out is real time, also on a
    /// manual clock.
    pub fn wait_idle(&self, timeout: Option<Duration>) -> bool {
        self.wait_while(timeout, |state| !state.is_idle())
    }

    /// As [`Timer::wait_idle`], until nothing is pending either, or the timer is closed.
    #[doc(hidden)]
    pub fn wait_empty(&self, timeout: Option<Duration>) -> bool {
        self.wait_while(timeout, |state| !(state.is_closed || (state.schedule.len() == 0 && state.is_idle())))
    }

    fn wait_while(&self, timeout: Option<Duration>, must_wait: impl Fn(&State<T>) -> bool) -> bool {
        // An instant that the system cannot name counts as none.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.lock_state();
        state.waits_for_idle += 1;
        while must_wait(&state) && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            state = self.idle.wait(state, deadline);
        }
        state.waits_for_idle -= 1;
        !must_wait(&state)
    }
}
