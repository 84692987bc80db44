//! The front: what has left the wheel, by (due instant, add number).
//!
//! The wheel sorts to the tick, the front sorts the last tick (T5, T6). Most of it arrives in order, so it is a queue
//! with a heap beside it for the stragglers: O(1) for what comes in order, O(log) for the rest. A cancelled entry's key
//! stays until it comes to the head, or until half of the keys are dead and they are swept.
//!
//! Example: keys 3, 5, 4 come in; 3 and 5 join the queue, 4 the heap; out they come as 3, 4, 5.

#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::wheel::Handle;

/// A key in the order of T6. The add number is unique, so the slot never decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) due_us: u64,
    pub(crate) number: u64,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Key {
    pub(crate) fn handle(&self) -> Handle {
        Handle { slot: self.slot, generation: self.generation }
    }
}

/// Sweeping fewer dead keys than this is not worth it.
const SWEEP: usize = 64;
/// An empty front keeps room for this many keys.
const KEEP: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Front {
    run: VecDeque<Key>,
    stragglers: BinaryHeap<Reverse<Key>>,
    /// Keys whose entry was cancelled.
    dead: usize,
}

impl Front {
    /// How many entries wait here.
    pub(crate) fn len(&self) -> usize {
        self.run.len() + self.stragglers.len() - self.dead
    }

    pub(crate) fn push(&mut self, key: Key) {
        if self.run.back().is_none_or(|last| *last < key) {
            self.run.push_back(key);
        } else {
            self.stragglers.push(Reverse(key));
        }
    }

    /// The earliest key, dead or alive.
    pub(crate) fn peek(&self) -> Option<Key> {
        match (self.run.front(), self.stragglers.peek()) {
            (Some(run), Some(Reverse(straggler))) => Some(*run.min(straggler)),
            (Some(key), None) | (None, Some(Reverse(key))) => Some(*key),
            (None, None) => None,
        }
    }

    /// Takes the earliest key out, dead or alive, if it may go.
    pub(crate) fn pop_if(&mut self, may_go: impl FnOnce(&Key) -> bool) -> Option<Key> {
        let straggler = self.stragglers.peek().map(|Reverse(key)| key);
        let popped = match self.run.front() {
            Some(first) if straggler.is_none_or(|straggler| first < straggler) => {
                may_go(first).then(|| self.run.pop_front()).flatten()
            }
            _ => straggler.is_some_and(may_go).then(|| self.stragglers.pop().map(|Reverse(key)| key)).flatten(),
        };
        if popped.is_some() && self.run.is_empty() && self.stragglers.is_empty() {
            self.run.shrink_to(KEEP);
            self.stragglers.shrink_to(KEEP);
        }
        popped
    }

    /// A key that was popped was dead.
    pub(crate) fn was_dead(&mut self) {
        self.dead -= 1;
    }

    /// An entry that waits here was cancelled. O(1) amortized.
    pub(crate) fn cancelled(&mut self, is_alive: impl Fn(&Key) -> bool) {
        self.dead += 1;
        if self.dead >= SWEEP && self.dead > self.len() {
            self.run.retain(&is_alive);
            self.run.shrink_to(self.run.len() * 2);
            self.stragglers.retain(|Reverse(key)| is_alive(key));
            self.stragglers.shrink_to(self.stragglers.len() * 2);
            self.dead = 0;
        }
    }

    /// What it takes of memory.
    pub(crate) fn bytes(&self) -> usize {
        (self.run.capacity() + self.stragglers.capacity()) * size_of::<Key>()
    }

    /// Every key in order, the dead ones too. O(n log n).
    pub(crate) fn sorted(&self) -> Vec<Key> {
        let mut keys: Vec<_> = self.run.iter().copied().chain(self.stragglers.iter().map(|key| key.0)).collect();
        keys.sort_unstable();
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(due_us: u64, number: u64) -> Key {
        Key { due_us, number, slot: number as u32, generation: 0 }
    }

    #[test]
    fn keys_come_out_by_instant_then_by_add_number__t6() {
        let mut front = Front::default();
        for key in [key(3, 1), key(5, 2), key(4, 3), key(5, 0), key(9, 4), key(4, 5)] {
            front.push(key);
        }
        let mut out = Vec::new();
        while let Some(key) = front.pop_if(|_| true) {
            out.push((key.due_us, key.number));
        }
        assert_eq!(front.len(), 0);
        assert_eq!(out, [(3, 1), (4, 3), (4, 5), (5, 0), (5, 2), (9, 4)]);
    }

    #[test]
    fn cancelled_keys_are_swept_when_they_are_the_most() {
        let mut front = Front::default();
        for number in 0..1000 {
            front.push(key(number, number));
        }
        for number in 0..990 {
            front.cancelled(|key| key.number > number);
        }
        assert_eq!(front.len(), 10);
        assert!(front.sorted().len() < 200);
    }
}
