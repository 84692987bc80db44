//! Which thread waits for due tasks, and until when: the worker if it may, otherwise the reaper behind it.
//!
//! A worker that waits for the timer itself needs one wake-up for a fire, where a reaper that wakes a worker needs two. The
//! reaper drives while the worker cannot: it takes the rest of a long advance, and it takes over [`TAKE_OVER_US`] after a
//! worker began to run callbacks, if something is due by then. `docs/internals/concurrency-proofs.md` has the proof.

use std::ops::ControlFlow;

use crate::slack::{Slack, WakeUps};

/// Why a [wait](crate::Timer::wait) ended.
///
/// ```
/// # use tickwheel::{Clock, Config, Timer, Wait};
/// let timer: Timer<()> = Timer::new(&Config::default(), Clock::monotonic(0))?;
/// timer.close();
/// assert_eq!(timer.wait(None), Wait::Closed);
/// # Ok::<(), tickwheel::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Something is due: advance the timer.
    Due,
    /// The time-out has passed.
    TimedOut,
    /// The timer is closed: there is nothing to wait for any more.
    Closed,
}

/// What the worker does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerDoes {
    /// It sleeps until this instant.
    Sleep { until_us: u64 },
    /// Something is due: it advances the timer.
    Advance,
    /// It waits at its queue: the reaper drives the timer, or no thread does any more.
    WaitAtQueue,
}

/// How long what is due may stay in the wheel while the worker runs callbacks. Then the reaper takes over (T8).
pub(crate) const TAKE_OVER_US: u64 = 10_000;

/// Until when a thread sleeps. An add that is due before that wakes it, unless the thread may not wake before `floor_us`
/// anyway.
#[derive(Debug, Clone, Copy)]
struct Sleep {
    until_us: u64,
    floor_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leader {
    /// The reaper, or any other thread that waits where no worker leads.
    Reaper,
    /// The reaper, which has not finished an advance.
    ReaperAdvances,
    /// The reaper, as soon as it is awake: the worker has left it the rest of an advance.
    ReaperMustAdvance,
    WorkerSleeps,
    /// The worker has found something due; since when it is busy with that.
    WorkerRuns {
        since_us: u64,
    },
}

/// What the timer's lock guards of the two threads.
#[derive(Debug)]
pub(crate) struct Lead {
    leader: Leader,
    /// The sleep that an add may have to end: the leader's, or the reaper's while the worker runs callbacks.
    sleep: Option<Sleep>,
    /// Until when the reaper sleeps, as leader or not.
    reaper_until_us: Option<u64>,
    /// No thread drives the timer again before this: the slack after one did (T5).
    floor_us: u64,
    wake_ups: WakeUps,
}

impl Default for Lead {
    fn default() -> Self {
        Self { leader: Leader::Reaper, sleep: None, reaper_until_us: None, floor_us: 0, wake_ups: WakeUps::default() }
    }
}

impl Lead {
    /// The reaper, or another thread that is not the worker, wants to sleep. The next thing to do is at `next_us`.
    ///
    /// Returns until when it may sleep, or why it must not: where something is due, it wakes up for the next thing the
    /// slack later.
    pub(crate) fn start_sleep(
        &mut self,
        next_us: Option<u64>,
        now_us: u64,
        slack: impl Into<Slack>,
        limit_us: u64,
    ) -> ControlFlow<Wait, u64> {
        let floor_us = match self.leader {
            Leader::WorkerSleeps => {
                // By then the worker has begun with it.
                let begins_us = next_us.map(|next_us| next_us.max(now_us).max(self.floor_us));
                let until_us = begins_us.map_or(u64::MAX, |begins_us| begins_us.saturating_add(TAKE_OVER_US));
                self.reaper_until_us = Some(until_us);
                return ControlFlow::Continue(until_us);
            }
            Leader::WorkerRuns { since_us } => self.floor_us.max(since_us.saturating_add(TAKE_OVER_US)),
            _ => self.floor_us,
        };
        let flow = self.sleep_until(next_us, now_us, floor_us, limit_us);
        self.note_due(flow, now_us, slack.into());
        self.reaper_until_us = flow.continue_value();
        self.leader = match (flow, self.leader) {
            (ControlFlow::Break(Wait::Due), _) => Leader::ReaperAdvances,
            (_, runs @ Leader::WorkerRuns { .. }) => runs,
            _ => Leader::Reaper,
        };
        flow
    }

