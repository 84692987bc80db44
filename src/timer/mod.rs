//! `Timer`: wheel, queue and front under one lock; add, cancel, claim.
//!
//! - `advancing` is how time goes on, `waiting` how a thread waits for that, and how a timer ends.
//! - `many` has the calls for many tasks at once, `pending` the lists of tasks.
//!
//! The ground rules (`docs/internals/concurrency-proofs.md` has the proof):
//!
//! - `state` guards all that is pending. No foreign code runs under it: tasks are moved out and dropped after it. It is
//!   held for one operation, or for a step of about [`STEP`] entries of a long one.
//! - `advancing` is the token of the one advancer. Add and cancel never take it. Order: `bulk`, `advancing`, `state`.
//! - The reaper sleeps on `wake`, with `state` unlocked in the same step, after it wrote down until when. An add that must
//!   run earlier than that sees it under the lock and wakes the reaper: no wake-up is lost, none is wasted.
//! - A released task stays in its slot until the executor claims it, under the lock. A cancel takes it out of the same
//!   slot under the same lock. Exactly one of the two gets the task (T9).

mod advancing;
mod claimed;
mod many;
mod pending;
mod waiting;

use std::fmt;

use crate::clock::Clock;
use crate::config::Config;
use crate::error::{AddError, Error};
use crate::events::Recorded;
use crate::executor::LastBatch;
pub(crate) use crate::schedule::STEP;
use crate::slack::Slack;
use crate::state::{Room, State};
use crate::stats::Stats;
use crate::sync::{self, Condvar, Mutex, MutexGuard, PlainMutex};
use crate::wake_signal::WakeSignal;
use crate::wheel::Handle;
use crate::when::When;

pub use claimed::Claimed;

/// As [`STEP`], where the entries lie anywhere in memory.
const SCATTERED_STEP: usize = 64;

/// Very many deadlines under one lock, without threads of its own: the program advances it, and runs what is released.
///
/// [`SystemTimer`](crate::SystemTimer) is the same with its threads. `T` is the task, anything that is to come back when it
/// is due. Add and cancel are O(1) whatever the delay, from any thread.
///
/// A thread that drives the timer waits until something is due, advances, and claims what was released, task by task:
///
/// ```
/// use std::time::Duration;
/// use tickwheel::{Clock, Config, Released, Timer, Wait};
///
/// let timer = Timer::new(&Config::default(), Clock::monotonic(0))?;
/// let five = timer.add(Duration::from_millis(5), "five")?;
/// timer.add(Duration::from_millis(9), "nine")?;
/// assert_eq!(timer.cancel(five), Some("five"));
///
/// let mut released = Vec::new();
/// while !timer.is_empty() && timer.wait(None) == Wait::Due {
///     timer.advance(&mut |batch: Released| released.extend(batch.tickets));
/// }
/// for ticket in released {
///     // A task that was cancelled in between is not claimed.
///     if let Some(claimed) = timer.claim(ticket) {
///         assert_eq!(claimed.task, "nine");
///     }
/// }
/// # Ok::<(), tickwheel::Error>(())
/// ```
///
/// On a [manual clock](Clock::manual) the same timer is deterministic, for tests:
///
/// ```
/// # use std::time::Duration;
/// # use tickwheel::{Clock, Config, EventKind, Timer, When};
/// let timer = Timer::new(&Config::default(), Clock::manual(1_000))?;
/// timer.record(10_000);
/// let timeout = timer.add(Duration::from_secs(30), "request 7")?;
/// assert!(timer.reschedule(timeout, Duration::from_secs(60))?); // the handle stays good
/// timer.add_tagged(When::AtUs(1_500_000), "when the clock reads 1.5 s", 42)?;
/// assert_eq!((timer.len(), timer.clock().now_ms()), (2, 1_000));
///
/// assert_eq!(timer.cancel(timeout), Some("request 7"));
/// assert_eq!(timer.cancel(timeout), None);
/// assert!(!timer.reschedule(timeout, Duration::from_secs(60))?);
/// assert_eq!((timer.stats().added, timer.stats().cancelled), (2, 1));
///
/// let events = timer.take_recorded(1_000).chunks.concat(); // added, moved, added, cancelled
/// assert_eq!((events.len(), events[1].kind), (4, EventKind::Moved));
/// assert!(timer.stop_recording().chunks.is_empty());
/// # Ok::<(), tickwheel::Error>(())
/// ```
pub struct Timer<T> {
    clock: Clock,
    slack: Slack,
    state: Mutex<State<T>>,
    /// The reaper, or the thread that waits in `advance_clock`, sleeps here.
    wake: WakeSignal,
    /// The worker sleeps here while it leads.
    worker_wake: WakeSignal,
    /// Whether a wake-up is for the worker. It is written under `state`. A thread that must wake another one reads it after
    /// the unlock: if it has changed since, the threads have looked at the schedule since, and need no wake-up.
    worker_sleeps: sync::AtomicBool,
    /// Threads that wait for the callbacks to finish sleep here.
    idle: Condvar,
    /// The token of the advancer. It guards what the executor was given.
    advancing: PlainMutex<LastBatch>,
    /// The thread that has the token, by the address of its mark; 0 while none has it. A thread finds its own address here
    /// only if it stored it, so no order with other memory is needed.
    advancer: sync::AtomicUsize,
    /// The advancer's thread asked to advance while it did. No other thread touches it, so no order is needed.
    must_advance_again: sync::AtomicBool,
    /// Held by an `add_many` in steps, and by `close`: a batch goes in whole or not at all.
    #[doc(hidden)]
    pub bulk: PlainMutex<()>,
}

