//! Wheel, bucket queue and front together: what is pending, and in what order it is released.
//!
//! No lock, no clock and no thread: the caller says what time it is, so every rule of time can be tested here. An entry is
//! in the slab, and its place goes wheel → front → released → claimed. Until it is claimed it can be removed (T9).
//!
//! Why the order of T6 holds: an entry in the front is due before the end of the current tick of level 1, and an entry in
//! the wheel is due later. All buckets that expire at one instant are flushed completely before any entry is released. An
//! add never advances the levels past an armed bucket (T16). So the first entry of the front is the first of all.

mod advance;

use crate::front::Front;
use crate::queue::BucketQueue;
use crate::wheel::{BucketRef, Entry, Handle, Place, Placed, ReleaseKey, Removed, Slab, Ticket, WaitBy, Wheel};

/// How many entries a long operation moves before it releases the lock for a moment.
pub const STEP: usize = 1000;

/// When a task is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// When its instant has passed, to the microsecond. The tick makes no difference.
    #[default]
    Exact,
    /// When its bucket is flushed, as in Kafka: up to one tick early, and with the fewest wake-ups.
    Tick,
}

/// What one advance did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Buckets that were due.
    pub buckets: u64,
    /// Tasks that were released to the executor.
    pub released: u64,
    /// Released tasks that the executor refused: see [`crate::Timer::take_rejected`].
    pub rejected: u64,
}

impl Progress {
    /// Whether nothing was due.
    ///
    /// ```
    /// assert!(tickwheel::Progress::default().is_idle());
    /// ```
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.buckets == 0 && self.released == 0
    }
}

/// The wheel, its queue of armed buckets and the front: what is pending, in order.
#[derive(Debug)]
pub struct Schedule<T> {
    /// All entries. Wheel and front have their slots and keys.
    pub slab: Slab<T>,
    pub(crate) wheel: Wheel,
    pub(crate) queue: BucketQueue,
    pub(crate) front: Front,
    precision: Precision,
    next_number: u64,
    /// How many entries wait on the executor's queue.
    released: usize,
    /// The expiration of the bucket that was flushed last. Other buckets of that instant are flushed before any release.
    flushed_ms: Option<u64>,
    /// Buffers of `flush_step`, kept for their memory.
    newly_armed: Vec<BucketRef>,
    for_front: Vec<ReleaseKey>,
}

/// A task that was due, and is off the timer.
#[derive(Debug)]
#[non_exhaustive]
pub struct Expired<T> {
    /// The task.
    pub task: T,
    /// The number that was added with it.
    pub tag: u32,
    /// When it was due.
    pub due_us: u64,
    /// Its add number. Tasks that are due together run in the order of these.
    pub number: u64,
    /// Its handle, which is stale.
    pub handle: Handle,
}

impl<T> Schedule<T> {
    /// An empty schedule whose clock starts at `start_ms`.
    #[must_use]
    pub fn new(tick_ms: u64, sizes: &[u32], start_ms: u64, precision: Precision) -> Self {
        Self {
            slab: Slab::new(),
            wheel: Wheel::new(tick_ms, sizes, start_ms),
            queue: BucketQueue::default(),
            front: Front::default(),
            precision,
            next_number: 0,
            released: 0,
            flushed_ms: None,
            newly_armed: Vec::new(),
            for_front: Vec::new(),
        }
    }

    /// How many tasks are not yet released.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "the bindings compare counts")]
    pub fn len(&self) -> usize {
        self.slab.len() - self.released
    }

    /// How many tasks wait on the executor's queue.
    #[must_use]
    pub fn released(&self) -> usize {
        self.released
    }

    /// Adds a task. Returns its handle, and the instant at which the reaper must be awake for it. O(levels).
    #[expect(clippy::inline_always, reason = "a call that answers through memory is a tenth of an add")]
    #[inline(always)]
    pub fn add(&mut self, now_us: u64, due_us: u64, task: T, tag: u32) -> (Handle, u64) {
        self.catch_up(now_us);
        self.next_number += 1;
        let number = self.next_number;
        let (handle, wait_by) = self.slab.insert((due_us, number), self.wheel.tick_end_us(), task, tag);
        (handle, self.place(ReleaseKey { due_us, number, slot: handle.slot() }, wait_by))
    }

    /// Moves a task that was not claimed to another instant, with a new number (T6). Returns the instant at which the reaper
    /// must be awake for it. `None` for a stale handle. O(levels), O(1) to a later instant.
    #[inline]
    pub fn reschedule(&mut self, now_us: u64, handle: Handle, due_us: u64) -> Option<u64> {
        let number = self.next_number + 1;
        self.catch_up(now_us);
        let (place, key, wait_by) = self.slab.reschedule(handle, (due_us, number), self.wheel.tick_end_us())?;
        self.next_number = number;
        self.remove_from_place(place, &key);
        Some(self.place(ReleaseKey { due_us, number, slot: handle.slot() }, wait_by))
    }

