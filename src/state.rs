//! What the timer's lock guards: the schedule, the sleep of the driving thread, the counters. No lock and no thread in here.

use std::ops::ControlFlow;

use crate::clock::{Clock, LIMIT_MS, LIMIT_US};
use crate::config::Config;
use crate::error::Error;
use crate::events::{Event, EventKind, Recorded, Recorder};
use crate::lead::{Lead, Wait, WorkerDoes};
use crate::schedule::{Expired, Progress, Schedule};
use crate::slack::Slack;
use crate::stats::{Histogram, Stats};
use crate::wheel::{Entry, Handle, Ticket};
use crate::when::When;

/// Whether `max_pending` can refuse an add (T17).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// It can refuse a user's add.
    IfAny,
    /// It never refuses what the library adds for a task that it has accepted.
    Always,
}

/// A task that has not run: what [`crate::Timer::pending`] lists, and what `drain` and `take_rejected` take out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pending<T> {
    /// When it is due, in microseconds of the timer's clock.
    pub due_us: u64,
    /// Its add number, which orders tasks that are due together.
    pub number: u64,
    /// The number that came with it.
    pub tag: u32,
    /// Its handle, which is stale if the task was taken out.
    pub handle: Handle,
    /// The task, if it was taken out.
    pub task: T,
}

/// Why an instant past the range is refused.
#[cold]
pub(crate) fn due_too_late(due_us: u64) -> Error {
    Error::invalid(format!(
        "a task must be due before {LIMIT_MS} ms (2^52) on the timer's clock, got {} ms: leave the task out to wait for \
         ever",
        due_us / 1000
    ))
}

/// All that the lock guards.
#[derive(Debug)]
pub struct State<T> {
    /// What is pending.
    pub schedule: Schedule<T>,
    max_pending: Option<usize>,
    /// Room that is kept for the rest of a batch that is being added.
    reserved: usize,
    /// Whether it takes no more tasks.
    pub is_closed: bool,
    /// Whether the timer closes once nothing is pending.
    pub closes_when_empty: bool,
    pub(crate) lead: Lead,
    /// Callbacks that were claimed and have not finished.
    running: usize,
    /// Threads in `Timer::wait_idle`.
    pub(crate) waits_for_idle: usize,
    /// Tasks that an executor refused, until they are taken; in pieces, so that no push copies many.
    rejected: Vec<Vec<Pending<T>>>,
    stats: Stats,
    lateness: Histogram,
    /// Present during a recording.
    recorder: Option<Box<Recorder>>,
}

/// When a task is due, and what the clock read when that was decided.
#[derive(Debug, Clone, Copy)]
pub struct Due {
    /// What the clock read.
    pub now_us: u64,
    /// When the task is due, by that clock.
    pub due_us: u64,
}

impl Due {
    /// `now` is what the clock reads, rounded down and rounded up.
    #[inline]
    pub(crate) fn new(when: When, now: (u64, u64)) -> Self {
        Self { now_us: now.0, due_us: when.due_us(now) }
    }

    /// Whether it is in range.
    #[inline]
    pub(crate) fn check(self) -> Result<(), Error> {
        if self.due_us < LIMIT_US { Ok(()) } else { Err(due_too_late(self.due_us)) }
    }
}

impl<T> State<T> {
    pub(crate) fn new(config: &Config, start_ms: u64) -> Self {
        Self {
            schedule: Schedule::new(config.tick_ms, &config.wheel_sizes, start_ms, config.precision),
            max_pending: config.max_pending,
            reserved: 0,
            is_closed: false,
            closes_when_empty: false,
            lead: Lead::default(),
            running: 0,
            waits_for_idle: 0,
            rejected: Vec::new(),
            stats: Stats::default(),
            lateness: Histogram::default(),
            recorder: None,
        }
    }

    /// Begins to record; `false` if a recording runs already.
    pub fn record(&mut self, bound: usize) -> bool {
        let starts = self.recorder.is_none();
        if starts {
            self.recorder = Some(Box::new(Recorder::new(bound)));
            self.schedule.wheel.flushed = Some(Vec::new());
        }
        starts
    }

    pub(crate) fn take_recorded(&mut self, limit: usize) -> Recorded {
        self.recorder.as_mut().map(|recorder| recorder.take(limit)).unwrap_or_default()
    }

    pub(crate) fn stop_recording(&mut self) -> Recorded {
        let recorded = self.take_recorded(usize::MAX);
        (self.recorder, self.schedule.wheel.flushed) = (None, None);
        recorded
    }

    /// Checks that `count` more tasks may be added at this instant. It changes nothing.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Full`], or [`Error::Invalid`] for an instant out of range.
    #[inline]
    pub fn admit(&self, clock: &Clock, when: When, count: usize) -> Result<Due, Error> {
        if self.is_closed {
            return Err(Error::Closed);
        }
        let due = Due::new(when, clock.now_down_and_up_us());
        due.check()?;
        self.check_room(count)?;
        Ok(due)
    }