impl<T> Timer<T> {
    /// A timer that starts at what its clock reads.
    ///
    /// # Errors
    /// [`Error::Invalid`] for settings that are not allowed, and where the system gives a clock since boot no alarm.
    pub fn new(config: &Config, clock: Clock) -> Result<Self, Error> {
        config.check()?;
        Config::check_start(clock.now_ms())?;
        let state = State::new(config, clock.now_ms());
        Ok(Self {
            wake: WakeSignal::on(&clock)?,
            worker_wake: WakeSignal::on(&clock)?,
            clock,
            slack: config.slack(),
            state: Mutex::new(state),
            worker_sleeps: sync::AtomicBool::new(false),
            idle: Condvar::default(),
            advancing: PlainMutex::new(LastBatch::default()),
            advancer: sync::AtomicUsize::new(0),
            must_advance_again: sync::AtomicBool::new(false),
            bulk: PlainMutex::new(()),
        })
    }

    /// The timer's clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How many tasks are not yet released.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock_state().schedule.len()
    }

    /// Whether every task has been released.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Schedules a task. O(levels); never runs anything.
    ///
    /// `when` is a delay, or a [`When`]. The handle cancels and moves the task.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Full`], or [`Error::Invalid`] for an instant out of range. The error gives the task back.
    #[inline]
    pub fn add(&self, when: impl Into<When>, task: T) -> Result<Handle, AddError<T>> {
        self.add_tagged(when, task, 0)
    }

    /// As [`Timer::add`], with a number that comes back with the task and is shown in a [`snapshot`](Timer::snapshot).
    ///
    /// # Errors
    /// As [`Timer::add`].
    #[inline]
    pub fn add_tagged(&self, when: impl Into<When>, task: T, tag: u32) -> Result<Handle, AddError<T>> {
        self.add_with(when.into(), task, tag, Room::IfAny).map(|(handle, _)| handle)
    }

    /// As [`Timer::add`]; returns also what the clock read.
    #[inline]
    pub(crate) fn add_with(&self, when: When, task: T, tag: u32, room: Room) -> Result<(Handle, u64), AddError<T>> {
        let mut state = self.lock_state();
        let due = match state.admit(&self.clock, when, usize::from(room == Room::IfAny)) {
            Ok(due) => due,
            Err(error) => return Err(Self::refused(state, error, task)),
        };
        let (handle, must_wake) = state.add(due, task, tag);
        drop(state);
        self.wake_driver_if(must_wake);
        Ok((handle, due.now_us))
    }

    #[cold]
    fn refused(state: MutexGuard<'_, State<T>>, error: Error, task: T) -> AddError<T> {
        drop(state);
        AddError::new(error, task)
    }

    /// Moves a task that has not been claimed; `Ok(false)` if it was claimed or taken out. Its handle stays good. The move
    /// counts as an add in the order of tasks that are due together. O(levels).
    ///
    /// # Errors
    /// [`Error::Closed`], or [`Error::Invalid`] for an instant out of range. The task stays where it is then.
    #[inline]
    pub fn reschedule(&self, handle: Handle, when: impl Into<When>) -> Result<bool, Error> {
        self.reschedule_to(handle, when.into())
    }

    fn reschedule_to(&self, handle: Handle, when: When) -> Result<bool, Error> {
        let mut state = self.lock_state();
        let due = state.admit(&self.clock, when, 0)?;
        let moved = state.reschedule(handle, due);
        self.notify_if_idle(&state); // the task may have been the last released one
        drop(state);
        self.wake_driver_if(moved == Some(true));
        Ok(moved.is_some())
    }

    /// Takes a task out. `Some` exactly when no call will ever [claim](Timer::claim) it. O(1).
    pub fn cancel(&self, handle: Handle) -> Option<T> {
        let mut state = self.lock_state();
        let task = state.cancel(&self.clock, handle);
        self.unlock_after_removal(state);
        task
    }

    /// Unlocks after tasks were taken out, and wakes the threads that may have waited for that. A thread in `wait_idle`
    /// waits for the last released task. The driving thread of a timer that closes when it is empty waits for the last
    /// task.
    #[doc(hidden)]
    pub fn unlock_after_removal(&self, state: MutexGuard<'_, State<T>>) {
        let must_wake = self.notify_after_removal(&state);
        drop(state);
        self.wake_driver_if(must_wake);
    }

    /// As [`Timer::unlock_after_removal`], but does not unlock. Returns whether the reaper must be woken after the unlock.
    fn notify_after_removal(&self, state: &State<T>) -> bool {
        self.notify_if_idle(state);
        state.must_close_now()
    }

    /// Wakes the threads in `wait_idle` if the timer is idle now. Each call that lowers the number of released or running tasks
    /// ends with this.
    #[doc(hidden)]
    pub fn notify_if_idle(&self, state: &State<T>) {
        if state.must_notify_idle() {
            self.idle.notify_all();
        }
    }

    /// Counts this many tasks that [`State::claim`] has taken as run. The caller holds the lock.
    #[doc(hidden)]
    pub fn finish_locked(&self, state: &mut State<T>, count: usize) {
        state.finish(count);
        self.notify_if_idle(state);
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.lock_state().stats()
    }

    /// Begins to record what happens from now on; `false` if a recording runs already. An event costs about fifty
    /// nanoseconds. At least `bound` events are kept until [`Timer::take_recorded`] takes them; later ones are lost, and
    /// counted.
    pub fn record(&self, bound: usize) -> bool {
        self.lock_state().record(bound)
    }

    /// Takes the oldest recorded events, in order: about `limit`, none if there are none.
    pub fn take_recorded(&self, limit: usize) -> Recorded {
        self.lock_state().take_recorded(limit)
    }

    /// Ends the recording, and returns the rest of it under one lock: take most of it with [`Timer::take_recorded`] first.
    pub fn stop_recording(&self) -> Recorded {
        self.lock_state().stop_recording()
    }

    /// Unlocks; a thread that waits gets the lock next.
    pub(crate) fn unlock_fair(&self, state: MutexGuard<'_, State<T>>) {
        self.state.unlock_fair(state);
    }

    pub(crate) fn lock_state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }

    /// The lock, for callers that must not wait for it as others do.
    #[doc(hidden)]
    pub fn state(&self) -> &Mutex<State<T>> {
        &self.state
    }
}

impl<T> fmt::Debug for Timer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("pending", &self.len()).finish_non_exhaustive()
    }
}
