//! The timing wheel for one thread: no lock, no thread, and no clock, as the caller says what time it is.
//!
//! It owns a [`Schedule`], as the lock of a [`Timer`](crate::Timer) does, so time, order and cancel are the same. A due
//! task is released and claimed as there, but without an executor in between: the tickets of released tasks wait in a
//! buffer of one step. No foreign code runs in a call, so a panic of the caller finds the wheel as the last call left
//! it.

use std::fmt;

use crate::config::Config;
use crate::error::{AddError, Error};
use crate::schedule::{Expired, Progress, STEP, Schedule};
use crate::state::Due;
use crate::wheel::{Handle, Ticket};
use crate::when::When;

/// Very many deadlines of one thread, or under a lock of the program's own: the fastest form of the timer.
///
/// It has no lock and no thread, and it reads no clock: [`pop_due`](Wheel::pop_due) and
/// [`set_now_us`](Wheel::set_now_us) tell it the time, in microseconds. `T` is the task, anything that is to come back
/// when it is due. It comes back once the wheel has its instant or a later one as the time, never before. The earlier
/// task comes first. If tasks are due together, the order is that of their adds. Add, cancel and move are O(1) whatever
/// the delay.
///
/// A loop takes what is due, and sleeps until [`next_wake_us`](Wheel::next_wake_us):
///
/// ```
/// use std::time::Duration;
/// use tickwheel::{Config, Wheel};
///
/// let mut wheel = Wheel::new(&Config::default(), 0)?;
/// let answer = wheel.add(Duration::from_millis(5), "no answer")?;
/// wheel.add(Duration::from_millis(9), "try again")?;
/// assert_eq!(wheel.cancel(answer), Some("no answer"));
///
/// let mut tries = 0;
/// while let Some(now_us) = wheel.next_wake_us() {
///     // Here a program sleeps until `now_us`. The body of the inner loop may use the wheel.
///     while let Some(due) = wheel.pop_due(now_us) {
///         tries += 1;
///         if tries < 3 {
///             wheel.add(Duration::from_millis(9), due.task)?;
///         }
///     }
/// }
/// assert_eq!((tries, wheel.now_us()), (3, 27_000));
/// # Ok::<(), tickwheel::Error>(())
/// ```
///
/// What is due comes in order, and only what is pending can be moved or cancelled:
///
/// ```
/// # use std::time::Duration;
/// # use tickwheel::{Config, Wheel, When};
/// let mut wheel = Wheel::new(&Config::default(), 0)?;
/// wheel.set_now_us(100_000_000); // it was idle for long: a delay counts from now
/// wheel.add(Duration::from_millis(9), "nine")?;
/// wheel.add(When::AtUs(100_005_000), "five")?;
/// let timeout = wheel.add(Duration::from_secs(30), "request 7")?;
/// assert!(wheel.reschedule(timeout, Duration::from_secs(60))?);
/// assert_eq!((wheel.cancel(timeout), wheel.cancel(timeout)), (Some("request 7"), None));
/// assert!(wheel.len() == 2 && !wheel.is_empty());
///
/// let due = wheel.pop_due(100_020_000).expect("both are due");
/// assert_eq!((due.task, due.due_us), ("five", 100_005_000));
/// // The rest in order, whenever it is due. Nothing can be added after the end of time.
/// assert_eq!(wheel.pop_due(u64::MAX).map(|due| due.task), Some("nine"));
/// # Ok::<(), tickwheel::Error>(())
/// ```
///
/// A delay counts from the time that the wheel was told last. If that may be long ago, or the program's clock is finer
/// than a microsecond, add an instant of that clock, rounded up, and tell the time rounded down:
///
/// ```
/// use tickwheel::{Clock, Config, Wheel, When};
///
/// let clock = Clock::monotonic(0);
/// let mut wheel = Wheel::new(&Config::default(), clock.now_us())?;
/// wheel.add(When::AtUs(clock.now_up_us() + 500), "half a millisecond")?;
/// let due = loop {
///     match wheel.pop_due(clock.now_us()) {
///         Some(due) => break due,
///         None => std::hint::spin_loop(), // or sleep until `wheel.next_wake_us()`
///     }
/// };
/// assert!(clock.now_us() >= due.due_us);
/// # Ok::<(), tickwheel::Error>(())
/// ```
///
/// With [`Precision::Tick`](crate::Precision) a task comes up to one tick early, and [`Config::slack_us`] has no effect.
/// [`Timer`](crate::Timer) is the same for many threads.
pub struct Wheel<T> {
    schedule: Schedule<T>,
    /// The latest time that it was told.
    now_us: u64,
    /// The most pending tasks.
    max_pending: usize,
    /// The last step's released tasks, in order; those of them that were cancelled or moved are stale.
    released: Vec<Ticket>,
    /// How many of them were read.
    read: usize,
}

