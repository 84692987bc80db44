//! slab-wheel: a wheel whose slots hold the numbers of entries in a slab. It rounds up, so that nothing fires early.

use std::time::{Duration, Instant};

use slab_wheel::{Key, Millis, TimingWheel};

use crate::side::Side;

pub struct SlabWheel {
    wheel: TimingWheel<u64, Millis>,
    now: Instant,
    due: Vec<(Key, u64)>,
}

impl Side for SlabWheel {
    type Key = Key;

    fn new() -> Self {
        let now = Instant::now();
        Self { wheel: TimingWheel::starting_at(now), now, due: Vec::new() }
    }

    fn insert(&mut self, delay_ms: u64, payload: u64) -> Self::Key {
        self.wheel.insert(self.now + Duration::from_millis(delay_ms), payload)
    }

    fn cancel(&mut self, key: Self::Key) -> bool {
        self.wheel.remove(key).is_some()
    }

    fn reset(&mut self, key: Self::Key, delay_ms: u64) -> Self::Key {
        let payload = self.wheel.remove(key).expect("it is pending");
        self.insert(delay_ms, payload)
    }

    fn tick(&mut self, fired: &mut Vec<u64>) {
        self.now += Duration::from_millis(1);
        self.wheel.advance_to(self.now);
        self.wheel.drain_expired_into(&mut self.due);
        fired.extend(self.due.drain(..).map(|(_, payload)| payload));
    }

    fn len(&self) -> usize {
        self.wheel.len()
    }
}
