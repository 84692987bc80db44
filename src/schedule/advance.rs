//! Advancing: which bucket is flushed next, what is released, and when there is something to do again.

use super::{Precision, Progress, STEP, Schedule, ready_us};
use crate::wheel::{BucketRef, ReleaseKey, Ticket};

impl<T> Schedule<T> {
    /// One step of an advance to `now_us`: about `limit` entries are moved or released. Appends the tickets of the released
    /// tasks to `out`, in order. Returns whether there is more to do.
    pub fn step(&mut self, now_us: u64, limit: usize, out: &mut Vec<Ticket>, progress: &mut Progress) -> bool {
        let mut left = limit;
        loop {
            if self.is_flushing() {
                left = left.saturating_sub(self.flush_step(left));
                if self.is_flushing() {
                    return true;
                }
            }
            let due = self.queue.peek().filter(|head| head.expiration_ms <= now_us / 1000);
            // Not before the last bucket of an instant is flushed (T6). An empty front may have keys of cancelled entries.
            let may_release =
                due.is_none_or(|head| self.front.len() > 0 && self.flushed_ms != Some(head.expiration_ms));
            if may_release {
                let before = out.len();
                left -= self.release_ready(now_us, left, out);
                progress.released += (out.len() - before) as u64;
                if left == 0 {
                    return true;
                }
            }
            // No entry of the front is due before this bucket expires.
            let Some(due) = due else { return false };
            self.start_flush(due);
            progress.buckets += 1;
            left = left.saturating_sub(1);
            if left == 0 {
                return true;
            }
        }
    }

    /// Drops empty buckets at the head of the bucket queue (T9), in at most `limit` steps. Returns whether there may be more of
    /// them.
    pub(crate) fn drop_empty_buckets(&mut self, limit: usize) -> bool {
        let mut left = limit;
        while left > 0 {
            let Some(head) = self.queue.peek() else { return false };
            let is_empty = self.wheel.trim(&mut self.slab, head, &mut left, &mut self.newly_armed);
            if is_empty {
                self.queue.pop();
                self.wheel.disarm(head);
                left = left.saturating_sub(1);
            }
            self.arm_new();
            if !is_empty {
                return left == 0;
            }
        }
        true
    }

    fn arm_new(&mut self) {
        for armed in self.newly_armed.drain(..) {
            self.queue.push(armed);
        }
    }

    /// When there is something to do next; `Some(0)` while a bucket is being flushed. Empty buckets at the head of the
    /// queue are dropped. If there are very many, this is the time of an empty bucket, which is too early and harmless.
    pub fn next_wake_us(&mut self) -> Option<u64> {
        if self.is_flushing() {
            return Some(0);
        }
        let front = self.first_ready_us();
        let bucket = self.first_armed().map(|head| match (head.level, self.precision) {
            (1, Precision::Exact) => self.wheel.earliest_us(&self.slab, head),
            _ => head.expiration_ms * 1000,
        });
        front.into_iter().chain(bucket).min()
    }

    /// As [`Schedule::next_wake_us`], but with a stop at every bucket: a manual clock goes step by step.
    pub(crate) fn next_event_us(&mut self) -> Option<u64> {
        let front = self.first_ready_us();
        let bucket = self.first_armed().map(|head| head.expiration_ms * 1000);
        front.into_iter().chain(bucket).min()
    }

    /// Whether the entries of a bucket are on their way to their new places.
    #[inline]
    pub(super) fn is_flushing(&self) -> bool {
        self.wheel.is_flushing() || self.front.has_partitions()
    }

    fn start_flush(&mut self, head: BucketRef) {
        self.queue.pop();
        self.wheel.advance(head.expiration_ms);
        if let Some(entries) = self.wheel.start_flush(head) {
            let tick_us = self.wheel.tick_ms() * 1000;
            self.front.start_bucket(entries, self.wheel.tick_end_us().saturating_sub(tick_us), tick_us);
        }
        self.flushed_ms = Some(head.expiration_ms);
    }

    /// Moves about `limit` entries of the bucket that is being flushed; returns how many it read.
    #[inline(never)] // the sort and the loop that calls it need the registers
    fn flush_step(&mut self, limit: usize) -> usize {
        let read = self.wheel.flush_step(&mut self.slab, limit, &mut self.newly_armed, &mut self.for_front);
        self.arm_new();
        if self.front.has_partitions() {
            return read + self.flush_dense_step(limit - read);
        }
        self.for_front.sort_unstable();
        self.front.extend(&self.for_front);
        self.for_front.clear();
        read
    }

    /// As [`Schedule::flush_step`] for a dense bucket: its keys are sorted after the last one has come. Returns how many were
    /// sorted.
    #[cold]
    fn flush_dense_step(&mut self, limit: usize) -> usize {
        self.front.extend_unsorted(&self.for_front);
        self.for_front.clear();
        if self.wheel.is_flushing() { 0 } else { self.front.sort_partitions(limit) }
    }

    /// Releases the entries of the front that are ready; returns how many keys it read, at most `limit`.
    fn release_ready(&mut self, now_us: u64, limit: usize, out: &mut Vec<Ticket>) -> usize {
        if out.capacity() == 0 {
            out.reserve(self.front.len().min(limit));
        }
        let (slab, precision, before) = (&mut self.slab, self.precision, out.len());
        let read = self.front.pop_while(
            limit,
            |key| ready_us(precision, key.due_us) <= now_us,
            |key| {
                let ticket = slab.release(key);
                out.extend(ticket);
                ticket.is_some()
            },
        );
        self.released += out.len() - before;
        read
    }

    /// The first entry of the front.
    fn first_in_front(&mut self) -> Option<ReleaseKey> {
        let slab = &self.slab;
        self.front.first_live(|key| slab.is_in_front(key))
    }

    /// The first bucket of the queue. Empty buckets before it are dropped (T9), but no more than [`STEP`] of them.
    fn first_armed(&mut self) -> Option<BucketRef> {
        self.drop_empty_buckets(STEP);
        self.queue.peek()
    }

    fn first_ready_us(&mut self) -> Option<u64> {
        self.first_in_front().map(|key| ready_us(self.precision, key.due_us))
    }
}
