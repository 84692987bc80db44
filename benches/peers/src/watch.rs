//! How long a second thread has to wait for a timer's lock at the longest, while the first one is in one long call.
//!
//! What else the machine does lengthens a wait. So it counts as far as the first thread was on a processor meanwhile, and
//! not at all if the second one was sent away from its own. What that leaves of the machine shows where the second thread
//! asks a timer that nobody uses.

use std::hint::black_box;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::Instant;

use tickwheel::Timer;

use crate::cpu_time::{ThreadClock, interruptions};

/// What the second thread saw of a timer's lock.
#[derive(Default)]
pub struct Waits {
    pub longest_us: f64,
    /// How many waits count. If few do, the two threads were not on two processors, and nothing was seen.
    pub count: u64,
}

/// What the call gives, and what was seen of the watched timer meanwhile.
pub fn watch<R>(watched: &Timer<NonZeroU64>, call: impl FnOnce() -> R) -> (R, Waits) {
    let (watches, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let clock = ThreadClock::of_this_thread();
    scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut waits = Waits::default();
            while !is_over.load(Ordering::Relaxed) {
                waits.wait(watched, clock);
                watches.store(true, Ordering::Relaxed);
            }
            waits
        });
        while !watches.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        let answer = call();
        is_over.store(true, Ordering::Relaxed);
        (answer, watcher.join().expect("it does not panic"))
    })
}

impl Waits {
    fn wait(&mut self, watched: &Timer<NonZeroU64>, of_the_first: ThreadClock) {
        let (interrupted, used_us, started) = (interruptions(), of_the_first.us(), Instant::now());
        black_box(watched.len());
        let waited_us = started.elapsed().as_secs_f64() * 1e6;
        let used_us = of_the_first.us() - used_us;
        if used_us > 0.0 && interruptions() == interrupted {
            self.longest_us = self.longest_us.max(waited_us.min(used_us));
            self.count += 1;
        }
    }
}
