//! tokio-util's `DelayQueue`: a wheel with 64 slots a level and a tick of a millisecond.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

use super::tokio_sleep::{enter, paused};
use crate::side::Side;

pub struct Queue {
    runtime: &'static Runtime,
    queue: DelayQueue<u64>,
}

impl Side for Queue {
    type Key = Key;

    fn new() -> Self {
        Self { runtime: paused(), queue: DelayQueue::new() }
    }

    fn enter(&self) {
        enter(self.runtime);
    }

    fn insert(&mut self, delay_ms: u64, payload: u64) -> Key {
        self.queue.insert(payload, Duration::from_millis(delay_ms))
    }

    fn cancel(&mut self, key: Key) -> bool {
        self.queue.try_remove(&key).is_some()
    }

    fn reset(&mut self, key: Key, delay_ms: u64) -> Key {
        self.queue.reset(&key, Duration::from_millis(delay_ms));
        key
    }

    fn tick(&mut self, fired: &mut Vec<u64>) {
        self.runtime.block_on(tokio::time::advance(Duration::from_millis(1)));
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(expired)) = self.queue.poll_expired(&mut context) {
            fired.push(expired.into_inner());
        }
    }

    fn len(&self) -> usize {
        self.queue.len()
    }
}
