//! Wheel, bucket queue and front together: what is pending, and in what order it is released.
//!
//! Still no lock, no clock and no thread: every call says what time it is, so every rule of time can be tested here.
//! An entry goes wheel → front → released → claimed, and can be taken out on the way until it is claimed (T9).
//!
//! Why the order of T6 holds: what stands in the front expires before the current tick of level 1 has ended, all that is
//! in the wheel expires later. A bucket is flushed whole, with all others that expire with it, before anything is
//! released; and an add never moves the levels past an armed bucket (T16). So the head of the front is the head of all.

#![forbid(unsafe_code)]

mod advance;

use crate::front::Front;
use crate::queue::BucketQueue;
use crate::wheel::{Armed, Entry, Handle, Key, Place, Placed, Slab, Wheel};

/// How many entries a long operation moves before it lets the lock go.
pub(crate) const STEP: usize = 1000;

/// When a task is released (T5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Once its instant has passed, to the microsecond, whatever the tick.
    #[default]
    Exact,
    /// When its bucket is flushed, as in Kafka: up to one tick early, with the fewest wake-ups.
    Tick,
}

/// What one advance did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Buckets that were due.
    pub buckets: u64,
    /// Tasks that were released to the executor.
    pub released: u64,
    /// Those of them that it refused: see [`crate::Timer::take_rejected`].
    pub rejected: u64,
}

impl Progress {
    /// Whether nothing was due.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.buckets == 0 && self.released == 0
    }
}

#[derive(Debug)]
pub(crate) struct Schedule<T> {
    /// What is pending or released. Wheel and front keep where each entry is.
    pub(crate) slab: Slab<T>,
    pub(crate) wheel: Wheel,
    pub(crate) queue: BucketQueue,
    pub(crate) front: Front,
    precision: Precision,
    next_number: u64,
    /// Entries that wait on the executor's queue.
    released: usize,
    /// A bucket has been opened, and not all of its entries have reached their places.
    is_flushing: bool,
    /// The expiration of the buckets that were flushed last; others that expire with them come before any release.
    flushed_ms: Option<u64>,
    /// Buffers of `flush`, kept for their memory.
    arm: Vec<Armed>,
    leaving: Vec<Key>,
}

/// A claimed task: the caller runs it now, nobody else ever will.
#[derive(Debug)]
pub struct Claimed<T> {
    /// The task.
    pub task: T,
    /// The number that came with it.
    pub tag: u32,
    /// When it was due.
    pub due_us: u64,
    /// Its add number.
    pub number: u64,
}

impl<T> Schedule<T> {
    pub(crate) fn new(tick_ms: u64, sizes: &[u32], start_ms: u64, precision: Precision) -> Self {
        Self {
            slab: Slab::new(),
            wheel: Wheel::new(tick_ms, sizes, start_ms),
            queue: BucketQueue::default(),
            front: Front::default(),
            precision,
            next_number: 0,
            released: 0,
            is_flushing: false,
            flushed_ms: None,
            arm: Vec::new(),
            leaving: Vec::new(),
        }
    }

    /// Tasks not yet released.
    pub(crate) fn len(&self) -> usize {
        self.slab.len() - self.released
    }

    /// Tasks that wait on the executor's queue.
    pub(crate) fn released(&self) -> usize {
        self.released
    }

    /// Adds a task; returns its handle, and the instant at which the reaper must be awake because of it. O(levels).
    #[expect(clippy::inline_always, reason = "a call and its answer by memory are a tenth of it")]
    #[inline(always)]
    pub(crate) fn add(&mut self, now_us: u64, due_us: u64, task: T, tag: u32) -> (Handle, u64) {
        self.catch_up(now_us);
        self.next_number += 1;
        let number = self.next_number;
        let handle = self.slab.insert(due_us, number, task, tag);
        (handle, self.place(Key { due_us, number, handle }))
    }

    /// Moves a task that has not been claimed; it takes a new number (T6). Returns its new handle, and the instant at which
    /// the reaper must be awake because of it. O(levels).
    #[inline]
    pub(crate) fn reschedule(&mut self, now_us: u64, handle: Handle, due_us: u64) -> Option<(Handle, u64)> {
        let number = self.next_number + 1;
        self.catch_up(now_us);
        let Some((handle, place)) = self.slab.renew(handle, due_us, number) else {
            // Stale; or its slot has no generation left, which is rare enough to do the long way.
            let tag = self.slab.get(handle)?.tag;
            let task = self.remove(handle)?;
            return Some(self.add(now_us, due_us, task, tag));
        };
        self.next_number = number;
        self.left(place);
        Some((handle, self.place(Key { due_us, number, handle })))
    }

