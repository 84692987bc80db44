//! `Timer`: wheel, queue and front under one lock; add, cancel, advance.
//!
//! The ground rules (`docs/concurrency.md` has the proof):
//!
//! - `state` guards all that is pending. Nothing foreign runs under it: tasks are moved out and dropped after it. It is
//!   held for one operation, or for a step of about [`STEP`] entries of a long one.
//! - `advancing` is the token of the one advancer. Add and cancel never take it. Order: `bulk`, `advancing`, `state`.
//! - The reaper sleeps on `wake`, with `state` let go in the same step, after it wrote down until when. An add that must
//!   run earlier than that sees it under the lock and wakes it: no wake-up is lost, none is wasted.
//! - A released task stays in its slot until the executor claims it, under the lock. A cancel takes it out of the same
//!   slot under the same lock. So exactly one of them gets it (T9).

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::config::Config;
use crate::error::Error;
use crate::events::Recorded;
use crate::executor::{Executor, Released};
pub(crate) use crate::schedule::STEP;
use crate::schedule::{Claimed, Progress};
use crate::state::{Pending, Room, State, Wait, When};
use crate::stats::Stats;
use crate::sync::{Condvar, Mutex, MutexGuard, PlainGuard, PlainMutex, thread_local};
use crate::wheel::{Handle, Place};

/// As [`STEP`], where the entries lie anywhere in memory.
const HANDFUL: usize = 256;

/// Very many deadlines under one lock, without threads of its own: someone advances it, and runs what is released.
///
/// [`crate::SystemTimer`] is the ready-made one. `T` is the task; `tag` a number that comes back with it.
///
/// ```
/// use tickwheel::{Clock, Config, Timer, When};
/// let timer = Timer::new(&Config::default(), Clock::manual(0)).unwrap();
/// let five = timer.add(When::AfterUs(5_000), "five", 0).unwrap();
/// timer.add(When::AfterUs(9_000), "nine", 0).unwrap();
/// assert_eq!(timer.cancel(five), Some("five"));
/// timer.clock().set_us(9_000);
/// let mut released = Vec::new();
/// timer.advance(&mut |batch: tickwheel::Released| released.extend(batch.handles));
/// assert_eq!(timer.claim(released[0]).unwrap().task, "nine");
/// ```
#[derive(Debug)]
pub struct Timer<T> {
    clock: Clock,
    slack_us: u64,
    state: Mutex<State<T>>,
    /// The reaper, or the thread that waits in `advance_clock`, sleeps here.
    wake: Condvar,
    /// Whoever waits for the callbacks to finish sleeps here.
    idle: Condvar,
    /// The token of the advancer. It guards a copy of the batch that the executor has been given.
    advancing: PlainMutex<Vec<Handle>>,
    /// The thread that has the token, by the address of its mark; 0 while none has it. A thread finds its own address here
    /// only if it stored it, so no order with other memory is needed.
    advancer: AtomicUsize,
    /// The advancer's thread asked to advance while it did. Only that thread touches it, so no order is needed.
    goes_on: AtomicBool,
    /// Held by an `add_many` or a `reschedule_many` in steps, and by `close`: a batch goes in whole or not at all.
    pub(crate) bulk: PlainMutex<()>,
}

thread_local! {
    /// Its address names the thread.
    static MARK: u8 = const { 0 };
}

/// The advancer's turn, until it is dropped.
struct Turn<'a, T> {
    timer: &'a Timer<T>,
    /// What the executor was given and has not answered for.
    given: PlainGuard<'a, Vec<Handle>>,
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        // Not empty where the executor panicked.
        if !self.given.is_empty() {
            self.timer.reject(&self.given);
            self.given.clear();
        }
        self.timer.advancer.store(0, Ordering::Relaxed);
    }
}

impl<T> Timer<T> {
    /// A timer that stands where its clock does.
    ///
    /// # Errors
    /// [`Error::Invalid`] for settings that are not allowed.
    pub fn new(config: &Config, clock: Clock) -> Result<Self, Error> {
        config.check()?;
        Config::check_start(clock.now_ms())?;
        let state = State::new(config, clock.now_ms());
        Ok(Self {
            clock,
            slack_us: config.slack_us,
            state: Mutex::new(state),
            wake: Condvar::default(),
            idle: Condvar::default(),
            advancing: PlainMutex::new(Vec::new()),
            advancer: AtomicUsize::new(0),
            goes_on: AtomicBool::new(false),
            bulk: PlainMutex::new(()),
        })
    }

