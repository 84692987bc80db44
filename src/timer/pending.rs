//! The lists of tasks: what is pending, and what is taken out because it will not run.

use super::Timer;
use crate::state::Pending;
use crate::wheel::Place;

/// The lists of tasks.
///
/// ```
/// # use std::time::Duration;
/// # use tickwheel::{Clock, Config, Executor, Released, Timer};
/// /// Takes nothing.
/// struct Full;
///
/// impl Executor for Full {
///     fn execute(&mut self, released: Released) -> Result<(), Released> {
///         Err(released)
///     }
/// }
///
/// let timer = Timer::new(&Config::default(), Clock::manual(0))?;
/// for (due_s, task) in [(0, "now"), (2, "two"), (1, "one")] {
///     timer.add(Duration::from_secs(due_s), task)?;
/// }
/// timer.advance(&mut Full);
/// assert_eq!(timer.take_rejected()[0].task, "now");
/// assert_eq!(timer.pending(u64::MAX, 1)[0].due_us, 1_000_000);
/// let drained: Vec<_> = timer.drain().into_iter().map(|pending| pending.task).collect();
/// assert_eq!(drained, ["one", "two"]);
/// # Ok::<(), tickwheel::Error>(())
/// ```
impl<T> Timer<T> {
    /// Takes what the executor refused since the last call, in order. Those tasks did not run and are not on the timer any
    /// more: add them again, or drop them. [`Timer::drain`] takes them too.
    pub fn take_rejected(&self) -> Vec<Pending<T>> {
        let rejected = self.lock_state().take_rejected();
        in_order(rejected.into_iter().flatten().collect())
    }

    /// Takes out all that has not been claimed, in order, in steps; also what the executor refused.
    pub fn drain(&self) -> Vec<Pending<T>> {
        self.drain_where(|_| true)
    }

    /// As [`Timer::drain`], but leaves the tasks on the executor's queue to the executor.
    #[doc(hidden)]
    pub fn drain_unreleased(&self) -> Vec<Pending<T>> {
        self.drain_where(|place| place != Place::Released)
    }

    fn drain_where(&self, goes: impl Fn(Place) -> bool) -> Vec<Pending<T>> {
        let mut drained = Vec::new();
        for page in 0.. {
            let mut state = self.lock_state();
            let Some(entries) = state.schedule.page(page) else { break };
            let found: Vec<_> =
                entries.filter(|(_, entry, _)| goes(entry.place())).map(|(handle, ..)| handle).collect();
            let taken: Vec<_> = found.into_iter().filter_map(|handle| state.take(handle)).collect();
            let must_wake = self.notify_after_removal(&state);
            self.unlock_fair(state);
            self.wake_driver_if(must_wake);
            drained.extend(taken); // without the lock: it may copy millions
        }
        drained.append(&mut self.take_rejected());
        in_order(drained)
    }

    /// The tasks that are due before `before_us` and not yet released, in order, at most `limit`. O(pending), in steps. Each task
    /// was pending at some moment of the call, and what was pending all the while is listed, moved or not.
    #[must_use]
    pub fn pending(&self, before_us: u64, limit: usize) -> Vec<Pending<()>> {
        let mut pending = Vec::new();
        for page in 0.. {
            let state = self.lock_state();
            let Some(entries) = state.schedule.page(page) else { break };
            // A move leaves a task in its slot.
            let waiting = entries.filter(|(_, entry, _)| entry.place() != Place::Released && entry.due_us < before_us);
            let found = waiting.map(|(handle, entry, _)| Pending {
                due_us: entry.due_us,
                number: entry.number(),
                tag: state.schedule.slab.tag(handle.slot()),
                handle,
                task: (),
            });
            let found: Vec<_> = found.collect();
            self.unlock_fair(state);
            pending.extend(found);
        }
        let mut pending = in_order(pending);
        pending.truncate(limit);
        pending
    }
}

/// In the order of T6.
fn in_order<T>(mut tasks: Vec<Pending<T>>) -> Vec<Pending<T>> {
    tasks.sort_unstable_by_key(|task| (task.due_us, task.number));
    tasks
}
