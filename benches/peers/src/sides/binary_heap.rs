//! The standard library's heap: what programs write when they need a timer quickly. It cannot remove an entry from its
//! middle, so a cancel marks the entry. When most are marked, the marked ones are removed together.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use crate::side::Side;

#[derive(Default)]
pub struct Heap {
    pending: BinaryHeap<Reverse<(u64, u64, u64)>>,
    /// The numbers of cancelled entries that are still in the heap.
    cancelled: HashSet<u64>,
    number: u64,
    now_ms: u64,
}

impl Side for Heap {
    type Key = u64;

    fn new() -> Self {
        Self::default()
    }

    fn insert(&mut self, delay_ms: u64, payload: u64) -> u64 {
        self.number += 1;
        self.pending.push(Reverse((self.now_ms + delay_ms, self.number, payload)));
        self.number
    }

    fn cancel(&mut self, key: u64) -> bool {
        self.cancelled.insert(key);
        if self.cancelled.len() > 64 && self.cancelled.len() * 2 > self.pending.len() {
            let cancelled = std::mem::take(&mut self.cancelled);
            self.pending.retain(|Reverse((_, number, _))| !cancelled.contains(number));
            self.pending.shrink_to_fit();
        }
        true
    }

    fn reset(&mut self, key: u64, delay_ms: u64) -> u64 {
        self.cancel(key);
        self.insert(delay_ms, key)
    }

    fn tick(&mut self, fired: &mut Vec<u64>) {
        self.now_ms += 1;
        while let Some(Reverse((due_ms, number, payload))) = self.pending.peek().copied() {
            if due_ms > self.now_ms {
                return;
            }
            self.pending.pop();
            if self.cancelled.is_empty() || !self.cancelled.remove(&number) {
                fired.push(payload);
            }
        }
    }

    fn len(&self) -> usize {
        self.pending.len() - self.cancelled.len()
    }
}