    /// The timer's clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Tasks not yet released.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().schedule.len()
    }

    /// Whether every task has been released.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Schedules a task (T3). O(levels); never runs anything.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Full`], or [`Error::Invalid`] for an instant out of range. The task is dropped then.
    pub fn add(&self, when: When, task: T, tag: u32) -> Result<Handle, Error> {
        self.add_with(when, task, tag, Room::IfAny).map(|(handle, _)| handle)
    }

    /// As [`Timer::add`]; says also what the clock read.
    pub(crate) fn add_with(&self, when: When, task: T, tag: u32, room: Room) -> Result<(Handle, u64), Error> {
        let mut state = self.lock();
        match state.admit(&self.clock, when, usize::from(room == Room::IfAny)) {
            Ok(due) => {
                let (handle, wakes) = state.add(due, task, tag);
                drop(state);
                self.wake_if(wakes);
                Ok((handle, due.now_us))
            }
            Err(error) => {
                drop(state);
                drop(task); // after the lock: its destructor is foreign code
                Err(error)
            }
        }
    }

    /// Moves a task that has not been claimed; it takes a new number in the order of T6. `Ok(None)` if it was.
    ///
    /// # Errors
    /// [`Error::Closed`], or [`Error::Invalid`] for an instant out of range; the task stays where it is then.
    pub fn reschedule(&self, handle: Handle, when: When) -> Result<Option<Handle>, Error> {
        let mut state = self.lock();
        let due = state.admit(&self.clock, when, 0)?;
        let moved = state.reschedule(handle, due);
        drop(state);
        Ok(moved.map(|(handle, wakes)| {
            self.wake_if(wakes);
            handle
        }))
    }

    /// Takes a task out; `Some` exactly when it will never be claimed (T9). O(1).
    pub fn cancel(&self, handle: Handle) -> Option<T> {
        let mut state = self.lock();
        let task = state.cancel(&self.clock, handle);
        self.settle(state);
        task
    }

    /// As [`Timer::reschedule`] for many, in order, and faster for each: `None` for each that was claimed or taken out
    /// before. All or nothing: every instant is checked before the first task moves.
    ///
    /// A handle that is given twice moves its task twice; the handle of its last move is the one that stays good.
    ///
    /// # Errors
    /// As [`Timer::reschedule`]; every task stays where it is then.
    pub fn reschedule_many(&self, moves: &[(Handle, When)]) -> Result<Vec<Option<Handle>>, Error> {
        let _whole = self.bulk.lock();
        let mut dues = Vec::with_capacity(moves.len());
        for moves in moves.chunks(HANDFUL) {
            let state = self.lock();
            let mut admitted = moves.iter().map(|(_, when)| state.admit(&self.clock, *when, 0));
            admitted.try_for_each(|due| due.map(|due| dues.push(due)))?;
        }
        let mut moved: Vec<Option<Handle>> = Vec::with_capacity(moves.len());
        // Where each handle has moved to, once one was met that is stale: most calls have none.
        let mut renewed: Option<HashMap<Handle, Handle>> = None;
        while moved.len() < moves.len() {
            let before = moved.len();
            let chunk = &moves[before..moves.len().min(before + HANDFUL)];
            let handles: Vec<_> = chunk.iter().map(|(handle, _)| *handle).collect();
            let chunk = handles.iter().copied().zip(dues[before..].iter().copied());
            let mut wakes = false;
            let mut state = self.lock();
            state.schedule.slab.prefetch(&handles);
            let mut reschedule = |handle, due| {
                let (handle, wakes_now) = state.reschedule(handle, due)?;
                wakes |= wakes_now;
                Some(handle)
            };
            match &mut renewed {
                // Stops at a stale one: the map is made with the lock let go.
                None => moved.extend(chunk.map_while(|(handle, due)| reschedule(handle, due).map(Some))),
                Some(renewed) => moved.extend(chunk.map(|(handle, due)| {
                    let moved = reschedule(*renewed.get(&handle).unwrap_or(&handle), due)?;
                    renewed.insert(handle, moved);
                    Some(moved)
                })),
            }
            self.state.unlock_fair(state);
            self.wake_if(wakes);
            if renewed.is_none() && moved.len() < before + handles.len() {
                let pairs = moves.iter().zip(&moved);
                renewed = Some(pairs.filter_map(|((handle, _), moved)| Some((*handle, (*moved)?))).collect());
            }
        }
        Ok(moved)
    }

    /// As [`Timer::cancel`] for many, and faster for each: what each handle gave.
    pub fn cancel_many(&self, handles: &[Handle]) -> Vec<Option<T>> {
        let mut cancelled = Vec::with_capacity(handles.len());
        for handles in handles.chunks(HANDFUL) {
            let mut state = self.lock();
            state.schedule.slab.prefetch(handles);
            cancelled.extend(handles.iter().map(|handle| state.cancel(&self.clock, *handle)));
            let wakes = self.settled(&state);
            self.state.unlock_fair(state);
            self.wake_if(wakes);
        }
        cancelled
    }

    /// Unlocks after tasks were taken out, and wakes the threads that may have waited for that: in `wait_idle` for the last
    /// released one, the reaper of an abandoned timer for the last of all.
    pub(crate) fn settle(&self, state: MutexGuard<'_, State<T>>) {
        let wakes = self.settled(&state);
        drop(state);
        self.wake_if(wakes);
    }

    /// As [`Timer::settle`], with the lock still held; whether the reaper must be woken after it.
    fn settled(&self, state: &State<T>) -> bool {
        if state.is_finished() {
            self.idle.notify_all();
        }
        state.is_orphan()
    }

    /// Takes a released task in order to run it; `None` if it was cancelled, or is not released. Call [`Timer::finish`]
    /// after it ran.
    pub fn claim(&self, handle: Handle) -> Option<Claimed<T>> {
        let mut state = self.lock();
        state.claim(handle, self.clock.now_us())
    }

    /// Says that so many claimed tasks have run. It counts no more of them than run.
    pub fn finish(&self, count: usize) {
        self.finish_locked(&mut self.lock(), count);
    }

    /// As [`Timer::finish`], for a caller that holds the lock.
    pub(crate) fn finish_locked(&self, state: &mut State<T>, count: usize) {
        state.finish(count);
        if state.is_finished() {
            self.idle.notify_all();
        }
    }

    /// Advances to now (T4): flushes what is due and gives what is released to the executor, in steps, in order.
    ///
    /// Called from inside `execute`, it returns idle progress at once, and the advance that called `execute` advances
    /// once more before it returns. Another thread waits until the one that advances is done.
    pub fn advance(&self, executor: &mut impl Executor) -> Progress {
        let mut progress = Progress::default();
        if let Some(mut turn) = self.take_turn() {
            loop {
                self.advance_to(self.clock.now_us(), &mut turn, executor, &mut progress);
                if !self.goes_on.swap(false, Ordering::Relaxed) {
                    break;
                }
            }
        }
        progress
    }

    /// Waits for the token; `None` if this thread has it.
    fn take_turn(&self) -> Option<Turn<'_, T>> {
        let thread = MARK.with(|mark| ptr::from_ref(mark) as usize);
        if self.advancer.load(Ordering::Relaxed) == thread {
            self.goes_on.store(true, Ordering::Relaxed);
            return None;
        }
        let given = self.advancing.lock();
        self.advancer.store(thread, Ordering::Relaxed);
        self.goes_on.store(false, Ordering::Relaxed);
        Some(Turn { timer: self, given })
    }

    fn advance_to(&self, now_us: u64, turn: &mut Turn<'_, T>, executor: &mut impl Executor, progress: &mut Progress) {
        let mut is_announced = false;
        loop {
            let mut handles = Vec::new();
            let mut state = self.lock();
            let more = state.step(now_us, STEP, &mut handles, progress);
            self.state.unlock_fair(state);
            // An executor that was told that there is more is also told when there was not.
            if !handles.is_empty() || (is_announced && !more) {
                is_announced = more;
                turn.given.extend_from_slice(&handles);
                let answer = executor.execute(Released { handles, more });
                turn.given.clear();
                if let Err(refused) = answer {
                    progress.rejected += self.reject(&refused.handles);
                }
            }
            if !more {
                return;
            }
        }
    }

    /// Keeps these tasks as rejected, those that were neither claimed nor taken out; how many.
    fn reject(&self, handles: &[Handle]) -> u64 {
        let mut count = 0;
        for handles in handles.chunks(HANDFUL) {
            let mut state = self.lock();
            count += state.reject(handles) as u64;
            self.settle(state);
        }
        count
    }

    /// Takes what the executor refused since this was last called, in order. Those tasks did not run and are on the timer
    /// no more: add them again, or drop them. [`Timer::drain`] takes them too.
    pub fn take_rejected(&self) -> Vec<Pending<T>> {
        let rejected = self.lock().take_rejected();
        in_order(rejected.into_iter().flatten().collect())
    }

    /// Waits until something is due, at the longest to `limit_us`, and not less than `floor_us`.
    pub(crate) fn wait_for_work(&self, floor_us: u64, limit_us: u64) -> Wait {
        let mut state = self.lock();
        loop {
            state = self.drop_empty_buckets(state);
            let until_us = match state.may_sleep(self.clock.now_us(), floor_us, limit_us) {
                ControlFlow::Continue(until_us) => until_us,
                ControlFlow::Break(wait) => return wait,
            };
            let deadline = (until_us < u64::MAX).then(|| self.clock.instant_of(until_us)).flatten();
            state = self.wake.wait(state, deadline);
            state.woke(&self.clock);
        }
    }

    /// The least time between two wake-ups.
    pub(crate) fn slack_us(&self) -> u64 {
        self.slack_us
    }

    /// Accepts no more, and ends the reaper (T11). What is pending stays.
    pub fn close(&self) {
        let _whole_batches = self.bulk.lock();
        self.lock().is_closed = true;
        self.wake.notify_all();
    }

    /// Says that no add comes any more: the reaper ends once nothing is pending.
    pub fn abandon(&self) {
        self.lock().is_abandoned = true;
        self.wake.notify_all();
    }

    /// Waits until no released task is left and no callback runs; whether that came within the time-out. After
    /// [`Timer::close`] it stays so once another thread has advanced for the last time. The time is real time, also where
    /// the timer's clock is a manual one.
    pub fn wait_idle(&self, timeout: Option<Duration>) -> bool {
        // One that the system cannot name is as good as none.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.lock();
        state.waits_for_idle += 1;
        while !state.is_idle() && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            state = self.idle.wait(state, deadline);
        }
        state.waits_for_idle -= 1;
        state.is_idle()
    }

    /// Takes out all that has not been claimed, in order, in steps; also what the executor refused.
    pub fn drain(&self) -> Vec<Pending<T>> {
        self.drain_where(|_| true)
    }

    /// As [`Timer::drain`], but leaves what waits on the executor's queue to the executor.
    #[cfg(feature = "python")]
    pub(crate) fn drain_unreleased(&self) -> Vec<Pending<T>> {
        self.drain_where(|place| place != Place::Released)
    }

    fn drain_where(&self, goes: impl Fn(Place) -> bool) -> Vec<Pending<T>> {
        let mut drained = Vec::new();
        for page in 0.. {
            let mut state = self.lock();
            let Some(entries) = state.schedule.page(page) else { break };
            let found: Vec<_> = entries.filter(|(_, entry, _)| goes(entry.place)).map(|(handle, ..)| handle).collect();
            drained.extend(found.into_iter().filter_map(|handle| state.take(handle)));
            if state.is_finished() {
                self.idle.notify_all();
            }
            self.state.unlock_fair(state);
        }
        drained.append(&mut self.take_rejected());
        in_order(drained)
    }

    /// What is to come before `before_us`, in order, at most `limit`. O(pending), in steps: each was
    /// pending at some moment of the call.
    #[must_use]
    pub fn pending(&self, before_us: u64, limit: usize) -> Vec<Pending<()>> {
        let mut found = Vec::new();
        for page in 0.. {
            let state = self.lock();
            let Some(entries) = state.schedule.page(page) else { break };
            let waiting = entries.filter(|(_, entry, _)| entry.place != Place::Released && entry.due_us < before_us);
            found.extend(waiting.map(|(handle, entry, _)| Pending {
                due_us: entry.due_us,
                number: entry.number,
                tag: entry.tag,
                handle,
                task: (),
            }));
            self.state.unlock_fair(state);
        }
        let mut found = in_order(found);
        found.truncate(limit);
        found
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.lock().stats()
    }

    /// Begins to record what happens from now on; `false` if it is being recorded already. Costs some fifty nanoseconds an
    /// event. At least `bound` events are kept until [`Timer::take_recorded`] fetches them, later ones are lost.
    pub fn record(&self, bound: usize) -> bool {
        self.lock().record(bound)
    }

    /// The oldest events that were not taken yet, in order: about `limit`, none if there are none.
    pub fn take_recorded(&self, limit: usize) -> Recorded {
        self.lock().take_recorded(limit)
    }

    /// Ends the recording, and hands over the rest of it. Take what there is first: this takes it in one go.
    pub fn stop_recording(&self) -> Recorded {
        self.lock().stop_recording()
    }

    /// When to advance next, at the latest, so that nothing is late; 0 for at once, `None` if nothing is pending.
    pub fn next_wake_us(&self) -> Option<u64> {
        self.drop_empty_buckets(self.lock()).schedule.next_wake_us()
    }

    /// As [`Timer::next_wake_us`], but with a stop at every bucket that is due: what steps a manual clock.
    pub fn next_event_us(&self) -> Option<u64> {
        self.drop_empty_buckets(self.lock()).schedule.next_event_us()
    }

    /// Drops all empty buckets at the head of the bucket queue, in steps (T9).
    fn drop_empty_buckets<'a>(&'a self, mut state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        while state.schedule.drop_empty_buckets(STEP) {
            self.state.unlock_fair(state);
            state = self.lock();
        }
        state
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }

    /// The lock, for callers that must not wait for it as others do.
    #[cfg(feature = "python")]
    pub(crate) fn state(&self) -> &Mutex<State<T>> {
        &self.state
    }

    pub(crate) fn wake_if(&self, wakes: bool) {
        if wakes {
            self.wake.notify_all();
        }
    }
}

/// In the order of T6.
fn in_order<T>(mut tasks: Vec<Pending<T>>) -> Vec<Pending<T>> {
    tasks.sort_unstable_by_key(|task| (task.due_us, task.number));
    tasks
}
