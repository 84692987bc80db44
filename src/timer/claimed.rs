//! `Claimed`: a task that runs, and counts as running until it is dropped.

use std::fmt;

use super::Timer;
use crate::schedule::Expired;
use crate::wheel::Ticket;

impl<T> Timer<T> {
    /// Takes a released task in order to run it; `None` if it was cancelled, or is not released. O(1).
    ///
    /// The task counts as running until the [`Claimed`] is dropped.
    #[must_use = "the task is off the timer, and whoever claims it runs it"]
    pub fn claim(&self, ticket: Ticket) -> Option<Claimed<'_, T>> {
        let Expired { task, tag, due_us, number, .. } = self.lock_state().claim(ticket, self.clock.now_us())?;
        Some(Claimed { task, tag, due_us, number, _running: Running(self) })
    }
}

/// A claimed task, to be run: no other claim or cancel returns it.
///
/// The task counts as running until this value, or what is left of it, is dropped, also by a panic. [`Timer::wait_idle`]
/// waits for that. [`Claimed::run`] is the short way. Otherwise keep the `Claimed` in a variable: `timer.claim(ticket)?.task`
/// alone drops the rest at once.
///
/// ```
/// # use std::time::Duration;
/// # use tickwheel::{Clock, Config, Released, Timer};
/// # let timer = Timer::new(&Config::default(), Clock::manual(0))?;
/// timer.add(Duration::ZERO, || println!("it runs"))?;
/// let mut tickets = Vec::new();
/// timer.advance(&mut |released: Released| tickets.extend(released.tickets));
/// for ticket in tickets {
///     if let Some(claimed) = timer.claim(ticket) {
///         claimed.run(|task| task());
///     }
/// }
/// assert!(timer.wait_idle(Some(Duration::ZERO)));
/// # Ok::<(), tickwheel::Error>(())
/// ```
#[must_use = "once it is dropped, the task counts as run"]
pub struct Claimed<'a, T> {
    /// The task.
    pub task: T,
    /// The number that was added with it.
    pub tag: u32,
    /// When it was due.
    pub due_us: u64,
    /// Its add number. Tasks that are due together run in the order of these.
    pub number: u64,
    /// A field of its own, so that `task` can be moved out.
    _running: Running<'a, T>,
}

/// Counts as a running task.
struct Running<'a, T>(&'a Timer<T>);

impl<T> Claimed<'_, T> {
    /// Gives the task to `run`, which it counts as running in.
    pub fn run<R>(self, run: impl FnOnce(T) -> R) -> R {
        run(self.task)
    }
}

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        self.0.finish_locked(&mut self.0.lock_state(), 1);
    }
}

impl<T: fmt::Debug> fmt::Debug for Claimed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claimed")
            .field("task", &self.task)
            .field("tag", &self.tag)
            .field("due_us", &self.due_us)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
