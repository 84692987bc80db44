//! The clocks of the system, and a timer that an event loop can watch as a file. Linux has one; elsewhere the loops keep their own
//! timers.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::tools::describe;

/// A clock of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SystemClock {
    /// The one of `time.monotonic`.
    Monotonic,
    /// The one that goes on while the machine is suspended.
    Boottime,
}

impl SystemClock {
    /// Errors: `ValueError`, also for a clock that this system does not have.
    pub(crate) fn from_python(clock: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(clock) = clock else { return Ok(Self::Monotonic) };
        match clock.extract().unwrap_or("") {
            "monotonic" => Ok(Self::Monotonic),
            "boottime" if cfg!(target_os = "linux") => Ok(Self::Boottime),
            "boottime" => {
                Err(PyValueError::new_err("only Linux has the clock 'boottime': leave it out for 'monotonic'"))
            }
            _ => Err(PyValueError::new_err(format!(
                "clock must be 'monotonic' or 'boottime', got {}: 'boottime' goes on while the machine is suspended",
                describe::type_and_value(clock)?
            ))),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        if self == Self::Monotonic { "monotonic" } else { "boottime" }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};

    use super::SystemClock;

    use rustix::time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
        timerfd_settime,
    };

    /// Readable from an instant on, until it is armed anew.
    #[derive(Debug)]
    pub(crate) struct TimerFd(OwnedFd);

    impl TimerFd {
        /// It is not armed. Errors: that of the system, as where a process has too many open files.
        pub(crate) fn new(clock: SystemClock) -> io::Result<Self> {
            let clock = match clock {
                SystemClock::Monotonic => TimerfdClockId::Monotonic,
                SystemClock::Boottime => TimerfdClockId::Boottime,
            };
            Ok(Self(timerfd_create(clock, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?))
        }

        /// At this reading of its clock, or never. An instant that is past counts at once.
        pub(crate) fn arm(&self, at_us: Option<u64>) {
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let at = at_us.map_or(zero, |at_us| {
                let at_us = at_us.max(1); // zero is never
                Timespec { tv_sec: (at_us / 1_000_000) as i64, tv_nsec: (at_us % 1_000_000 * 1000) as i64 }
            });
            let spec = Itimerspec { it_interval: zero, it_value: at };
            let armed = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec);
            debug_assert!(armed.is_ok(), "it is a timerfd, and the time is one");
        }

        pub(crate) fn fd(&self) -> i32 {
            self.0.as_raw_fd()
        }
    }

    impl SystemClock {
        #[inline]
        pub(crate) fn now_ns(self) -> u64 {
            let now = clock_gettime(if self == Self::Monotonic { ClockId::Monotonic } else { ClockId::Boottime });
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;
    use std::sync::OnceLock;
    use std::time::Instant;

    use super::SystemClock;

    /// There is none.
    #[derive(Debug)]
    pub(crate) enum TimerFd {}

    impl TimerFd {
        /// Errors: always.
        pub(crate) fn new(_clock: SystemClock) -> io::Result<Self> {
            Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux has a timerfd: use the loop's own timers"))
        }

        pub(crate) fn arm(&self, _at_us: Option<u64>) {
            match *self {}
        }

        pub(crate) fn fd(&self) -> i32 {
            match *self {}
        }
    }

    impl SystemClock {
        /// A clock of its own, as nothing is placed on it.
        pub(crate) fn now_ns(self) -> u64 {
            static ORIGIN: OnceLock<Instant> = OnceLock::new();
            ORIGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
        }
    }
}

pub(crate) use system::TimerFd;
