//! nexus-timer: a wheel of intrusive lists in a slab, with much `unsafe`.

use std::time::{Duration, Instant};

use nexus_timer::{TimerHandle, Wheel};

use crate::side::Side;

pub struct Nexus {
    wheel: Wheel<u64>,
    now: Instant,
}

impl Side for Nexus {
    type Key = TimerHandle<u64>;

    fn new() -> Self {
        let now = Instant::now();
        Self { wheel: Wheel::unbounded(4096, now), now }
    }

    fn insert(&mut self, delay_ms: u64, payload: u64) -> Self::Key {
        self.wheel.schedule(self.now + Duration::from_millis(delay_ms), payload)
    }

    fn cancel(&mut self, key: Self::Key) -> bool {
        self.wheel.cancel(key).is_some()
    }

    fn reset(&mut self, key: Self::Key, delay_ms: u64) -> Self::Key {
        self.wheel.reschedule(key, self.now + Duration::from_millis(delay_ms))
    }

    fn forget(&mut self, key: Self::Key) {
        self.wheel.free(key);
    }

    fn tick(&mut self, fired: &mut Vec<u64>) {
        self.now += Duration::from_millis(1);
        self.wheel.poll_and_rebalance(self.now, fired);
    }

    fn len(&self) -> usize {
        self.wheel.len()
    }
}
