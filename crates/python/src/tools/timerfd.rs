//! A timer of the system that an event loop can watch as a file, on the clock of `time.monotonic`. Linux has one; elsewhere the loops
//! keep their own timers.

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};

    use rustix::time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
        timerfd_settime,
    };

    /// Readable from an instant on, until it is armed anew.
    #[derive(Debug)]
    pub(crate) struct TimerFd(OwnedFd);

    impl TimerFd {
        /// It is not armed. Errors: that of the system, as where a process has too many open files.
        pub(crate) fn new() -> io::Result<Self> {
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
            let armed = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec);
            debug_assert!(armed.is_ok(), "it is a timerfd, and the time is one");
        }

        pub(crate) fn fd(&self) -> i32 {
            self.0.as_raw_fd()
        }
    }

    /// The clock of `time.monotonic`.
    #[inline]
    pub(crate) fn monotonic_ns() -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;
    use std::sync::OnceLock;
    use std::time::Instant;

    /// There is none.
    #[derive(Debug)]
    pub(crate) enum TimerFd {}

    impl TimerFd {
        /// Errors: always.
        pub(crate) fn new() -> io::Result<Self> {
            Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux has a timerfd: use the loop's own timers"))
        }

        pub(crate) fn arm(&self, _at_us: Option<u64>) {
            match *self {}
        }

        pub(crate) fn fd(&self) -> i32 {
            match *self {}
        }
    }

    /// A clock of its own, as nothing is placed on it.
    pub(crate) fn monotonic_ns() -> u64 {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        ORIGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

pub(crate) use system::{TimerFd, monotonic_ns};
