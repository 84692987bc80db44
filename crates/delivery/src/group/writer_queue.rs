//! The queue from other threads to the writer: tickets and outcomes, bounded by count and bytes (rules D5, D8).
//!
//! - A ticket begins a group at once. If there are only outcomes, no caller waits, and they are gathered for 20 ms.
//! - Sending pauses while two groups of outcomes are uncommitted: the queued outcomes are older than 50 ms while a
//!   group is written, or older than 100 ms otherwise.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::items::{Item, Ticket};
use crate::base::budget::Budget;
use crate::base::error::{DeliveryError, StoreError};
use crate::base::summary::Summary;
use crate::base::sync::{Condvar, Mutex, MutexGuard, Rank};
use crate::due::dispatcher::Outcomes;
use crate::due::measures::CommitMeasures;
use crate::store::Letter;

/// While so many items wait for a group, no ticket is added; or so many bytes, if the budget has no room. A ticket of any size
/// is added below that, so a large one does not wait until no small one comes.
const QUEUE_ITEMS: usize = 60_000;
const QUEUE_BYTES: usize = 8 << 20;
/// How long outcomes are gathered if there is no ticket.
const GATHER_US: u64 = 20_000;
/// How long a caller waits for a store that can't be written. Later ones are refused at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// How old the outcomes of one group may be before sending pauses.
const GROUP_US: u64 = 50_000;

/// The queue from other threads to the writer.
pub(crate) struct WriterQueue {
    pub(crate) budget: Arc<Budget>,
    state: Mutex<QueueState>,
    /// The writer waits here for something to write.
    pub(crate) work: Condvar,
    /// Callers that submit wait here for room: until a group has taken items.
    pub(crate) room: Condvar,
    /// Callers wait here until nothing waits any more, or the run has failed.
    pub(crate) emptied: Condvar,
    /// Counts the groups that were begun, under the lock. Each group takes all outcomes there are.
    groups: AtomicU64,
    /// Counts the groups on disk. The writer stores it after a commit. Senders read it, because they act only on groups
    /// on disk.
    committed: AtomicU64,
    /// Whether every message that an earlier process may have sent has its outcome on disk. Written and read like
    /// `committed`.
    earlier_is_over: AtomicBool,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(crate) struct QueueState {
    pub(crate) tickets: VecDeque<Ticket>,
    pub(crate) items: usize,
    pub(crate) bytes: usize,
    pub(crate) outcomes: Outcomes,
    outcomes_since_us: u64,
    pub(crate) is_committing: bool,
    /// A step that takes or ends messages is under way.
    pub(crate) is_busy: bool,
    /// When this step began, on the timer's clock.
    pub(crate) busy_since_us: u64,
    pub(crate) is_woken: bool,
    pub(crate) is_stopping: bool,
    pub(crate) was_asked_to_stop: bool,
    pub(crate) failure: Option<DeliveryError>,
    /// Why the store can't be written now, and since when. Nothing is sent meanwhile.
    pub(crate) waits: Option<(StoreError, Instant)>,
    /// Tickets were refused for this reason since the last one that follows none.
    refused: Option<StoreError>,
    /// The position of the destination when all reported messages had arrived.
    pub(crate) position: Option<String>,
    /// Dead letters for the observer, and the number of the last one.
    pub(crate) letters: Option<(Vec<Letter>, i64)>,
    pub(crate) taken_through: Option<i64>,
    /// Whether the observer gets letters from disk, or such letters wait for it; as of the last commit.
    pub(crate) has_letters: bool,
    /// Messages without an outcome, as of the last commit.
    pub(crate) open: u64,
    /// Messages with an attempt that was not accepted, as of the last commit.
    pub(crate) tried: u64,
    /// How many open messages recur.
    pub(crate) recurring: u64,
    pub(crate) summary: Summary,
    pub(crate) commits: CommitMeasures,
    /// The number of groups on disk, of all processes that ever had the store.
    pub(crate) groups_in_all: i64,
}

impl WriterQueue {
    pub(crate) fn new(open: u64, has_letters: bool, budget: Arc<Budget>) -> Self {
        let state = QueueState { open, is_woken: true, has_letters, ..QueueState::default() };
        Self {
            budget,
            state: Mutex::ranked(Rank::Queue, state),
            work: Condvar::default(),
            room: Condvar::default(),
            emptied: Condvar::default(),
            groups: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            earlier_is_over: AtomicBool::new(false),
        }
    }

