//! Where a thread sleeps until a time since boot, or until a bell rings; a ring before the sleep ends it too.

#[cfg(all(target_os = "linux", not(tickwheel_model)))]
mod imp {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };

    /// A timer of the system on the clock since boot, and a bell that stays rung until a sleep ends.
    #[derive(Debug)]
    pub(crate) struct Alarm {
        timer: OwnedFd,
        bell: OwnedFd,
    }

    impl Alarm {
        pub(crate) fn new() -> io::Result<Self> {
            let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
            Ok(Self { timer, bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)? })
        }

        /// The next sleep ends at this time since boot, or not by itself.
        pub(crate) fn set(&self, at: Option<Duration>) {
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let it_value = at.map_or(zero, |at| {
                let at = at.max(Duration::from_nanos(1)); // zero is never
                Timespec { tv_sec: at.as_secs() as i64, tv_nsec: at.subsec_nanos().into() }
            });
            let spec = Itimerspec { it_interval: zero, it_value };
            let set = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec);
            debug_assert!(set.is_ok(), "it is a timerfd, and the time is one");
        }

        pub(crate) fn ring(&self) {
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes()); // refused only if it has rung 2^64 times
        }

        /// A signal ends it too: the caller looks again.
        pub(crate) fn sleep(&self) {
            let mut ends = [PollFd::new(&self.timer, PollFlags::IN), PollFd::new(&self.bell, PollFlags::IN)];
            let _ = poll(&mut ends, None);
            let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        }
    }
}

/// A bell, as a model has no time.
#[cfg(tickwheel_model)]
mod imp {
    use std::io;
    use std::sync::PoisonError;
    use std::time::Duration;

    #[derive(Debug, Default)]
    pub(crate) struct Alarm {
        is_rung: shuttle::sync::Mutex<bool>,
        rings: shuttle::sync::Condvar,
    }

    impl Alarm {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self::default())
        }

        pub(crate) fn set(&self, _at: Option<Duration>) {}

        pub(crate) fn ring(&self) {
            *self.is_rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.rings.notify_all();
        }

        pub(crate) fn sleep(&self) {
            let mut is_rung = self.is_rung.lock().unwrap_or_else(PoisonError::into_inner);
            while !std::mem::take(&mut *is_rung) {
                is_rung = self.rings.wait(is_rung).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

pub(crate) use imp::Alarm;
