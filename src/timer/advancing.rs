//! How time goes on: one thread at a time advances the timer, and gives what is released to the executor.

use std::ptr;

use super::{SCATTERED_STEP, STEP, Timer};
use crate::executor::{Executor, LastBatch, Released};
use crate::schedule::Progress;
use crate::sync::{Ordering, PlainGuard, PlainMutex, thread_local};
use crate::wheel::Ticket;

thread_local! {
    /// Its address names the thread.
    static MARK: u8 = const { 0 };
}

/// An advance of one thread, until it is dropped.
struct Advance<'a, T> {
    timer: &'a Timer<T>,
    last_batch: PlainGuard<'a, LastBatch>,
}

impl<T> Drop for Advance<'_, T> {
    fn drop(&mut self) {
        // Not empty where the executor panicked.
        if !self.last_batch.tickets.is_empty() {
            self.timer.reject(&self.last_batch.tickets);
            *self.last_batch = LastBatch::default();
        }
        self.timer.advancer.store(0, Ordering::Relaxed);
    }
}

impl<T> Advance<'_, T> {
    /// Gives the executor what a step released. Returns whether there was anything to give, and how many were refused.
    fn give(&mut self, tickets: Vec<Ticket>, more: bool, executor: &mut (impl Executor + ?Sized)) -> (bool, u64) {
        // If the last batch announced more and none came, an empty batch with `more: false` ends it.
        if tickets.is_empty() && (more || !self.last_batch.is_announced) {
            return (false, 0);
        }
        self.last_batch.is_announced = more;
        self.last_batch.tickets.extend_from_slice(&tickets);
        let answer = executor.execute(Released { tickets, more });
        self.last_batch.tickets.clear();
        (true, answer.map_or_else(|refused| self.timer.reject(&refused.tickets), |()| 0))
    }
}

impl<T> Timer<T> {
    /// Advances to now: flushes what is due, and gives what is released to the executor, in steps, in order.
    ///
    /// A call from inside `execute` returns idle progress at once, and the advance that called `execute` advances
    /// once more before it returns. Another thread waits until the advancing thread is done.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tickwheel::{Clock, Config, Released, Timer};
    /// # let timer = Timer::new(&Config::default(), Clock::manual(0))?;
    /// timer.add(Duration::from_millis(9), "nine")?;
    /// timer.clock().set_us(9_000);
    /// let mut released = Vec::new();
    /// let progress = timer.advance(&mut |batch: Released| released.extend(batch.tickets));
    /// assert_eq!((progress.released, released.len()), (1, 1));
    /// # Ok::<(), tickwheel::Error>(())
    /// ```
    pub fn advance(&self, executor: &mut (impl Executor + ?Sized)) -> Progress {
        let mut progress = Progress::default();
        if let Some(mut advance) = self.begin_advance() {
            loop {
                self.advance_to(self.clock.now_us(), &mut advance, executor, &mut progress);
                if !self.must_advance_again.swap(false, Ordering::Relaxed) {
                    break;
                }
            }
        }
        progress
    }

    /// Waits for the token; `None` if this thread has it.
    fn begin_advance(&self) -> Option<Advance<'_, T>> {
        self.begin_advance_with(|token| Some(token.lock()))
    }

    /// `None` if `take` gives no token, or if this thread has it.
    fn begin_advance_with<'a>(
        &'a self,
        take: impl FnOnce(&'a PlainMutex<LastBatch>) -> Option<PlainGuard<'a, LastBatch>>,
    ) -> Option<Advance<'a, T>> {
        let thread = MARK.with(|mark| ptr::from_ref(mark) as usize);
        if self.advancer.load(Ordering::Relaxed) == thread {
            self.must_advance_again.store(true, Ordering::Relaxed);
            return None;
        }
        let last_batch = take(&self.advancing)?;
        self.advancer.store(thread, Ordering::Relaxed);
        self.must_advance_again.store(false, Ordering::Relaxed);
        Some(Advance { timer: self, last_batch })
    }

    fn advance_to(
        &self,
        now_us: u64,
        advance: &mut Advance<'_, T>,
        executor: &mut (impl Executor + ?Sized),
        progress: &mut Progress,
    ) {
        loop {
            let mut tickets = Vec::new();
            let mut state = self.lock_state();
            let more = state.step(now_us, STEP, &mut tickets, progress);
            self.unlock_fair(state);
            progress.rejected += advance.give(tickets, more, executor).1;
            if !more {
                return;
            }
        }
    }

    /// The first step of an advance, for the worker that [leads](Timer::lead); the reaper does the rest. Returns whether
    /// the executor was given anything.
    ///
    /// If the reaper has taken over, it does nothing: the worker waits for what that releases, not for its whole advance.
    pub(crate) fn advance_one_step(&self, executor: &mut (impl Executor + ?Sized)) -> bool {
        let Some(mut advance) = self.begin_advance_with(PlainMutex::try_lock) else { return false };
        let mut tickets = Vec::new();
        let mut state = self.lock_state();
        // The thread that closed the timer advances it once more.
        let more = !state.is_closed && state.step(self.clock.now_us(), STEP, &mut tickets, &mut Progress::default());
        let must_wake = state.end_worker_step(more);
        self.state.unlock_fair(state);
        let (has_given, _) = advance.give(tickets, more, executor);
        drop(advance); // before the reaper wants it
        if must_wake {
            self.wake.wake();
        }
        has_given
    }

    /// Keeps these tasks as rejected, those that were neither claimed nor taken out; how many.
    pub(crate) fn reject(&self, tickets: &[Ticket]) -> u64 {
        let mut count = 0;
        for tickets in tickets.chunks(SCATTERED_STEP) {
            let mut state = self.lock_state();
            count += state.reject(tickets) as u64;
            self.unlock_after_removal(state);
        }
        count
    }
}
