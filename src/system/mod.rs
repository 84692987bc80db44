//! `SystemTimer`: a timer with its reaper and one worker thread, for Rust programs.
//!
//! Callbacks run one after another on the thread `executor-<name>`, in the order of T6. A slow callback never stops the wheel.
//! The panic hook reports a callback that panics, and the next one runs (T10). Linux keeps 15 bytes of a thread's name, so it
//! shows that thread as `exec-<name>`, with the first 10 bytes of the timer's name.

mod callbacks;
mod periodic;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::config::Config;
use crate::error::{AddError, Error};
use crate::every::Every;
use crate::executor::Released;
use crate::state::{Pending, Room};
use crate::stats::Stats;
use crate::sync::{self, JoinHandle, PlainMutex, Sender, ThreadId, unbounded};
use crate::timer::Timer;
use crate::wheel::Handle;
use crate::when::When;
use crate::worker;

pub use callbacks::{Callback, PeriodicCallback};
pub use periodic::PeriodicTask;

/// A timer that runs closures when they are due, on a thread of its own.
///
/// Callbacks run one after another, by due instant, then by order of add. A slow one delays the others, but never stops
/// the wheel. If a callback panics, the panic hook reports it, and the next callback runs. A timer that is dropped
/// lives on until nothing is pending; [`SystemTimer::shutdown`] ends it at once.
///
/// ```
/// use std::time::Duration;
/// let timer = tickwheel::SystemTimer::new("demo", &tickwheel::Config::default())?;
/// let (send, receive) = std::sync::mpsc::channel();
/// timer.after(Duration::from_millis(5), move || send.send("five").unwrap())?;
/// let hour = timer.after(Duration::from_secs(3600), || unreachable!())?;
/// assert_eq!(receive.recv().unwrap(), "five");
/// assert!(hour.cancel());
/// assert!(timer.shutdown(None).is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Many at once, again and again, and what a shutdown gives back:
///
/// ```
/// # use std::time::{Duration, Instant};
/// # use tickwheel::{Callback, Clock, Config, SystemTimer};
/// let config = Config { max_pending: Some(1_000_000), ..Config::default() };
/// let timer = SystemTimer::on_clock("requests", &config, Clock::monotonic(0))?;
/// let timeouts = timer.add_many((0..3).map(|request| {
///     let callback: Callback = Box::new(move || println!("request {request} has timed out"));
///     (Duration::from_secs(30), callback)
/// }))?;
/// assert!(timeouts[0].reschedule(Duration::from_secs(60))?); // its peer has spoken
/// assert!(timeouts.iter().all(|timeout| timeout.cancel()) && timer.is_empty());
/// assert_eq!(timer.stats().cancelled, 3);
///
/// let (send, receive) = std::sync::mpsc::channel();
/// let mut beats = 0;
/// let heart = timer.every(Duration::from_millis(2), move || {
///     beats += 1;
///     let _ = send.send(beats);
/// })?;
/// assert_eq!(receive.iter().take(3).collect::<Vec<_>>(), [1, 2, 3]);
/// assert!(heart.cancel());
/// assert!(timer.clock().now_ms() >= 6); // it read 0 when the timer was made
///
/// timer.at(Instant::now() + Duration::from_secs(60), || println!("run early, by hand"))?;
/// assert_eq!(timer.len(), 1);
/// for unfinished in timer.shutdown(Some(Duration::from_secs(1))) {
///     (unfinished.task)();
/// }
/// # Ok::<(), tickwheel::Error>(())
/// ```
pub struct SystemTimer {
    timer: Arc<Timer<Callback>>,
    /// Shared with the worker, which takes it to lead.
    queue: Arc<PlainMutex<Option<Sender<Released>>>>,
    reaper: PlainMutex<Option<JoinHandle<()>>>,
    worker: PlainMutex<Option<JoinHandle<()>>>,
    worker_id: ThreadId,
}

/// A task that was added to a [`SystemTimer`]. Dropping it changes nothing: the task stays on the timer.
pub struct Task {
    timer: Weak<Timer<Callback>>,
    handle: Handle,
}

impl Task {
    /// Takes the task off its timer; `true` exactly when it is certain that it will not run. O(1).
    #[expect(clippy::must_use_candidate, reason = "often called for its effect alone")]
    pub fn cancel(&self) -> bool {
        self.timer.upgrade().is_some_and(|timer| timer.cancel(self.handle).is_some())
    }