    /// Places an entry; when the reaper must be awake because of it.
    #[expect(clippy::inline_always, reason = "handing its arguments over by memory took a tenth of an add")]
    #[inline(always)]
    fn place(&mut self, key: Key) -> u64 {
        match self.wheel.place(&mut self.slab, key.handle.slot, key.due_us) {
            Placed::Front => {
                self.front.push(key, &mut self.slab);
                ready_us(self.precision, key.due_us)
            }
            Placed::Arm(armed) => {
                self.queue.push(armed);
                self.wake_for(armed, key.due_us)
            }
            Placed::InArmed(armed) => self.wake_for(armed, key.due_us),
        }
    }

    /// Notes that an entry left this place before it was claimed.
    #[expect(clippy::inline_always, reason = "a call and its argument by memory are a fifth of a cancel")]
    #[inline(always)]
    fn left(&mut self, place: Place) {
        match place {
            Place::Bucket(position) => self.wheel.remove(position),
            Place::Front(position) => self.front.cancelled(position, |key| self.slab.get(key.handle).is_some()),
            Place::Released => self.released -= 1,
            Place::Free(_) | Place::Unplaced => {}
        }
    }

    /// Takes a task out that has not been claimed. O(1); where the front is swept, amortized.
    #[expect(clippy::inline_always, reason = "a call and its answer by memory are a tenth of it")]
    #[inline(always)]
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<T> {
        let Entry { task, place, .. } = self.slab.remove(handle)?;
        self.left(place);
        task
    }

    /// Whether the task has neither been claimed nor taken out.
    #[cfg(feature = "python")]
    pub(crate) fn is_live(&self, handle: Handle) -> bool {
        self.slab.get(handle).is_some()
    }

    /// Whether the task waits on the executor's queue.
    pub(crate) fn is_released(&self, handle: Handle) -> bool {
        self.slab.get(handle).is_some_and(|entry| entry.place == Place::Released)
    }

    /// Takes a released task, to run it; `None` for one that is not released.
    pub(crate) fn claim(&mut self, handle: Handle) -> Option<Claimed<T>> {
        let Entry { task, tag, due_us, number, .. } = self.slab.remove_if(handle, |place| place == Place::Released)?;
        self.released -= 1;
        Some(Claimed { task: task?, tag, due_us, number })
    }

    /// What tag and task a released handle has.
    #[cfg(feature = "python")]
    pub(crate) fn peek(&self, handle: Handle) -> Option<(&T, u32)> {
        self.slab.get(handle).and_then(|entry| Some((entry.task.as_ref()?, entry.tag)))
    }

    /// The live entries of one page, as (due instant, add number, handle, task, tag); `None` past the last page.
    pub(crate) fn page(&self, index: usize) -> Option<impl Iterator<Item = (Handle, &Entry<T>, &T)>> {
        self.slab.page(index)
    }

    /// What it takes of memory, with 8 bytes for a task. O(pages and buckets).
    pub(crate) fn bytes(&self) -> usize {
        self.slab.bytes() + self.wheel.bytes() + self.queue.bytes() + self.front.bytes()
    }

    /// T16: before an add the levels move up to now, but at most to one tick before the earliest armed bucket.
    #[inline]
    fn catch_up(&mut self, now_us: u64) {
        if !self.wheel.is_at(now_us) && !self.is_flushing {
            let tick_ms = self.wheel.tick_ms();
            let limit_ms = self.queue.peek().map_or(u64::MAX, |head| head.expiration_ms.saturating_sub(tick_ms));
            self.wheel.advance(limit_ms.min(now_us / 1000));
        }
    }

    /// When a bucket needs the reaper. One on level 1 holds nothing before its earliest instant, and nothing else expires
    /// with it when it is the head of the queue: a lone timer costs one wake-up, not two.
    fn wake_for(&self, armed: Armed, earliest_us: u64) -> u64 {
        if armed.level == 1 && self.precision == Precision::Exact { earliest_us } else { armed.expiration_ms * 1000 }
    }
}

/// When what stands in the front may be released.
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
