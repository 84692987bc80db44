//! The processor time of one thread, and whether it lost its processor.

use std::mem::MaybeUninit;

/// The clock of one thread. Other threads may read it too, while that thread runs.
#[derive(Clone, Copy)]
pub struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// The clock of the thread that reads it.
    pub const OWN: Self = Self(libc::CLOCK_THREAD_CPUTIME_ID);

    pub fn of_this_thread() -> Self {
        let mut clock = 0;
        // SAFETY: this thread runs, and the pointer is valid during the call.
        let failed = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        assert_eq!(failed, 0, "every thread has a clock");
        Self(clock)
    }

    /// In microseconds.
    pub fn us(self) -> f64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is valid during the call.
        let failed = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        assert_eq!(failed, 0, "its thread has ended");
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
    }
}

/// How often this thread lost its processor to another one while it had work.
pub fn interruptions() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the pointer is valid during the call.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    assert_eq!(failed, 0, "Linux has this since 2.6.26");
    // SAFETY: the call has filled the struct.
    unsafe { usage.assume_init() }.ru_nivcsw
}