    /// As [`State::admit`], for a batch whose instants are checked elsewhere.
    pub(crate) fn admit_many(&self, count: usize) -> Result<(), Error> {
        if self.is_closed { Err(Error::Closed) } else { self.check_room(count) }
    }

    #[inline]
    fn check_room(&self, count: usize) -> Result<(), Error> {
        match self.max_pending {
            Some(max_pending) if count > 0 && count > max_pending.saturating_sub(self.taken()) => {
                Err(Error::Full { max_pending })
            }
            _ => Ok(()),
        }
    }

    /// Adds a task that was admitted. Returns also whether the driving thread must be woken after the unlock.
    #[inline]
    pub fn add(&mut self, due: Due, task: T, tag: u32) -> (Handle, bool) {
        self.stats.added += 1;
        let (handle, wake_us) = self.schedule.add(due.now_us, due.due_us, task, tag);
        self.record_placed(EventKind::Added, due.now_us, handle, 0);
        (handle, self.lead.must_wake(wake_us))
    }

    /// Moves a task that was not claimed; whether a sleeping thread must be woken. `None` for a stale handle.
    pub fn reschedule(&mut self, handle: Handle, due: Due) -> Option<bool> {
        let recorded = self.recorder.as_ref().and_then(|_| self.schedule.slab.get(handle));
        let number = recorded.map_or(0, Entry::number);
        let wake_us = self.schedule.reschedule(due.now_us, handle, due.due_us)?;
        self.stats.moved += 1;
        self.record_placed(EventKind::Moved, due.now_us, handle, number);
        Some(self.lead.must_wake(wake_us))
    }

    /// Takes a task out that was not claimed.
    #[inline]
    pub fn cancel(&mut self, clock: &Clock, handle: Handle) -> Option<T> {
        if self.recorder.is_some() {
            self.record_cancelled(clock.now_us(), handle);
        }
        let cancelled = self.schedule.remove(handle)?;
        self.stats.cancelled += 1;
        Some(cancelled)
    }

    /// Takes a task out of its slot, for [`Pending`].
    pub fn take(&mut self, handle: Handle) -> Option<Pending<T>> {
        let entry = self.schedule.slab.get(handle)?;
        let (due_us, number, tag) = (entry.due_us, entry.number(), self.schedule.slab.tag(handle.slot()));
        let task = self.schedule.remove(handle)?;
        Some(Pending { due_us, number, tag, handle, task })
    }

    /// Takes out these released tasks, if they are still there, and keeps them as rejected. Returns how many.
    pub(crate) fn reject(&mut self, tickets: &[Ticket]) -> usize {
        let rejected: Vec<_> = tickets.iter().filter_map(|ticket| self.refuse(*ticket)).collect();
        let count = rejected.len();
        if count > 0 {
            self.rejected.push(rejected);
        }
        count
    }

    pub(crate) fn take_rejected(&mut self) -> Vec<Vec<Pending<T>>> {
        std::mem::take(&mut self.rejected)
    }

    /// Takes out a task that the executor refused.
    pub fn refuse(&mut self, ticket: Ticket) -> Option<Pending<T>> {
        let Expired { task, tag, due_us, number, handle } = self.schedule.claim(ticket)?;
        Some(Pending { due_us, number, tag, handle, task })
    }

    /// Keeps room for the rest of a batch that is added in steps; `admit` counts it as taken.
    pub fn reserve(&mut self, count: usize) {
        self.reserved = count;
    }

    /// Takes a released task out, to run it.
    pub fn claim(&mut self, ticket: Ticket, now_us: u64) -> Option<Expired<T>> {
        let expired = self.schedule.claim(ticket)?;
        self.running += 1;
        self.stats.expired += 1;
        self.lateness.record(now_us.saturating_sub(expired.due_us));
        if let Some(recorder) = &mut self.recorder {
            let Expired { due_us, number, .. } = expired;
            recorder.push(Event { at_us: now_us, number, due_us, other: 0, kind: EventKind::Expired, level: 0 });
        }
        Some(expired)
    }

    /// [`Schedule::step`], recorded.
    pub(crate) fn step(&mut self, now_us: u64, limit: usize, out: &mut Vec<Ticket>, progress: &mut Progress) -> bool {
        let more = self.schedule.step(now_us, limit, out, progress);
        if let (Some(recorder), Some(flushed)) = (&mut self.recorder, &mut self.schedule.wheel.flushed) {
            flushed.drain(..).for_each(|flushed| recorder.push(Event::cascaded(flushed, now_us)));
        }
        more
    }