    /// The worker wants to sleep until something is due.
    pub(crate) fn start_worker_sleep(
        &mut self,
        next_us: Option<u64>,
        now_us: u64,
        slack: impl Into<Slack>,
    ) -> WorkerDoes {
        if matches!(self.leader, Leader::ReaperAdvances | Leader::ReaperMustAdvance) {
            return WorkerDoes::WaitAtQueue;
        }
        let flow = self.sleep_until(next_us, now_us, self.floor_us, u64::MAX);
        self.note_due(flow, now_us, slack.into());
        if let ControlFlow::Continue(until_us) = flow {
            self.leader = Leader::WorkerSleeps;
            return WorkerDoes::Sleep { until_us };
        }
        self.leader = Leader::WorkerRuns { since_us: now_us };
        // From here on it is the reaper that an add wakes, if it must.
        let floor_us = now_us.saturating_add(TAKE_OVER_US).max(self.floor_us);
        self.sleep = self.reaper_until_us.map(|until_us| Sleep { until_us, floor_us });
        WorkerDoes::Advance
    }

    /// The worker's step is over, and it runs what was released. Returns whether the reaper must be woken: to do the rest,
    /// if there is `more`, or because it sleeps for longer than the wheel may stand still.
    pub(crate) fn end_worker_step(&mut self, more: bool, next_us: Option<u64>) -> bool {
        if more {
            // Also of a worker that stood still for so long that the reaper took over, found nothing, and sleeps.
            self.leader = Leader::ReaperMustAdvance;
            self.sleep = None;
            return true;
        }
        let Leader::WorkerRuns { since_us } = self.leader else { return false };
        // A reaper that looked while the worker slept sleeps so long, and is not woken for each fire.
        next_us.is_some_and(|next_us| self.must_wake(next_us.max(since_us).saturating_add(TAKE_OVER_US)))
    }

    /// The worker leads no more. Returns whether the reaper must be woken: it slept behind the worker.
    pub(crate) fn leave_to_reaper(&mut self) -> bool {
        let has_led = matches!(self.leader, Leader::WorkerSleeps | Leader::WorkerRuns { .. });
        if has_led {
            self.leader = Leader::Reaper;
            self.sleep = None;
        }
        has_led
    }

    /// The reaper has woken up, or another thread that is not the worker. Returns whether it was the leader.
    pub(crate) fn end_sleep(&mut self) -> bool {
        self.reaper_until_us = None;
        if self.leader != Leader::WorkerSleeps {
            self.sleep = None;
        }
        !matches!(self.leader, Leader::WorkerSleeps | Leader::WorkerRuns { .. })
    }

    /// The worker has woken up.
    pub(crate) fn end_worker_sleep(&mut self) {
        self.sleep = None;
    }

    /// Whether the worker has left the rest of an advance to the reaper, which takes it now.
    pub(crate) fn take_rest(&mut self) -> bool {
        let is_left = self.leader == Leader::ReaperMustAdvance;
        if is_left {
            self.leader = Leader::ReaperAdvances;
        }
        is_left
    }

    /// Whether the sleep was ended, by an add or a wake-up.
    pub(crate) fn is_woken(&self) -> bool {
        self.sleep.is_none()
    }

    /// Whether something that needs a thread at `wake_us` must end the sleep. The answer is yes once for each sleep.
    #[inline]
    pub(crate) fn must_wake(&mut self, wake_us: u64) -> bool {
        let must_wake = self.sleep.is_some_and(|sleep| wake_us.max(sleep.floor_us) < sleep.until_us);
        if must_wake {
            self.sleep = None;
        }
        must_wake
    }

    /// Whether the sleep of the reaper, and that of the worker, would have ended by now.
    #[cfg(all(test, tickwheel_model))]
    pub(crate) fn due_sleeps(&self, now_us: u64) -> (bool, bool) {
        let worker = self.leader == Leader::WorkerSleeps && self.sleep.is_none_or(|sleep| sleep.until_us <= now_us);
        (self.reaper_until_us.is_some_and(|until_us| until_us <= now_us), worker)
    }

    fn note_due(&mut self, flow: ControlFlow<Wait, u64>, now_us: u64, slack: Slack) {
        if flow == ControlFlow::Break(Wait::Due) {
            self.floor_us = now_us.saturating_add(self.wake_ups.note(now_us, slack));
        }
    }

