//! `hierarchical_hash_wheel_timer`: four wheels of 256 slots, and a hash map for cancels.

use std::rc::Rc;
use std::time::Duration;

use hierarchical_hash_wheel_timer::wheels::cancellable::{CancellableTimerEntry, QuadWheelWithOverflow};

use crate::side::Side;

#[derive(Debug)]
pub struct Entry {
    id: u64,
    payload: u64,
}

impl CancellableTimerEntry for Entry {
    type Id = u64;

    fn id(&self) -> &u64 {
        &self.id
    }
}

pub struct HashWheel {
    wheel: QuadWheelWithOverflow<Entry>,
    id: u64,
    count: usize,
}

impl Side for HashWheel {
    type Key = u64;

    fn new() -> Self {
        Self { wheel: QuadWheelWithOverflow::new(), id: 0, count: 0 }
    }

    fn insert(&mut self, delay_ms: u64, payload: u64) -> u64 {
        self.id += 1;
        let entry = Rc::new(Entry { id: self.id, payload });
        self.wheel.insert_ref_with_delay(entry, Duration::from_millis(delay_ms)).expect("in the future");
        self.count += 1;
        self.id
    }

    fn cancel(&mut self, key: u64) -> bool {
        let cancelled = self.wheel.cancel(&key).is_ok();
        self.count -= usize::from(cancelled);
        cancelled
    }

    fn reset(&mut self, key: u64, delay_ms: u64) -> u64 {
        assert!(self.cancel(key));
        self.insert(delay_ms, key)
    }

    fn tick(&mut self, fired: &mut Vec<u64>) {
        let before = fired.len();
        fired.extend(self.wheel.tick().into_iter().map(|entry| entry.payload));
        self.count -= fired.len() - before;
    }

    fn len(&self) -> usize {
        self.count
    }
}