    /// The counts since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            cascaded: self.schedule.wheel.cascaded.clone(),
            pending: self.schedule.len(),
            executor_depth: self.schedule.released(),
            running: self.running,
            lateness_us: self.lateness.classes(),
            ..self.stats.clone()
        }
    }

    /// The number that `max_pending` limits: pending tasks, tasks that wait for the executor, and the room kept for a
    /// batch.
    fn taken(&self) -> usize {
        self.schedule.slab.len() + self.reserved
    }

    /// Counts this many claimed tasks as run, at most those that run.
    pub(crate) fn finish(&mut self, count: usize) {
        self.running = self.running.saturating_sub(count);
    }

    /// Whether the timer is idle and a thread is waiting for that.
    pub(crate) fn must_notify_idle(&self) -> bool {
        self.waits_for_idle > 0 && self.is_idle()
    }

    /// Whether no task is released and none runs.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.schedule.released() == 0 && self.running == 0
    }

    /// Whether the thread that drives the timer has nothing to wait for any more.
    fn has_ended(&self) -> bool {
        self.is_closed || self.must_close_now()
    }

    /// Whether the timer waited for its last task to go, in order to close.
    pub(crate) fn must_close_now(&self) -> bool {
        self.closes_when_empty && self.schedule.len() == 0 && self.reserved == 0
    }

    /// Notes that the driving thread sleeps, and returns until when, `limit_us` at the latest. Or returns why the thread must not
    /// sleep: if something is due, the next sleep ends the slack later at the earliest.
    pub(crate) fn start_sleep(&mut self, now_us: u64, slack: Slack, limit_us: u64) -> ControlFlow<Wait, u64> {
        if self.lead.take_rest() {
            return ControlFlow::Break(Wait::Due);
        }
        if self.has_ended() {
            self.is_closed = true; // no thread would drive what is added from now on
            return ControlFlow::Break(Wait::Closed);
        }
        let next_us = self.schedule.next_wake_us();
        self.lead.start_sleep(next_us, now_us, slack, limit_us)
    }

    /// As [`State::start_sleep`], for the worker. It waits at its queue also where something was released elsewhere, and is or
    /// will be on the queue.
    pub(crate) fn start_worker_sleep(&mut self, now_us: u64, slack: Slack) -> WorkerDoes {
        if self.has_ended() {
            self.is_closed = true;
            return WorkerDoes::WaitAtQueue;
        }
        if self.schedule.released() > 0 {
            return WorkerDoes::WaitAtQueue;
        }
        let next_us = self.schedule.next_wake_us();
        self.lead.start_worker_sleep(next_us, now_us, slack)
    }

    /// A step of the worker is over. Returns whether the reaper must be woken.
    pub(crate) fn end_worker_step(&mut self, more: bool) -> bool {
        let next_us = self.schedule.next_wake_us();
        self.lead.end_worker_step(more, next_us)
    }

    /// Counts and records that the thread woke up, if it drives the timer.
    pub(crate) fn note_wake_up(&mut self, clock: &Clock) {
        if self.lead.end_sleep() {
            self.count_wake_up(clock);
        }
    }

    /// As [`State::note_wake_up`], for the worker.
    pub(crate) fn note_worker_wake_up(&mut self, clock: &Clock) {
        self.lead.end_worker_sleep();
        self.count_wake_up(clock);
    }

    fn count_wake_up(&mut self, clock: &Clock) {
        self.stats.wake_ups += 1;
        if let Some(recorder) = &mut self.recorder {
            let at_us = clock.now_us();
            recorder.push(Event { at_us, number: 0, due_us: 0, other: 0, kind: EventKind::Woke, level: 0 });
        }
    }

    /// Records where an entry was placed; for a move, also the number that it had before.
    #[inline]
    fn record_placed(&mut self, kind: EventKind, at_us: u64, handle: Handle, other: u64) {
        if self.recorder.is_some() {
            self.record_place(kind, at_us, handle, other);
        }
    }

    #[cold]
    fn record_place(&mut self, kind: EventKind, at_us: u64, handle: Handle, other: u64) {
        let Some(recorder) = &mut self.recorder else { return };
        if let Some(entry) = self.schedule.slab.get(handle) {
            let level = self.schedule.wheel.level_of(entry);
            recorder.push(Event { at_us, number: entry.number(), due_us: entry.due_us, other, kind, level });
        }
    }

    #[cold]
    fn record_cancelled(&mut self, at_us: u64, handle: Handle) {
        if let (Some(recorder), Some(entry)) = (&mut self.recorder, self.schedule.slab.get(handle)) {
            let (number, due_us) = (entry.number(), entry.due_us);
            recorder.push(Event { at_us, number, due_us, other: 0, kind: EventKind::Cancelled, level: 0 });
        }
    }
}
