//! Where the thread that drives a timer sleeps: until an instant of the timer's clock, or until it is woken.
//!
//! A condition variable waits by the system's monotonic clock, which stands still while the machine is suspended. So a timer on
//! [`Clock::boottime_us`] has an [`Alarm`] in its place. `docs/internals/concurrency.md` says why no wake-up is lost.

use crate::clock::Clock;
use crate::error::Error;
#[cfg(any(target_os = "linux", tickwheel_model))]
use crate::sync::Alarm;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// One thread at a time may sleep here.
#[derive(Debug)]
pub(crate) enum WakeSignal {
    Condvar(Condvar),
    /// There is none where there is no such clock.
    #[cfg(any(target_os = "linux", tickwheel_model))]
    Alarm(Alarm),
}

impl WakeSignal {
    /// For the threads of a timer on this clock.
    pub(crate) fn on(clock: &Clock) -> Result<Self, Error> {
        #[cfg(any(target_os = "linux", tickwheel_model))]
        if clock.needs_alarm() {
            let no_alarm = |error| Error::invalid(format!("the system gave no timer on the clock 'boottime': {error}"));
            return Alarm::new().map(Self::Alarm).map_err(no_alarm);
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

#[cfg(all(test, target_os = "linux", not(any(tickwheel_model, tickwheel_loom))))]
mod tests;