impl<T> Wheel<T> {
    /// A wheel that begins at this time of the program's clock.
    ///
    /// # Errors
    /// [`Error::Invalid`] for settings that are not allowed, or a start out of range.
    pub fn new(config: &Config, start_us: u64) -> Result<Self, Error> {
        config.check()?;
        let start_ms = start_us / 1000;
        Config::check_start(start_ms)?;
        Ok(Self {
            schedule: Schedule::new(config.tick_ms, &config.wheel_sizes, start_ms, config.precision),
            now_us: start_us,
            max_pending: config.max_pending.unwrap_or(usize::MAX),
            released: Vec::new(),
            read: 0,
        })
    }

    /// The latest time that the wheel was told, in microseconds.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Tells the wheel what time it is, and takes nothing out. A time before the last one changes nothing.
    ///
    /// Call it before an add if the wheel was told the time long ago: a delay counts from now then, and the task needs
    /// no more wake-ups than on a wheel that was never idle.
    #[inline]
    pub fn set_now_us(&mut self, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
    }

    /// Schedules a task. O(levels).
    ///
    /// `when` is a delay, or a [`When`]. The handle cancels and moves the task.
    ///
    /// # Errors
    /// [`Error::Full`], or [`Error::Invalid`] for an instant out of range. The error gives the task back.
    #[inline]
    pub fn add(&mut self, when: impl Into<When>, task: T) -> Result<Handle, AddError<T>> {
        let due = self.due(when.into());
        match due.check().and_then(|()| self.check_room()) {
            Ok(()) => Ok(self.schedule.add(due.now_us, due.due_us, task, 0).0),
            Err(error) => Err(AddError::new(error, task)),
        }
    }

    /// Moves a pending task; `Ok(false)` for one that is not pending any more. Its handle stays good. The move counts as an
    /// add in the order of tasks that are due together. O(levels).
    ///
    /// # Errors
    /// [`Error::Invalid`] for an instant out of range. The task stays where it is then.
    #[inline]
    pub fn reschedule(&mut self, handle: Handle, when: impl Into<When>) -> Result<bool, Error> {
        let due = self.due(when.into());
        due.check()?;
        Ok(self.schedule.reschedule(due.now_us, handle, due.due_us).is_some())
    }

    /// Takes a pending task out, before it is due or after; `None` for one that is not pending any more. O(1).
    #[inline]
    pub fn cancel(&mut self, handle: Handle) -> Option<T> {
        self.schedule.remove(handle)
    }

    /// Tells the wheel what time it is, and takes out the next due task; `None` once no task is due.
    ///
    /// The wheel may be used between two calls. A task that is added then has its place in the order; a cancelled task
    /// does not come. (With [`Precision::Tick`](crate::Precision) a task that is added then may come after later ones
    /// of its tick.) A time before the last one counts as the last one.
    ///
    /// Amortized O(levels) a task. A call at which a bucket of a higher level is due moves all tasks of that bucket.
    #[inline]
    pub fn pop_due(&mut self, now_us: u64) -> Option<Expired<T>> {
        self.set_now_us(now_us);
        loop {
            while let Some(ticket) = self.released.get(self.read) {
                self.read += 1;
                if let Some(expired) = self.schedule.claim(*ticket) {
                    return Some(expired);
                }
            }
            if !self.release() {
                return None;
            }
        }
    }

    /// When to call [`pop_due`](Wheel::pop_due) next, in microseconds; `None` while nothing is pending. A time that
    /// has passed means now.
    ///
    /// It is never after the first task is due, and may be before: a task that is far away moves down in a few
    /// wake-ups.
    pub fn next_wake_us(&mut self) -> Option<u64> {
        // Released tasks that were not handed out are due, and the schedule does not have them any more.
        if self.schedule.released() > 0 { Some(self.now_us) } else { self.schedule.next_wake_us() }
    }

    /// How many tasks are pending.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.schedule.len() + self.schedule.released()
    }

    /// Whether nothing is pending.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn due(&self, when: When) -> Due {
        Due::new(when, (self.now_us, self.now_us))
    }

    #[inline]
    fn check_room(&self) -> Result<(), Error> {
        if self.len() < self.max_pending { Ok(()) } else { Err(Error::Full { max_pending: self.max_pending }) }
    }

    /// Releases the next due tasks; `false` if there are none.
    #[inline(never)] // once for many tasks
    fn release(&mut self) -> bool {
        self.released.clear();
        self.read = 0;
        let mut more = true;
        while more && self.released.is_empty() {
            more = self.schedule.step(self.now_us, STEP, &mut self.released, &mut Progress::default());
        }
        !self.released.is_empty()
    }
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel").field("now_us", &self.now_us).field("pending", &self.len()).finish_non_exhaustive()
    }
}
