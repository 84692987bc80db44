//! A timer of the system that an event loop can watch as a file, on the clock of `time.monotonic`.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};

/// Readable from an instant on, until it is armed anew.
#[derive(Debug)]
pub(crate) struct TimerFd(OwnedFd);

impl TimerFd {
    /// It is not armed. Errors: that of the system, as where a process has too many open files.
    pub(crate) fn new() -> std::io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// At this reading of [`monotonic_ns`], or never. An instant that is past counts at once.
    pub(crate) fn arm(&self, at_us: Option<u64>) {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = at_us.map_or(zero, |at_us| {
            let at_us = at_us.max(1); // zero is never
            Timespec { tv_sec: (at_us / 1_000_000) as i64, tv_nsec: (at_us % 1_000_000 * 1000) as i64 }
        });
        let spec = Itimerspec { it_interval: zero, it_value: at };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec).expect("the descriptor and the time are right");
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The clock of `time.monotonic`.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
