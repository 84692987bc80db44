//! `SystemTimer`: a timer with its reaper and one worker thread, for Rust programs.
//!
//! Callbacks run one after another on the thread `executor-<name>`, in the order of T6; a slow one never stops the wheel.
//! One that panics reports itself through the panic hook, and the next one runs (T10). Linux keeps 15 bytes of a thread's
//! name, so it shows that thread as `exec-<name>`, with the first 10 bytes of the timer's name.

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::clock::Clock;
use crate::config::Config;
use crate::error::Error;
use crate::executor::Released;
use crate::reaper;
use crate::state::{Pending, Room, When};
use crate::stats::Stats;
use crate::sync::{self, JoinHandle, PlainMutex, Sender, ThreadId, unbounded};
use crate::timer::Timer;
use crate::wheel::Handle;
use crate::worker;

/// What a task of a [`SystemTimer`] runs.
pub type Callback = Box<dyn FnOnce() + Send>;

/// A timer that runs closures when they are due.
///
/// Dropped, it lives on until nothing is pending; [`SystemTimer::shutdown`] ends it at once.
///
/// ```
/// use std::time::Duration;
/// let timer = tickwheel::SystemTimer::new("demo", &tickwheel::Config::default())?;
/// let (tell, told) = std::sync::mpsc::channel();
/// timer.after(Duration::from_millis(5), move || tell.send("five").unwrap())?;
/// let hour = timer.after(Duration::from_secs(3600), || unreachable!())?;
/// assert_eq!(told.recv().unwrap(), "five");
/// assert!(hour.cancel());
/// assert!(timer.shutdown(None).is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SystemTimer {
    timer: Arc<Timer<Callback>>,
    queue: PlainMutex<Option<Sender<Released>>>,
    reaper: PlainMutex<Option<JoinHandle<()>>>,
    worker: PlainMutex<Option<JoinHandle<()>>>,
    worker_id: ThreadId,
}

/// A task that was added to a [`SystemTimer`].
#[derive(Clone)]
pub struct Task {
    timer: Weak<Timer<Callback>>,
    handle: Handle,
}

impl Task {
    /// Takes the task off its timer; `true` exactly when it is certain that it will not run (T9). O(1).
    #[expect(clippy::must_use_candidate, reason = "often called for its effect alone")]
    pub fn cancel(&self) -> bool {
        self.timer.upgrade().is_some_and(|timer| timer.cancel(self.handle).is_some())
    }
}

impl SystemTimer {
    /// Starts a timer on the system's monotonic clock, with the threads `reaper-<name>` and `executor-<name>`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for settings that are not allowed, or where the system gives no thread.
    pub fn new(name: &str, config: &Config) -> Result<Self, Error> {
        Self::on_clock(name, config, Clock::monotonic(0))
    }

    pub(crate) fn on_clock(name: &str, config: &Config, clock: Clock) -> Result<Self, Error> {
        let timer = Arc::new(Timer::new(config, clock)?);
        let (queue, mut released) = unbounded();
        let no_thread = |error| Error::invalid(format!("the system gave no thread for the timer: {error}"));
        let worker = {
            let (timer, shown) = (Arc::clone(&timer), format!("exec-{name}"));
            sync::spawn(&format!("executor-{name}"), move || {
                sync::set_system_thread_name(&shown);
                worker::run_released(&timer, &mut released, |callback: Callback| callback());
            })
        };
        let worker = worker.map_err(no_thread)?;
        let reaper = {
            let (timer, mut queue) = (Arc::clone(&timer), queue.clone());
            sync::spawn(&format!("reaper-{name}"), move || reaper::run(&timer, &mut queue))
        };
        Ok(Self {
            timer,
            worker_id: worker.thread().id(),
            queue: PlainMutex::new(Some(queue)),
            reaper: PlainMutex::new(Some(reaper.map_err(no_thread)?)),
            worker: PlainMutex::new(Some(worker)),
        })
    }

    /// Runs `callback` once, after `delay`. O(levels).
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Full`], or [`Error::Invalid`] for a delay out of range.
    pub fn after(&self, delay: Duration, callback: impl FnOnce() + Send + 'static) -> Result<Task, Error> {
        let (handle, _) = self.add(delay, Box::new(callback), Room::IfAny)?;
        Ok(Task { timer: Arc::downgrade(&self.timer), handle })
    }

    pub(crate) fn add(&self, delay: Duration, callback: Callback, room: Room) -> Result<(Handle, u64), Error> {
        let delay_us = u64::try_from(delay.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX);
        self.timer.add_with(When::AfterUs(delay_us), callback, 0, room)
    }

    pub(crate) fn cancel(&self, handle: Handle) -> bool {
        self.timer.cancel(handle).is_some()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.timer.lock().is_closed
    }

    /// Tasks not yet released.
    #[must_use]
    pub fn len(&self) -> usize {
        self.timer.len()
    }

    /// Whether nothing is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.timer.is_empty()
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.timer.stats()
    }

    /// The timer's clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.timer.clock()
    }

    /// Accepts no more, runs what is due by now, and returns the rest, in order (T11).
    ///
    /// `timeout` bounds the wait for callbacks; what has not started by then counts as pending. From inside a callback it
    /// waits for nothing.
    pub fn shutdown(&self, timeout: Option<Duration>) -> Vec<Pending<Callback>> {
        self.timer.close();
        if let Some(reaper) = self.reaper.lock().take() {
            // It contains what panics on it; if it panicked all the same, the panic hook has said so.
            let _ = reaper.join();
        }
        // Locked until the block ends: a second shutdown waits here until what is due is on the queue.
        if let Some(mut queue) = self.queue.lock().take() {
            self.timer.advance(&mut queue);
        }
        let inside = self.is_worker();
        let finished = self.timer.wait_idle(if inside { Some(Duration::ZERO) } else { timeout });
        let unfinished = self.timer.drain();
        if finished
            && !inside
            && let Some(worker) = self.worker.lock().take()
        {
            let _ = worker.join();
        }
        unfinished
    }

    fn is_worker(&self) -> bool {
        sync::current_thread().id() == self.worker_id
    }
}

impl fmt::Debug for SystemTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemTimer").field("pending", &self.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl Drop for SystemTimer {
    fn drop(&mut self) {
        self.timer.abandon();
    }
}

#[cfg(all(test, tickwheel_model))]
mod model;

#[cfg(all(test, not(any(tickwheel_model, tickwheel_loom))))]
mod tests {
    use std::panic::resume_unwind;

    use super::*;
    use crate::sync::spawn;

    #[test]
    fn a_reaper_goes_on_after_its_executor_panicked__t13() {
        let timer =
            Arc::new(Timer::new(&Config::default(), Clock::monotonic(0)).expect("the default settings are good"));
        timer.add(When::AtUs(0), "costs the panic", 0).expect("in range");
        let (sender, mut released) = unbounded();
        let driven = Arc::clone(&timer);
        let mut has_panicked = false;
        let thread = spawn("reaper", move || {
            reaper::run(&driven, &mut |batch: Released| {
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
        thread.expect("a thread").join().expect("it ended well");
        let kept: Vec<_> = timer.take_rejected().into_iter().map(|rejected| rejected.task).collect();
        assert_eq!(kept, ["costs the panic"]);
    }
}
