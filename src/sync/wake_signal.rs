//! Where the thread that drives a timer sleeps: until an instant of the timer's clock, or until it is woken.
//!
//! A condition variable waits by the system's monotonic clock, which stands still while the machine is suspended. So a timer on
//! [`Clock::boottime_us`] has an [`Alarm`] in its place. `docs/internals/concurrency.md` says why no wake-up is lost.

use super::{Condvar, Mutex, MutexGuard};
use crate::clock::Clock;
use crate::error::Error;

/// One thread at a time may sleep here.
#[derive(Debug)]
pub(crate) enum WakeSignal {
    Condvar(Condvar),
    /// There is none where there is no such clock.
    #[cfg(any(target_os = "linux", tickwheel_model))]
    Alarm(alarm::Alarm),
}

impl WakeSignal {
    /// For the threads of a timer on this clock.
    pub(crate) fn on(clock: &Clock) -> Result<Self, Error> {
        #[cfg(any(target_os = "linux", tickwheel_model))]
        if clock.needs_alarm() {
            let no_alarm = |error| Error::invalid(format!("the system gave no timer on the clock 'boottime': {error}"));
            return alarm::Alarm::new().map(Self::Alarm).map_err(no_alarm);
        }
        Ok(Self::Condvar(Condvar::default()))
    }

    /// Ends the sleep of the thread that sleeps, or the next one. The caller has unlocked the mutex.
    pub(crate) fn wake(&self) {
        match self {
            Self::Condvar(condvar) => condvar.notify_all(),
            #[cfg(any(target_os = "linux", tickwheel_model))]
            Self::Alarm(alarm) => alarm.ring(),
        }
    }

    /// Unlocks, sleeps at most until `clock` reads `until_us` ([`u64::MAX`] for no end), and locks again.
    pub(crate) fn sleep<'a, T>(
        &self,
        (mutex, guard): (&'a Mutex<T>, MutexGuard<'a, T>),
        clock: &Clock,
        until_us: u64,
    ) -> MutexGuard<'a, T> {
        let has_end = until_us < u64::MAX;
        match self {
            Self::Condvar(condvar) => condvar.wait(guard, has_end.then(|| clock.instant_of(until_us)).flatten()),
            #[cfg(any(target_os = "linux", tickwheel_model))]
            Self::Alarm(alarm) => {
                alarm.set(has_end.then(|| clock.since_boot(until_us)).flatten());
                drop(guard);
                alarm.sleep();
                mutex.lock()
            }
        }
    }
}

#[cfg(all(target_os = "linux", not(tickwheel_model)))]
mod alarm {
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
        pub(super) fn new() -> io::Result<Self> {
            let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
            Ok(Self { timer, bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)? })
        }

        /// The next sleep ends at this time since boot, or not by itself.
        pub(super) fn set(&self, at: Option<Duration>) {
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let it_value = at.map_or(zero, |at| {
                let at = at.max(Duration::from_nanos(1)); // zero is never
                Timespec { tv_sec: at.as_secs() as i64, tv_nsec: at.subsec_nanos().into() }
            });
            let spec = Itimerspec { it_interval: zero, it_value };
            let set = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec);
            debug_assert!(set.is_ok(), "it is a timerfd, and the time is one");
        }

        pub(super) fn ring(&self) {
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes()); // refused only if it has rung 2^64 times
        }

        /// A signal ends it too: the caller looks again.
        pub(super) fn sleep(&self) {
            let mut ends = [PollFd::new(&self.timer, PollFlags::IN), PollFd::new(&self.bell, PollFlags::IN)];
            let _ = poll(&mut ends, None);
            let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        }
    }
}

/// A bell, as a model has no time.
#[cfg(tickwheel_model)]
mod alarm {
    use std::io;
    use std::sync::PoisonError;
    use std::time::Duration;

    #[derive(Debug, Default)]
    pub(crate) struct Alarm {
        is_rung: shuttle::sync::Mutex<bool>,
        rings: shuttle::sync::Condvar,
    }

    impl Alarm {
        #[expect(clippy::unnecessary_wraps, reason = "the system's may fail")]
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self::default())
        }

        pub(super) fn set(&self, _at: Option<Duration>) {}

        pub(super) fn ring(&self) {
            *self.is_rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.rings.notify_all();
        }

        pub(super) fn sleep(&self) {
            let mut is_rung = self.is_rung.lock().unwrap_or_else(PoisonError::into_inner);
            while !std::mem::take(&mut *is_rung) {
                is_rung = self.rings.wait(is_rung).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

#[cfg(all(test, target_os = "linux", not(any(tickwheel_model, tickwheel_loom))))]
mod tests;
