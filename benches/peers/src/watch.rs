//! The longest time that a second thread waits for a timer's lock, while the first thread is in one long call.
//!
//! Other work of the machine makes a wait longer. So only the time counts in which the first thread was on a processor, and
//! a wait does not count if the second thread lost its own processor. What noise is left shows in a control run, in which
//! the second thread locks a timer that no other thread uses.

use std::hint::black_box;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::Instant;

use tickwheel::Timer;

use crate::cpu_time::{ThreadClock, interruptions};

/// What the second thread measured.
#[derive(Default)]
pub struct Waits {
    pub longest_us: f64,
    /// How many waits count. If only few do, the threads were not on two processors, and nothing was measured.
    pub count: u64,
}

/// The result of the call, and what was measured during it.
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
