//! This project's timer: thread-safe, every call takes its lock. Its guarantees are tested elsewhere, but the order of (due
//! instant, add number) is asserted here too.

use std::num::NonZeroU64;

use tickwheel::{Clock, Config, Handle, Released, Ticket, Timer, When};

use crate::side::Side;

/// With `CLAIMS` each timer that fires is also claimed, as an executor claims a task to run it.
pub struct Tickwheel<const CLAIMS: bool> {
    pub timer: Timer<NonZeroU64>,
    now_us: u64,
}

/// Never 0, so that an entry is as large as with a pointer.
pub fn task(payload: u64) -> NonZeroU64 {
    NonZeroU64::MIN.saturating_add(payload)
}

pub fn after(delay_ms: u64) -> When {
    When::AfterUs(delay_ms * 1000)
}

impl<const CLAIMS: bool> Side for Tickwheel<CLAIMS> {
    type Key = Handle;

    fn new() -> Self {
        let timer = Timer::new(&Config::default(), Clock::manual(0)).expect("the default settings are good");
        Self { timer, now_us: 0 }
    }

    fn insert(&mut self, delay_ms: u64, payload: u64) -> Handle {
        self.timer.add(after(delay_ms), task(payload)).expect("in range")
    }

    fn cancel(&mut self, key: Handle) -> bool {
        self.timer.cancel(key).is_some()
    }

    fn reset(&mut self, key: Handle, delay_ms: u64) -> Handle {
        assert!(self.timer.reschedule(key, after(delay_ms)).expect("in range"), "pending");
        key
    }

    fn tick(&mut self, fired: &mut Vec<u64>) {
        self.now_us += 1000;
        self.timer.clock().set_us(self.now_us);
        self.timer.advance(&mut |released: Released| {
            if CLAIMS {
                for ticket in released.tickets {
                    let claimed = self.timer.claim(ticket).expect("nothing was cancelled");
                    fired.push(claimed.task.get() - 1);
                }
            } else {
                fired.extend(released.tickets.into_iter().map(Ticket::to_bits));
            }
        });
    }

    fn payloads(&mut self, fired: Vec<u64>) -> Vec<u64> {
        if CLAIMS {
            return fired;
        }
        let mut last = (0, 0);
        let claim = |bits| {
            let claimed = self.timer.claim(Ticket::from_bits(bits)).expect("nothing was cancelled");
            let key = (claimed.due_us, claimed.number);
            assert!(last < key, "fired out of order: {last:?}, then {key:?}");
            last = key;
            claimed.task.get() - 1
        };
        fired.into_iter().map(claim).collect()
    }

    fn len(&self) -> usize {
        self.timer.len()
    }
}