    /// `next_us` is when there is something to do.
    fn sleep_until(
        &mut self,
        next_us: Option<u64>,
        now_us: u64,
        floor_us: u64,
        limit_us: u64,
    ) -> ControlFlow<Wait, u64> {
        let next_us = next_us.map(|next_us| next_us.max(floor_us));
        if next_us.is_some_and(|next_us| next_us <= now_us) {
            return ControlFlow::Break(Wait::Due);
        }
        if limit_us <= now_us {
            return ControlFlow::Break(Wait::TimedOut);
        }
        let until_us = next_us.unwrap_or(u64::MAX).min(limit_us);
        self.sleep = Some(Sleep { until_us, floor_us });
        ControlFlow::Continue(until_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUE: ControlFlow<Wait, u64> = ControlFlow::Break(Wait::Due);

    /// The worker has found something due at 5, and the reaper sleeps behind it; `then_us` was the next instant before.
    fn worker_runs_since_5(then_us: Option<u64>) -> Lead {
        let mut lead = Lead::default();
        assert_eq!(lead.start_worker_sleep(then_us, 0, 0), WorkerDoes::Sleep { until_us: then_us.unwrap_or(u64::MAX) });
        let reaper_until_us = then_us.map_or(u64::MAX, |then_us| then_us + TAKE_OVER_US);
        assert_eq!(lead.start_sleep(then_us, 0, 0, u64::MAX), ControlFlow::Continue(reaper_until_us));
        lead.end_worker_sleep();
        assert_eq!(lead.start_worker_sleep(Some(5), 5, 0), WorkerDoes::Advance);
        lead
    }

    #[test]
    fn while_timers_fire_one_after_the_other_no_thread_wakes_the_reaper_and_it_looks_by_itself__t8() {
        let mut lead = worker_runs_since_5(Some(5));
        assert!(!lead.end_worker_step(false, Some(6)));
        assert!(!lead.end_sleep(), "it does not drive");
        assert_eq!(lead.start_sleep(Some(6), TAKE_OVER_US, 0, u64::MAX), ControlFlow::Continue(5 + TAKE_OVER_US));
        assert_eq!(lead.start_sleep(Some(6), 5 + TAKE_OVER_US, 0, u64::MAX), DUE);
        assert_eq!(lead.start_worker_sleep(Some(6), 5 + TAKE_OVER_US, 0), WorkerDoes::WaitAtQueue);
    }

    #[test]
    fn a_reaper_that_sleeps_behind_a_far_task_is_not_woken_for_each_fire() {
        let far_us = 1_000_000;
        let mut lead = worker_runs_since_5(Some(far_us));
        assert!(!lead.end_worker_step(false, Some(far_us)));
    }

    #[test]
    fn a_reaper_that_sleeps_for_too_long_is_woken_once__t8() {
        let mut lead = worker_runs_since_5(None);
        assert!(!lead.end_worker_step(false, None), "nothing is pending");
        assert!(lead.must_wake(7), "an add while the worker runs");
        assert!(!lead.must_wake(6), "the reaper is about to look");
        let mut lead = worker_runs_since_5(None);
        assert!(lead.end_worker_step(false, Some(7)));
        assert!(!lead.must_wake(6));
    }

    #[test]
    fn with_a_long_slack_the_reaper_sleeps_as_long_as_the_worker__t5() {
        let slack_us = 3 * TAKE_OVER_US;
        let mut lead = Lead::default();
        assert_eq!(lead.start_worker_sleep(Some(5), 5, slack_us), WorkerDoes::Advance);
        let floor_us = 5 + slack_us;
        assert_eq!(lead.start_worker_sleep(Some(7), 6, slack_us), WorkerDoes::Sleep { until_us: floor_us });
        assert_eq!(lead.start_sleep(Some(7), 6, slack_us, u64::MAX), ControlFlow::Continue(floor_us + TAKE_OVER_US));
    }

    #[test]
    fn a_thread_that_takes_over_keeps_the_distance_of_the_other__t5() {
        let slack_us = 3 * TAKE_OVER_US;
        let mut lead = Lead::default();
        assert_eq!(lead.start_worker_sleep(Some(5), 5, slack_us), WorkerDoes::Advance);
        let floor_us = 5 + slack_us;
        assert_eq!(lead.start_sleep(Some(7), 6, slack_us, u64::MAX), ControlFlow::Continue(floor_us));
        assert!(!lead.must_wake(7), "the reaper does not wake before");
        assert_eq!(lead.start_sleep(Some(7), floor_us, slack_us, u64::MAX), DUE);
        lead.leader = Leader::Reaper; // its advance is over
        let next_us = floor_us + slack_us;
        assert_eq!(lead.start_worker_sleep(Some(8), floor_us, slack_us), WorkerDoes::Sleep { until_us: next_us });
    }

    #[test]
    fn what_a_worker_leaves_that_stood_still_is_the_reapers_even_if_that_sleeps__t6() {
        let mut lead = worker_runs_since_5(None);
        let late_us = 5 + TAKE_OVER_US;
        assert_eq!(lead.start_sleep(Some(6), late_us, 1_000_000, u64::MAX), DUE);
        assert!(lead.start_sleep(Some(7), late_us, 1_000_000, u64::MAX).is_continue());
        assert!(lead.end_worker_step(true, Some(6)));
        assert!(lead.take_rest());
    }

    #[test]
    fn a_reaper_that_looks_while_the_worker_sleeps_changes_no_sleep_of_the_worker() {
        let mut lead = Lead::default();
        assert_eq!(lead.start_worker_sleep(Some(9), 0, 0), WorkerDoes::Sleep { until_us: 9 });
        assert_eq!(lead.start_sleep(Some(9), 0, 0, u64::MAX), ControlFlow::Continue(9 + TAKE_OVER_US));
        assert!(!lead.end_sleep());
        assert!(lead.must_wake(8));
    }
}
