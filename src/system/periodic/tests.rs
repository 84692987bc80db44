//! A pause between the claim of a call and the call.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::*;
use crate::clock::Clock;
use crate::config::Config;
use crate::executor::Released;

#[test]
fn a_call_that_was_claimed_before_a_pause_is_not_made_after_it__t20() {
    let timer = Arc::new(Timer::new(&Config::default(), Clock::manual(0)).expect("the default settings are good"));
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let count = Box::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let task = start(&timer, &Every::new(Duration::from_millis(10)), count).expect("in range");
    timer.clock().set_us(10_000);
    let mut tickets = Vec::new();
    timer.advance(&mut |released: Released| tickets.extend(released.tickets));
    let claimed = timer.claim(tickets[0]).expect("it is due");
    assert!(task.pause());
    timer.clock().set_us(15_000);
    assert!(task.resume());
    (claimed.task)();
    assert_eq!((calls.load(Ordering::SeqCst), timer.len()), (0, 1), "the call at 20 comes in its place");
    assert!(task.cancel() && timer.is_empty());
}
