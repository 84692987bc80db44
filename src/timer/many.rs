//! Calls for many tasks at once: faster for each, and in steps, so that no thread waits long for the lock.

use super::Timer;
use crate::error::{AddError, Error};
use crate::state::Due;
use crate::wheel::Handle;
use crate::when::When;

/// As the steps of other calls. A model has few tasks.
const STEP: usize = if cfg!(tickwheel_model) { 2 } else { super::STEP };
const SCATTERED_STEP: usize = if cfg!(tickwheel_model) { 2 } else { super::SCATTERED_STEP };

/// Many tasks in one call.
///
/// ```
/// # use std::time::Duration;
/// # use tickwheel::{Clock, Config, Timer};
/// # let timer = Timer::new(&Config::default().with_max_pending(3), Clock::manual(0))?;
/// let handles = timer.add_many(["one", "two"].map(|task| (Duration::from_secs(30), task)))?;
/// timer.cancel(handles[0]);
/// let moves: Vec<_> = handles.iter().map(|handle| (*handle, Duration::from_secs(60))).collect();
/// assert_eq!(timer.reschedule_many(&moves)?, [false, true]);
///
/// // There is room for two more, not for three. The error gives all three back.
/// let refused = timer.add_many([(Duration::ZERO, "three"); 3]).unwrap_err();
/// assert_eq!((timer.len(), refused.into_task().len()), (1, 3));
/// assert_eq!(timer.cancel_many(&handles), [None, Some("two")]);
/// # Ok::<(), tickwheel::Error>(())
/// ```
impl<T> Timer<T> {
    /// As [`Timer::add`] for many, in order. All or nothing: no task is added if one instant is out of range, or if
    /// `max_pending` would be passed. All delays count from the same moment.
    ///
    /// # Errors
    /// As [`Timer::add`]. The error gives all tasks back.
    pub fn add_many<W: Into<When>>(
        &self,
        tasks: impl IntoIterator<Item = (W, T)>,
    ) -> Result<Vec<Handle>, AddError<Vec<(When, T)>>> {
        let tasks: Vec<(When, T)> = tasks.into_iter().map(|(when, task)| (when.into(), task)).collect();
        let whole = self.bulk.lock();
        let now = self.clock.now_down_and_up_us();
        if let Err(error) = self.reserve(&tasks, now) {
            return Err(AddError::new(error, tasks));
        }
        let (mut left, mut must_wake) = (tasks.len(), false);
        let mut handles = Vec::with_capacity(left);
        let mut tasks = tasks.into_iter();
        while left > 0 {
            let step = left.min(STEP);
            left -= step;
            let mut must_wake_now = false;
            let mut state = self.lock_state();
            state.reserve(left);
            for (when, task) in tasks.by_ref().take(step) {
                let (handle, must_wake) = state.add(Due::new(when, now), task, 0);
                handles.push(handle);
                must_wake_now |= must_wake;
            }
            self.unlock_fair(state);
            self.wake_thread_if(must_wake_now);
            must_wake |= must_wake_now;
        }
        drop(whole); // before the waker, which is foreign code
        self.call_waker_if(must_wake);
        Ok(handles)
    }

    /// Checks the whole batch, and keeps room for it.
    fn reserve(&self, tasks: &[(When, T)], now: (u64, u64)) -> Result<(), Error> {
        self.lock_state().admit_many(0)?; // a closed timer says so first
        tasks.iter().try_for_each(|(when, _)| Due::new(*when, now).check())?;
        let mut state = self.lock_state();
        state.admit_many(tasks.len())?;
        state.reserve(tasks.len());
        Ok(())
    }

    /// As [`Timer::reschedule`] for many tasks, in order, and faster for each. `false` stands for a task that was
    /// claimed or taken out before. All or nothing: every instant is checked before the first task moves. All new times count
    /// from the begin of the call.
    ///
    /// # Errors
    /// As [`Timer::reschedule`]. Every task stays where it is then.
    pub fn reschedule_many<W: Copy + Into<When>>(&self, moves: &[(Handle, W)]) -> Result<Vec<bool>, Error> {
        // Before the lock: the conversion may be foreign code.
        let whens: Vec<When> = moves.iter().map(|(_, when)| (*when).into()).collect();
        let whole = self.bulk.lock();
        self.lock_state().admit_many(0)?;
        let mut any_must_wake = false;
        let mut dues = Vec::with_capacity(moves.len());
        for whens in whens.chunks(SCATTERED_STEP) {
            let now = self.clock.now_down_and_up_us();
            for when in whens {
                let due = Due::new(*when, now);
                due.check()?;
                dues.push(due);
            }
        }
        {
            let mut state = self.lock_state();
            state.admit_many(0)?;
            state.move_batch(true);
        }
        let mut moved = Vec::with_capacity(moves.len());
        for chunk in moves.chunks(SCATTERED_STEP) {
            let handles: Vec<_> = chunk.iter().map(|(handle, _)| *handle).collect();
            let mut must_wake = false;
            let mut state = self.lock_state();
            state.schedule.slab.prefetch(&handles);
            for handle in handles {
                let answer = state.reschedule(handle, dues[moved.len()]);
                must_wake |= answer == Some(true);
                moved.push(answer.is_some());
            }
            self.notify_if_idle(&state);
            self.unlock_fair(state);
            self.wake_thread_if(must_wake);
            any_must_wake |= must_wake;
        }
        let must_close = {
            let mut state = self.lock_state();
            state.move_batch(false);
            self.notify_after_removal(&state)
        };
        self.wake_thread_if(must_close);
        drop(whole); // before the waker, which is foreign code
        self.call_waker_if(any_must_wake || must_close);
        Ok(moved)
    }

    /// As [`Timer::cancel`] for many, and faster for each: what each handle gave.
    pub fn cancel_many(&self, handles: &[Handle]) -> Vec<Option<T>> {
        let mut cancelled = Vec::with_capacity(handles.len());
        for handles in handles.chunks(SCATTERED_STEP) {
            let mut state = self.lock_state();
            state.schedule.slab.prefetch(handles);
            cancelled.extend(handles.iter().map(|handle| state.cancel(&self.clock, *handle)));
            let must_wake = self.notify_after_removal(&state);
            self.unlock_fair(state);
            self.wake_driver_if(must_wake);
        }
        cancelled
    }
}
