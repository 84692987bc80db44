//! An executor of the program's own: three threads run what is due, and refuse it when their queue is full.
//!
//! What was refused is not lost: the timer gives it back, and the program adds it again. Run it with
//! `cargo run --example own_executor`.

#![expect(clippy::disallowed_types, reason = "a program has the locks of the standard library")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tickwheel::{Clock, Config, Error, Executor, Released, Ticket, Timer, Wait};

const TASKS: usize = 1_000;

/// A queue with a bound. What does not fit is refused.
struct Bounded(SyncSender<Ticket>);

impl Executor for Bounded {
    fn execute(&mut self, released: Released) -> Result<(), Released> {
        let Released { mut tickets, more } = released;
        let taken = tickets.iter().take_while(|ticket| self.0.try_send(**ticket).is_ok()).count();
        tickets.drain(..taken);
        if tickets.is_empty() { Ok(()) } else { Err(Released { tickets, more }) }
    }
}

fn main() -> Result<(), Error> {
    let timer = Timer::new(&Config::default(), Clock::monotonic(0))?;
    let ran = AtomicUsize::new(0);
    let mut refused = 0;
    for number in 0..TASKS {
        timer.add(Duration::from_millis(1), number)?;
    }
    timer.close_when_empty(); // the wait below ends once nothing is pending

    let (send, receive) = sync_channel(64);
    let receive = Mutex::new(receive);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let next = receive.lock().expect("no thread panics while it holds it").recv();
                    let Ok(ticket) = next else { break }; // the queue is empty, and its sender is gone
                    if let Some(_running) = timer.claim(ticket) {
                        ran.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }

        let mut executor = Bounded(send);
        while timer.wait(None) == Wait::Due {
            refused += timer.advance(&mut executor).rejected;
            for rejected in timer.take_rejected() {
                timer.add(Duration::from_millis(1), rejected.task).expect("the timer is open");
            }
        }
    });
    println!("{} tasks ran, each once; {refused} times one was refused and came again", ran.load(Ordering::Relaxed));
    assert_eq!(ran.into_inner(), TASKS);
    Ok(())
}