    /// Gives an entry what it needs in order to wait. Returns the instant at which the reaper must be awake for it.
    #[expect(clippy::inline_always, reason = "a call that takes its arguments through memory is a tenth of an add")]
    #[inline(always)]
    fn place(&mut self, key: ReleaseKey, wait_by: WaitBy) -> u64 {
        match wait_by {
            // Its bucket wakes the reaper before. A wait to the microsecond is the exception: it may have to end
            // earlier.
            WaitBy::OldReminder => key.due_us,
            WaitBy::Front => {
                self.front.push(key);
                ready_us(self.precision, key.due_us)
            }
            WaitBy::NewReminder(mark) => {
                let placed = self.wheel.remind(key.slot, mark, key.due_us);
                self.wheel.sweep_if_needed(&mut self.slab);
                match placed {
                    Placed::NewlyArmed(armed) => {
                        self.queue.push(armed);
                        self.wake_us_for(armed, key.due_us)
                    }
                    Placed::AlreadyArmed(armed) => self.wake_us_for(armed, key.due_us),
                }
            }
        }
    }

    /// An entry that was not claimed is not at this place any more.
    #[expect(clippy::inline_always, reason = "a call that takes its argument through memory is a fifth of a cancel")]
    #[inline(always)]
    fn remove_from_place(&mut self, place: Place, key: &ReleaseKey) {
        match place {
            Place::Bucket => self.wheel.sweep_if_needed(&mut self.slab),
            Place::Front => self.front.remove(key, |key| self.slab.is_in_front(key)),
            Place::Released => self.released -= 1,
        }
    }

    /// Takes out a task that was not claimed; `None` for a stale handle. O(1), in the front amortized.
    #[expect(clippy::inline_always, reason = "a call that answers through memory is a tenth of a cancel")]
    #[inline(always)]
    pub fn remove(&mut self, handle: Handle) -> Option<T> {
        let Removed { task, due_us, number, place, .. } = self.slab.remove(handle)?;
        self.remove_from_place(place, &ReleaseKey { due_us, number, slot: handle.slot() });
        Some(task)
    }

    /// Whether the task was neither claimed nor taken out.
    #[must_use]
    pub fn is_live(&self, handle: Handle) -> bool {
        self.slab.get(handle).is_some()
    }

    /// Takes out a released task, to run it, or because the executor refused it. `None` if it was moved, claimed or cancelled.
    pub fn claim(&mut self, ticket: Ticket) -> Option<Expired<T>> {
        let Removed { handle, task, tag, due_us, number, .. } = self.slab.remove_released(ticket)?;
        self.released -= 1;
        Some(Expired { task, tag, due_us, number, handle })
    }

    /// A released task, its due instant and tag.
    #[must_use]
    pub fn peek_released(&self, ticket: Ticket) -> Option<(&T, u64, u32)> {
        let entry = self.slab.released(ticket)?;
        Some((entry.task.as_ref()?, entry.due_us, self.slab.tag(ticket.slot())))
    }

    /// A task before its release, its due instant, number and tag.
    #[must_use]
    pub fn peek_pending(&self, handle: Handle) -> Option<(&T, u64, u64, u32)> {
        let entry = self.slab.get(handle).filter(|entry| entry.place() != Place::Released)?;
        Some((entry.task.as_ref()?, entry.due_us, entry.number(), self.slab.tag(handle.slot())))
    }

    /// When it is due, in microseconds.
    #[must_use]
    pub fn due_us(&self, handle: Handle) -> Option<u64> {
        self.slab.get(handle).map(|entry| entry.due_us)
    }

    /// The entries of one page of the slab; `None` past the last page.
    #[must_use]
    pub fn page(&self, index: usize) -> Option<impl Iterator<Item = (Handle, &Entry<T>, &T)>> {
        self.slab.page(index)
    }

    /// Its memory in bytes, with 8 bytes for a task. O(pages and buckets).
    pub(crate) fn bytes(&self) -> usize {
        self.slab.bytes() + self.wheel.bytes() + self.queue.bytes() + self.front.bytes()
    }

    /// Advances the levels to now before an add, but at most to one tick before the earliest armed bucket (T16).
    #[inline]
    fn catch_up(&mut self, now_us: u64) {
        if !self.wheel.is_before_tick_end(now_us) && !self.is_flushing() {
            let tick_ms = self.wheel.tick_ms();
            let limit_ms = self.queue.peek().map_or(u64::MAX, |head| head.expiration_ms.saturating_sub(tick_ms));
            self.wheel.advance(limit_ms.min(now_us / 1000));
        }
    }

    /// When a bucket needs the reaper. A bucket of level 1 can wait until its earliest entry is due: higher levels come first
    /// in the queue, so when it is the first, no other bucket has to cascade at that moment. So a single task costs one
    /// wake-up, not two.
    fn wake_us_for(&self, armed: BucketRef, earliest_us: u64) -> u64 {
        if armed.level == 1 && self.precision == Precision::Exact { earliest_us } else { armed.expiration_ms * 1000 }
    }
}

/// When an entry of the front may be released.
fn ready_us(precision: Precision, due_us: u64) -> u64 {
    match precision {
        Precision::Exact => due_us,
        Precision::Tick => 0,
    }
}

#[cfg(test)]
mod scenarios;

#[cfg(test)]
mod tests;
