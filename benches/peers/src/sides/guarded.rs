//! This project's timer, locked once for the calls of a millisecond.

use std::num::NonZeroU64;

use tickwheel::{Clock, Config, Handle, Released, Ticket, Timer, TimerGuard};

use crate::side::Side;
use crate::sides::tickwheel::{after, task};

pub struct Guarded {
    timer: &'static Timer<NonZeroU64>,
    /// From the first call of a millisecond to its end.
    guard: Option<TimerGuard<'static, NonZeroU64>>,
}

impl Guarded {
    fn guard(&mut self) -> &mut TimerGuard<'static, NonZeroU64> {
        self.guard.get_or_insert_with(|| self.timer.lock())
    }
}

impl Side for Guarded {
    type Key = Handle;

    fn new() -> Self {
        let timer = Timer::new(&Config::default(), Clock::manual(0)).expect("the default settings are good");
        Self { timer: Box::leak(Box::new(timer)), guard: None }
    }

    fn insert(&mut self, delay_ms: u64, payload: u64) -> Handle {
        self.guard().add(after(delay_ms), task(payload)).expect("in range")
    }

    fn cancel(&mut self, key: Handle) -> bool {
        self.guard().cancel(key).is_some()
    }

    fn reset(&mut self, key: Handle, delay_ms: u64) -> Handle {
        assert!(self.guard().reschedule(key, after(delay_ms)).expect("in range"), "pending");
        key
    }

    fn tick(&mut self, fired: &mut Vec<u64>) {
        self.guard = None;
        self.timer.clock().set_us(self.timer.clock().now_us() + 1000);
        self.timer.advance(&mut |released: Released| fired.extend(released.tickets.into_iter().map(Ticket::to_bits)));
    }

    fn len(&self) -> usize {
        self.guard.as_ref().map_or_else(|| self.timer.len(), TimerGuard::len)
    }
}
