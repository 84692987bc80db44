//! Advance.

#![forbid(unsafe_code)]

use super::{Progress, STEP, Schedule, ready_us};
use crate::wheel::{Armed, Handle, Key, Place};

impl<T> Schedule<T> {
    /// One bounded step of an advance to `now_us`: about `limit` entries are moved or released. Released handles are
    /// appended to `out`, in order. Returns whether there is more to do.
    pub(crate) fn step(&mut self, now_us: u64, limit: usize, out: &mut Vec<Handle>, progress: &mut Progress) -> bool {
        let mut left = limit;
        loop {
            if self.is_flushing {
                left = left.saturating_sub(self.flush(left));
                if self.is_flushing {
                    return true;
                }
            }
            let due = self.queue.peek().filter(|head| head.expiration_ms <= now_us / 1000);
            if let Some(head) = due
                && (self.flushed_ms == Some(head.expiration_ms) || self.front.len() == 0)
            {
                self.open(head);
                progress.buckets += 1;
            } else {
                let before = out.len();
                left -= self.release(now_us, left, out);
                progress.released += (out.len() - before) as u64;
                match due {
                    _ if left == 0 => return true,
                    // Nothing in the front is due before this bucket any more.
                    Some(head) => {
                        self.open(head);
                        progress.buckets += 1;
                    }
                    None => return false,
                }
            }
            left = left.saturating_sub(1);
            if left == 0 {
                return true;
            }
        }
    }

    /// Drops empty buckets at the head of the bucket queue, at most so many (T9). Returns whether there may be more of them.
    pub(crate) fn drop_empty_buckets(&mut self, limit: usize) -> bool {
        for _ in 0..limit {
            let Some(head) = self.queue.peek().filter(|head| self.wheel.is_empty(*head)) else { return false };
            self.queue.pop();
            self.wheel.disarm(head);
        }
        true
    }

    /// When there is next something to do; `Some(0)` in the middle of a bucket. Empty buckets at the head are dropped, unless
    /// there are very many: then it is the time of an empty one, which is too early and does no harm.
    pub(crate) fn next_wake_us(&mut self) -> Option<u64> {
        if self.is_flushing {
            return Some(0);
        }
        let front = self.first_ready_us();
        let bucket = self.head().map(|head| self.wake_for(head, self.wheel.earliest_us(head)));
        front.into_iter().chain(bucket).min()
    }

    /// As [`Schedule::next_wake_us`], but with a stop at every bucket: what steps a manual clock.
    pub(crate) fn next_event_us(&mut self) -> Option<u64> {
        let front = self.first_ready_us();
        let bucket = self.head().map(|head| head.expiration_ms * 1000);
        front.into_iter().chain(bucket).min()
    }

    fn open(&mut self, head: Armed) {
        self.queue.pop();
        self.wheel.advance(head.expiration_ms);
        if let Some(entries) = self.wheel.open(head) {
            let tick_us = self.wheel.tick_ms() * 1000;
            self.front.expect(entries, self.wheel.tick_end_us().saturating_sub(tick_us), tick_us);
        }
        self.is_flushing = true;
        self.flushed_ms = Some(head.expiration_ms);
    }

    /// Moves about `limit` entries of the opened bucket on; returns how many it read.
    #[inline(never)] // its sort and the loop that calls it do better apart
    fn flush(&mut self, limit: usize) -> usize {
        let read = self.wheel.flush(&mut self.slab, limit, &mut self.arm, &mut self.leaving);
        for armed in self.arm.drain(..) {
            self.queue.push(armed);
        }
        if self.front.is_spread() {
            return read + self.spread(limit - read);
        }
        self.leaving.sort_unstable();
        self.front.extend(&self.leaving, &mut self.slab);
        self.leaving.clear();
        self.is_flushing = self.wheel.is_flushing();
        read
    }

    /// What leaves a dense bucket is sorted when all of it has come. Returns how many keys that were.
    #[cold]
    fn spread(&mut self, limit: usize) -> usize {
        self.front.spread(&self.leaving, &mut self.slab);
        self.leaving.clear();
        let sorted = if self.wheel.is_flushing() { 0 } else { self.front.gather(limit) };
        self.is_flushing = self.wheel.is_flushing() || self.front.is_spread();
        sorted
    }

    /// Releases what is ready at the head of the front; returns how many keys it read, at most `limit`.
    fn release(&mut self, now_us: u64, limit: usize, out: &mut Vec<Handle>) -> usize {
        if out.capacity() == 0 {
            out.reserve(self.front.len().min(limit));
        }
        let (slab, precision, before) = (&mut self.slab, self.precision, out.len());
        let read = self.front.pop_while(
            limit,
            |key| ready_us(precision, key.due_us) <= now_us,
            |key| {
                let Some(entry) = slab.get_mut(key.handle) else { return false };
                entry.place = Place::Released;
                out.push(key.handle);
                true
            },
        );
        self.released += out.len() - before;
        read
    }

    /// The head of the front.
    fn first(&mut self) -> Option<Key> {
        let slab = &self.slab;
        self.front.peek(|key| slab.get(key.handle).is_some())
    }

    /// The head of the bucket queue. Empty buckets before it are dropped (T9), but no more than [`STEP`] of them.
    fn head(&mut self) -> Option<Armed> {
        self.drop_empty_buckets(STEP);
        self.queue.peek()
    }

    fn first_ready_us(&mut self) -> Option<u64> {
        self.first().map(|key| ready_us(self.precision, key.due_us))
    }
}
