//! The clocks of the sender and its alarms (rules D3, D6). It decides nothing.
//!
//! - The *timer's clock* never goes back. Waits and durations are by it.
//! - The *due clock* maps due times, which are wall time, to the timer's clock. It is read again after a step.
//! - The *steady clock* agreed with the wall clock at the start of the process, and is never stepped. The times in the
//!   store's table of attempts are by it.

use std::sync::Arc;
use std::time::Duration;

use super::doubt::Key;
use super::lanes::Slot;
use crate::base::clock::{DueClock, WallTime};
use tickwheel::{Clock, Config, Error, Handle, Released, Ticket, Timer, When};

/// The alarms of the timer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Alarm {
    /// Messages are due in this millisecond.
    Due(i64),
    /// A message may be sent that would have been early before.
    Again(Slot, i64),
    /// A key has waited long enough.
    Waited(Key),
    /// A round of tries of this share begins. The number is the start of the outage.
    Round(u32, u64),
    /// No send of this share was accepted for a second, or some were.
    Quiet(u32),
    /// Messages of this share that wait for their next attempt should be read from the store.
    Tried(u32),
    /// A message that goes alone may go now, or has held the others back long enough.
    Alone,
    /// A send of this share is not young any more. It may leave its ordinary place.
    Older(u32),
    /// The rate of this share allows more messages.
    Paced(u32),
    /// The rate of this tenant allows more messages.
    TenantPaced(i64),
    /// A send takes too long.
    CutOff(u64),
}

/// An alarm, and the generation of the sender that it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Armed {
    generation: u32,
    alarm: Alarm,
}

pub(crate) fn timer(clock: Clock) -> Result<Timer<Armed>, Error> {
    Timer::new(&Config::default(), clock)
}

/// The clocks, and the timer of the alarms.
pub(super) struct Clocks {
    pub(super) timer: Arc<Timer<Armed>>,
    pub(super) wall: Arc<dyn WallTime>,
    /// `None` before the start: nothing is due.
    pub(super) due: Option<DueClock>,
    /// How far the wall clock was stepped since the start, without steps under a second.
    pub(super) stepped_ms: i64,
    /// The start of the process on the timer's clock and on the wall clock.
    pub(super) began: (u64, i64),
    released: Vec<Ticket>,
    /// Counts how often the store was opened anew. Alarms from before are not heard.
    generation: u32,
}

impl Clocks {
    pub(super) fn new(timer: Arc<Timer<Armed>>, wall: Arc<dyn WallTime>) -> Self {
        let began = (timer.clock().now_us(), wall.now_us());
        Self { timer, wall, due: None, stepped_ms: 0, began, released: Vec::new(), generation: 0 }
    }

    /// From now on no alarm is heard that was set before.
    pub(super) fn forget_alarms(&mut self) {
        self.generation += 1;
        self.released.clear();
    }

    /// On the timer's clock.
    pub(super) fn now_us(&self) -> u64 {
        self.timer.clock().now_us()
    }

    /// The time now on the steady clock.
    pub(super) fn steady_us(&self) -> i64 {
        let since_us = self.now_us().saturating_sub(self.began.0);
        self.began.1.saturating_add(since_us.cast_signed())
    }

    /// A time of the steady clock on the timer's clock. `None` for a time before the start of the process.
    pub(super) fn of_steady_ms(&self, ms: i64) -> Option<u64> {
        let since_us = u64::try_from(ms.saturating_mul(1_000).saturating_sub(self.began.1)).ok()?;
        Some(self.began.0.saturating_add(since_us).min(self.now_us()))
    }

    pub(super) fn arm(&self, after: Duration, alarm: Alarm) -> Option<Handle> {
        self.add(after.into(), alarm)
    }

    pub(super) fn arm_at(&self, at_us: u64, alarm: Alarm) -> Option<Handle> {
        self.add(When::AtUs(at_us), alarm)
    }

    fn add(&self, when: When, alarm: Alarm) -> Option<Handle> {
        let armed = Armed { generation: self.generation, alarm };
        self.timer.add(when, armed).ok() // a closed timer takes no task: no message is sent then
    }

    pub(super) fn cancel(&self, alarm: Handle) {
        self.timer.cancel(alarm);
    }

    /// Releases all alarms whose time has come. Take them with [`Clocks::next_released`].
    pub(super) fn release(&mut self) {
        let released = &mut self.released;
        self.timer.advance(&mut |batch: Released| released.extend(batch.tickets));
        self.released.reverse();
    }

    pub(super) fn next_released(&mut self) -> Option<Alarm> {
        while let Some(ticket) = self.released.pop() {
            if let Some(claimed) = self.timer.claim(ticket)
                && claimed.task.generation == self.generation
            {
                return Some(claimed.task.alarm);
            }
        }
        None
    }
}
