//! This project's timer for one thread: no lock, and the time comes from its caller.

use std::num::NonZeroU64;

use tickwheel::{Config, Handle, Wheel};

use crate::side::Side;
use crate::sides::tickwheel::{after, task};

pub struct SingleThreaded {
    wheel: Wheel<NonZeroU64>,
}

impl Side for SingleThreaded {
    type Key = Handle;

    fn new() -> Self {
        Self { wheel: Wheel::new(&Config::default(), 0).expect("the default settings are good") }
    }

    fn insert(&mut self, delay_ms: u64, payload: u64) -> Handle {
        self.wheel.add(after(delay_ms), task(payload)).expect("in range")
    }

    fn cancel(&mut self, key: Handle) -> bool {
        self.wheel.cancel(key).is_some()
    }

    fn reset(&mut self, key: Handle, delay_ms: u64) -> Handle {
        assert!(self.wheel.reschedule(key, after(delay_ms)).expect("in range"), "pending");
        key
    }

    fn tick(&mut self, fired: &mut Vec<u64>) {
        let now_us = self.wheel.now_us() + 1000;
        while let Some(due) = self.wheel.pop_due(now_us) {
            fired.push(due.task.get() - 1);
        }
    }

    fn len(&self) -> usize {
        self.wheel.len()
    }
}
