//! A program that drives the timer from its own thread: it waits until something is due, and runs it there.
//!
//! Other threads add and cancel meanwhile. Run it with `cargo run --example own_thread`.

use std::thread;
use std::time::Duration;

use tickwheel::{Clock, Config, Error, Released, Timer, Wait};

fn main() -> Result<(), Error> {
    let timer = Timer::new(&Config::default(), Clock::monotonic(0))?;

    thread::scope(|scope| {
        // The thread that adds: an earlier task wakes the thread that waits.
        scope.spawn(|| {
            for (delay_ms, name) in [(30, "thirty"), (20, "twenty"), (10, "ten")] {
                timer.add(Duration::from_millis(delay_ms), name).expect("the timer is open");
            }
            let never = timer.add(Duration::from_secs(60), "never").expect("the timer is open");
            assert_eq!(timer.cancel(never), Some("never"));
            timer.close_when_empty(); // no more adds: the other thread ends when the last task has run
        });

        let mut ran = Vec::new();
        while timer.wait(None) == Wait::Due {
            let mut released = Vec::new();
            timer.advance(&mut |batch: Released| released.extend(batch.tickets));
            for ticket in released {
                // A task that was cancelled after its release is not claimed.
                if let Some(claimed) = timer.claim(ticket) {
                    let late_us = timer.clock().now_us() - claimed.due_us;
                    println!("{} ran {late_us} us after it was due", claimed.task);
                    ran.push(claimed.task);
                }
            }
        }
        assert_eq!(ran, ["ten", "twenty", "thirty"]);
    });
    Ok(())
}
