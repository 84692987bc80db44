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
/// # let timer = Timer::new(&Config { max_pending: Some(3), ..Config::default() }, Clock::manual(0))?;
/// let handles = timer.add_many(["one", "two"].map(|task| (Duration::from_secs(30), task)))?;
/// timer.cancel(handles[0]);
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
        let _whole = self.bulk.lock();
        let now = self.clock.now_down_and_up_us();
        if let Err(error) = self.reserve(&tasks, now) {
            return Err(AddError::new(error, tasks));
        }
        let mut left = tasks.len();
        let mut handles = Vec::with_capacity(left);
        let mut tasks = tasks.into_iter();
        while left > 0 {
            let step = left.min(STEP);
            left -= step;
            let mut must_wake = false;
            let mut state = self.lock_state();
            state.reserve(left);
            for (when, task) in tasks.by_ref().take(step) {
                let (handle, is_earliest) = state.add(Due::new(when, now), task, 0);
                handles.push(handle);
                must_wake |= is_earliest;
            }
            self.unlock_fair(state);
            self.wake_driver_if(must_wake);
        }
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