    /// Moves the task to another time, a delay or a [`When`]; `false` for one that runs, has run, or was cancelled: it stays so.
    /// O(levels).
    ///
    /// # Errors
    /// [`Error::Closed`], or [`Error::Invalid`] for an instant out of range. The task stays where it is then.
    pub fn reschedule(&self, when: impl Into<When>) -> Result<bool, Error> {
        self.timer.upgrade().ok_or(Error::Closed)?.reschedule(self.handle, when)
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

    /// As [`SystemTimer::new`], on another clock: [`Clock::boottime_us`] goes on while the machine is suspended. A manual clock
    /// wakes no thread.
    ///
    /// # Errors
    /// As [`SystemTimer::new`].
    pub fn on_clock(name: &str, config: &Config, clock: Clock) -> Result<Self, Error> {
        let timer = Arc::new(Timer::new(config, clock)?);
        let (queue, mut released) = unbounded();
        let no_thread = |error| Error::invalid(format!("the system gave no thread for the timer: {error}"));
        let sender = Arc::new(PlainMutex::new(Some(queue.clone())));
        let worker = {
            let (timer, sender, shown) = (Arc::clone(&timer), Arc::clone(&sender), format!("exec-{name}"));
            sync::spawn(&format!("executor-{name}"), move || {
                sync::set_system_thread_name(&shown);
                worker::run_released(&timer, &sender, &mut released, |callback: Callback| callback());
            })
        };
        let worker = worker.map_err(no_thread)?;
        let reaper = {
            let (timer, mut queue) = (Arc::clone(&timer), queue);
            sync::spawn(&format!("reaper-{name}"), move || timer.drive(&mut queue))
        };
        let reaper = reaper.map_err(|error| {
            timer.close();
            sender.lock().take(); // the worker ends
            no_thread(error)
        })?;
        Ok(Self {
            timer,
            worker_id: worker.thread().id(),
            queue: sender,
            reaper: PlainMutex::new(Some(reaper)),
            worker: PlainMutex::new(Some(worker)),
        })
    }

    /// Runs `callback` once, after `delay`. O(levels).
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Full`], or [`Error::Invalid`] for a delay out of range. The error gives the callback
    /// back.
    pub fn after(&self, delay: Duration, callback: impl FnOnce() + Send + 'static) -> Result<Task, AddError<Callback>> {
        self.add_callback(delay.into(), Box::new(callback))
    }

    /// Runs `callback` once, at `instant`; at once if that has passed. O(levels).
    ///
    /// # Errors
    /// As [`SystemTimer::after`].
    pub fn at(&self, instant: Instant, callback: impl FnOnce() + Send + 'static) -> Result<Task, AddError<Callback>> {
        self.add_callback(When::AtUs(self.timer.clock().reading_us(instant)), Box::new(callback))
    }

    /// Runs `callback` again and again, at `start + n * period`: nothing drifts, however long a call takes.
    ///
    /// [`Every`] has the options: when to start, jitter, and what to do about calls that were missed. A [`Duration`]
    /// stands for a period that starts one period from now, without jitter, and skips what was missed. A call that panics
    /// does not end the series. `max_pending` can refuse the first call, and none after it.
    ///
    /// # Errors
    /// As [`SystemTimer::after`]; [`Error::Invalid`] also for a period under a microsecond.
    pub fn every(
        &self,
        every: impl Into<Every>,
        callback: impl FnMut() + Send + 'static,
    ) -> Result<PeriodicTask, AddError<PeriodicCallback>> {
        periodic::start(&self.timer, &every.into(), Box::new(callback))
    }

    /// Adds many callbacks at once: all, or none where one is out of range or `max_pending` would be passed. All delays
    /// count from the same moment.
    ///
    /// # Errors
    /// As [`SystemTimer::after`]. The error gives all callbacks back.
    pub fn add_many<W: Into<When>>(
        &self,
        callbacks: impl IntoIterator<Item = (W, Callback)>,
    ) -> Result<Vec<Task>, AddError<Vec<(When, Callback)>>> {
        let handles = self.timer.add_many(callbacks)?;
        Ok(handles.into_iter().map(|handle| self.task(handle)).collect())
    }

    fn add_callback(&self, when: When, callback: Callback) -> Result<Task, AddError<Callback>> {
        Ok(self.task(self.timer.add(when, callback)?))
    }

    fn task(&self, handle: Handle) -> Task {
        Task { timer: Arc::downgrade(&self.timer), handle }
    }

    /// For a callback of the library's own; returns also what the clock read.
    pub(crate) fn add(&self, delay: Duration, callback: Callback, room: Room) -> Result<(Handle, u64), Error> {
        Ok(self.timer.add_with(delay.into(), callback, 0, room)?)
    }

    pub(crate) fn cancel(&self, handle: Handle) -> bool {
        self.timer.cancel(handle).is_some()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.timer.lock_state().is_closed
    }

    /// How many tasks are not yet released.
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

    /// The timer's clock; it read 0 when the timer was made.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.timer.clock()
    }

    /// Accepts no more tasks, runs what is due by now, and returns the rest, in order.
    ///
    /// `timeout` bounds the wait for callbacks; what has not started by then counts as pending. From inside a callback it
    /// waits for nothing. A second call returns what the first one left, which is nothing.
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
        self.timer.close_when_empty();
        self.queue.lock().take();
    }
}

#[cfg(all(test, tickwheel_model))]
mod tests {
    mod model;
}

#[cfg(all(test, not(any(tickwheel_model, tickwheel_loom))))]
mod tests {
    use std::panic::resume_unwind;

    use super::*;
    use crate::sync::spawn;

    #[test]
    fn a_reaper_goes_on_after_its_executor_panicked__t13() {
        let timer =
            Arc::new(Timer::new(&Config::default(), Clock::monotonic(0)).expect("the default settings are good"));
        timer.add(When::AtUs(0), "costs the panic").expect("in range");
        let (sender, released) = unbounded();
        let driven = Arc::clone(&timer);
        let mut has_panicked = false;
        let thread = spawn("reaper", move || {
            driven.drive(&mut |batch: Released| {
                let _ = sender.send(batch.tickets);
                if !std::mem::replace(&mut has_panicked, true) {
                    resume_unwind(Box::new("broken")); // without the panic hook's message
                }
            });
        });
        let first = released.recv().expect("the first batch");
        timer.add(When::AtUs(0), "goes on").expect("in range");
        let second = released.recv().expect("the reaper lives");
        assert_eq!(timer.claim(second[0]).map(|claimed| claimed.task), Some("goes on"));
        assert!(timer.claim(first[0]).is_none(), "it was given to an executor that broke");
        timer.close();
        thread.expect("a thread").join().expect("it ended well");
        let kept: Vec<_> = timer.take_rejected().into_iter().map(|rejected| rejected.task).collect();
        assert_eq!(kept, ["costs the panic"]);
    }
}