    /// Returns the number of the next group. All outcomes that this thread has reported are in it, or in an earlier
    /// group.
    pub(crate) fn next_group(&self) -> u64 {
        self.groups.load(Ordering::Acquire) + 1
    }

    /// The last group on disk.
    pub(crate) fn committed_group(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    /// Whether every message that an earlier process may have sent has its outcome on disk.
    pub(crate) fn earlier_is_over(&self) -> bool {
        self.earlier_is_over.load(Ordering::Acquire)
    }

    /// Notes that another group is begun. The caller holds the lock.
    pub(crate) fn note_begun(&self) {
        self.groups.fetch_add(1, Ordering::Release);
    }

    /// Notes that the group begun last is on disk. There is one group at a time.
    pub(crate) fn note_committed(&self) {
        self.committed.store(self.groups.load(Ordering::Relaxed), Ordering::Release);
    }

    pub(crate) fn set_earlier_is_over(&self, is_over: bool) {
        self.earlier_is_over.store(is_over, Ordering::Release);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }

    /// Changes the state, and wakes the writer.
    fn wake_with(&self, change: impl FnOnce(&mut QueueState)) {
        let mut state = self.lock();
        change(&mut state);
        state.is_woken = true;
        drop(state);
        self.work.notify_one();
    }

    fn notify_all(&self) {
        self.work.notify_one();
        self.room.notify_all();
        self.emptied.notify_all();
    }

    /// Queues a ticket. With `waits_for_room`, the caller waits while much is queued. If the queue is still full after
    /// `timeout`, it takes nothing and returns the ticket.
    pub(crate) fn submit(
        &self,
        ticket: Ticket,
        waits_for_room: bool,
        timeout: Option<Duration>,
    ) -> Result<Option<Ticket>, DeliveryError> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let (items, bytes) = (ticket.items.len(), ticket.items.as_slice().iter().map(Item::size).sum::<usize>());
        let mut state = self.lock();
        while waits_for_room
            && (state.items >= QUEUE_ITEMS
                || state.bytes >= QUEUE_BYTES && self.budget.is_full()
                || state.waits.is_some())
            && state.failure.is_none()
            && !state.is_stopping
        {
            let refused_at = state.waits.as_ref().map(|(_, since)| *since + PATIENCE);
            if refused_at.is_some_and(|at| at <= Instant::now()) {
                break;
            }
            let Some(until) = end.into_iter().chain(refused_at).min() else {
                state = self.room.wait(state);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() && end == Some(until) {
                return Ok(Some(ticket));
            }
            state = self.room.wait_timeout(state, left);
        }
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if state.is_stopping {
            return Err(DeliveryError::Closed);
        }
        if let Some((error, _)) = &state.waits {
            return Err(DeliveryError::StoreWaits(error.clone()));
        }
        if !ticket.follows {
            state.refused = None;
        } else if let Some(error) = &state.refused {
            return Err(DeliveryError::StoreWaits(error.clone()));
        }
        state.tickets.push_back(ticket);
        self.put_back(&mut state, (items, bytes));
        drop(state);
        self.work.notify_one();
        Ok(None)
    }

    /// Takes the outcomes of senders, and the position of the destination, for the writer.
    pub(crate) fn report(&self, outcomes: &mut Outcomes, position: Option<String>, now_us: u64) {
        let mut state = self.lock();
        if position.is_some() {
            state.position = position;
        }
        if outcomes.is_empty() {
            return;
        }
        let was_empty = state.outcomes.is_empty();
        state.is_woken |= !outcomes.noted.is_empty(); // they are late already, and wait for the commit of the note
        if was_empty {
            state.outcomes_since_us = now_us;
        }
        state.outcomes.append(outcomes);
        let is_woken = state.is_woken;
        drop(state);
        if was_empty || is_woken {
            self.work.notify_one();
        }
    }

    /// Wakes the writer: there is something to load, or the send limit is reached.
    pub(crate) fn wake(&self) {
        self.wake_with(|_| ());
    }

    /// Whether sending has to pause.
    pub(crate) fn is_behind(&self, now_us: u64) -> bool {
        let state = self.lock();
        let most_us = if state.is_committing { GROUP_US } else { 2 * GROUP_US };
        state.waits.is_some() || !state.outcomes.is_empty() && now_us.saturating_sub(state.outcomes_since_us) > most_us
    }

    /// The next group notes that the process was asked to stop: if it is ended from now on, no message is to blame (D6).
    pub(crate) fn ask_to_stop(&self) {
        self.wake_with(|state| state.was_asked_to_stop = true);
    }

    /// Takes no more tickets. The writer ends once everything in the queue is committed.
    pub(crate) fn stop(&self) {
        self.wake_with(|state| (state.is_stopping, state.was_asked_to_stop) = (true, true));
        self.notify_all();
    }

    /// Takes no more tickets. Waiting tickets get the error.
    pub(crate) fn fail(&self, error: &DeliveryError) {
        self.lock().failure.get_or_insert_with(|| error.clone());
        self.reject(error);
    }

    /// A group could not be written. What it took from the senders, and the letters that the observer has, is `kept`;
    /// waiting tickets get the error.
    pub(crate) fn wait_for_store(&self, error: &StoreError, kept: Option<(Outcomes, Option<i64>)>) {
        {
            let mut state = self.lock();
            state.waits.get_or_insert_with(|| (error.clone(), Instant::now()));
            state.refused = Some(error.clone());
            if let Some((mut kept, taken_through)) = kept {
                kept.append(&mut state.outcomes);
                state.outcomes = kept;
                state.taken_through = state.taken_through.or(taken_through);
            }
            (state.is_committing, state.is_busy) = (false, false);
        }
        self.reject(&DeliveryError::StoreWaits(error.clone()));
    }

    /// The store can be written again.
    pub(crate) fn go_on(&self) {
        let mut state = self.lock();
        (state.waits, state.is_woken) = (None, true);
        drop(state);
        self.notify_all();
    }

    /// Gives the error to all waiting tickets.
    pub(crate) fn reject(&self, error: &DeliveryError) {
        let tickets = {
            let mut state = self.lock();
            self.take_out(&mut state, usize::MAX, usize::MAX);
            std::mem::take(&mut state.tickets)
        };
        self.notify_all();
        for ticket in tickets {
            (ticket.complete)(Err(error.clone()));
        }
    }

    /// So many items and bytes wait.
    pub(crate) fn put_back(&self, state: &mut QueueState, (items, bytes): (usize, usize)) {
        state.items += items;
        state.bytes += bytes;
        self.budget.add(bytes);
    }

    /// So many items and bytes wait no more. A failure may have emptied the queue.
    pub(crate) fn take_out(&self, state: &mut QueueState, items: usize, bytes: usize) {
        let bytes = bytes.min(state.bytes);
        state.items = state.items.saturating_sub(items);
        state.bytes -= bytes;
        self.budget.take(-(bytes as isize));
    }

    /// Takes dead letters on disk that the observer does not have. When it has them, call
    /// [`WriterQueue::letters_taken`] with the number.
    pub(crate) fn take_letters(&self) -> Option<(Vec<Letter>, i64)> {
        self.lock().letters.take()
    }

    /// The observer has the letters up to this number.
    pub(crate) fn letters_taken(&self, through: i64) {
        self.wake_with(|state| state.taken_through = Some(through));
    }
}

impl QueueState {
    /// Whether nothing waits. `items` also counts the rest of a ticket whose first part is taken.
    pub(crate) fn is_empty(&self) -> bool {
        let has_items = self.items > 0 || !self.tickets.is_empty();
        let is_written = self.outcomes.is_empty() && !self.is_busy && self.waits.is_none();
        self.open == 0 && !has_items && is_written && !self.has_letters
    }

    /// How long until there is something to do, in microseconds; 0 for now.
    pub(crate) fn idle_us(&self, now_us: u64, load_every_us: u64) -> u64 {
        if !self.tickets.is_empty() || self.is_woken || self.failure.is_some() {
            return 0;
        }
        if self.outcomes.is_empty() {
            return load_every_us;
        }
        GATHER_US.saturating_sub(now_us.saturating_sub(self.outcomes_since_us))
    }
}

#[cfg(test)]
impl WriterQueue {
    /// Outcomes that wait for a group.
    pub(crate) fn outcomes(&self) -> Vec<crate::store::Done> {
        self.lock().outcomes.done.clone()
    }

    pub(crate) fn is_woken(&self) -> bool {
        let state = self.lock();
        state.is_woken || !state.tickets.is_empty() || !state.outcomes.is_empty()
    }
}

#[cfg(test)]
mod tests;
