//! The lock, taken once for a batch of calls.

use std::fmt;
use std::marker::PhantomData;

use super::Timer;
use crate::error::{AddError, Error};
use crate::state::State;
use crate::sync::MutexGuard;
use crate::wheel::Handle;
use crate::when::When;

impl<T> Timer<T> {
    /// Locks the timer for a batch of calls: each is then as cheap as on a timer of one thread.
    ///
    /// Other threads wait until the guard is dropped, so hold it for some hundred calls, and for no work of your own.
    /// The thread that holds it must use the guard alone: a call on the timer itself would wait for that thread for
    /// ever. The destructor of a [`Claimed`](crate::Claimed) is such a call. That of a task may be one: if it calls the timer, keep what [`cancel`](TimerGuard::cancel)
    /// returns, and the error of a refused [`add`](TimerGuard::add), until the guard is dropped. A conversion of your own
    /// into a [`When`] is such code too: convert before the lock, and pass the [`When`].
    ///
    /// Each add and each move reads the clock, so that its delay counts from this very call. A [`Wheel`](crate::Wheel) under a
    /// lock of the program's own reads no clock.
    pub fn lock(&self) -> TimerGuard<'_, T> {
        TimerGuard { timer: self, state: Some(self.lock_state()), must_wake: false, not_send: PhantomData }
    }
}

/// A [`Timer`] whose lock is held, from [`Timer::lock`]. Dropping it unlocks the timer.
///
/// The thread that drives the timer is woken once, when the guard is dropped.
///
/// ```
/// # use std::time::Duration;
/// # use tickwheel::{Clock, Config, Timer, TimerGuard};
/// fn add_both(timer: &mut TimerGuard<'_, &'static str>) -> Result<(), tickwheel::Error> {
///     let first = timer.add(Duration::from_secs(1), "first")?;
///     timer.add(Duration::from_secs(2), "second")?;
///     timer.reschedule(first, Duration::from_secs(3))?;
///     Ok(())
/// }
///
/// let timer = Timer::new(&Config::default(), Clock::manual(0))?;
/// let third = timer.add(Duration::from_secs(4), "third")?;
/// let mut batch = timer.lock();
/// add_both(&mut batch)?;
/// assert_eq!(batch.cancel(third), Some("third"));
/// assert!(batch.len() == 2 && !batch.is_empty());
/// drop(batch);
/// assert_eq!(timer.len(), 2);
/// # Ok::<(), tickwheel::Error>(())
/// ```
#[must_use = "dropping it unlocks the timer"]
pub struct TimerGuard<'a, T> {
    timer: &'a Timer<T>,
    /// `None` only while it is dropped.
    state: Option<MutexGuard<'a, State<T>>>,
    /// Whether the thread that drives the timer must be woken after the unlock.
    must_wake: bool,
    /// A guard stays on its thread, whichever lock it holds.
    not_send: PhantomData<*const ()>,
}

impl<T> TimerGuard<'_, T> {
    fn state(&mut self) -> &mut State<T> {
        self.state.as_mut().expect("it is there until the guard is dropped")
    }

    /// As [`Timer::add`].
    ///
    /// # Errors
    /// As [`Timer::add`].
    #[inline]
    pub fn add(&mut self, when: impl Into<When>, task: T) -> Result<Handle, AddError<T>> {
        let clock = &self.timer.clock;
        let state = self.state();
        match state.admit(clock, when.into(), 1) {
            Ok(due) => {
                let (handle, must_wake) = state.add(due, task, 0);
                self.must_wake |= must_wake;
                Ok(handle)
            }
            Err(error) => Err(AddError::new(error, task)),
        }
    }

    /// As [`Timer::reschedule`].
    ///
    /// # Errors
    /// As [`Timer::reschedule`].
    #[inline]
    pub fn reschedule(&mut self, handle: Handle, when: impl Into<When>) -> Result<bool, Error> {
        let clock = &self.timer.clock;
        let state = self.state();
        let due = state.admit(clock, when.into(), 0)?;
        let moved = state.reschedule(handle, due);
        self.must_wake |= moved == Some(true);
        Ok(moved.is_some())
    }

    /// As [`Timer::cancel`].
    #[inline]
    pub fn cancel(&mut self, handle: Handle) -> Option<T> {
        let clock = &self.timer.clock;
        self.state().cancel(clock, handle)
    }

    /// How many tasks are not yet released.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.schedule.len())
    }

    /// Whether every task has been released.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Drop for TimerGuard<'_, T> {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            let must_wake = self.timer.notify_after_removal(&state) || self.must_wake;
            self.timer.state.unlock_fair(state);
            self.timer.wake_driver_if(must_wake);
        }
    }
}

impl<T> fmt::Debug for TimerGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerGuard").field("pending", &self.len()).finish_non_exhaustive()
    }
}
