//! What the worker releases, and what it leaves to the reaper.

use std::time::Duration;

use super::*;
use crate::clock::Clock;
use crate::config::Config;
use crate::lead::Wait;
use crate::timer::STEP;
use crate::when::When;

#[test]
fn what_a_step_of_the_worker_leaves_is_the_reapers_which_ends_the_batch__t6() {
    let timer = Timer::new(&Config::default(), Clock::manual(0)).expect("the default settings are good");
    for task in 0..STEP {
        timer.add(When::AtUs(0), task).expect("in range");
    }
    let mut batches = Vec::new();
    let mut executor = |released: Released| batches.push((released.tickets.len(), released.more));
    assert!(timer.lead(u64::MAX.into()));
    assert!(timer.advance_one_step(&mut executor));
    assert!(!timer.lead(0_u64.into()), "it waits at its queue for the rest");
    assert_eq!(timer.wait_for_work(0_u64.into(), u64::MAX), Wait::Due, "whatever the floor");
    timer.advance(&mut executor);
    assert_eq!(batches, [(STEP, true), (0, false)]);
}

#[test]
fn after_a_close_the_worker_releases_nothing__t11() {
    let timer = Timer::new(&Config::default(), Clock::manual(0)).expect("the default settings are good");
    timer.add(When::AtUs(0), ()).expect("in range");
    assert!(timer.lead(0_u64.into()));
    timer.close();
    assert!(!timer.advance_one_step(&mut |_: Released| unreachable!()));
    assert!(!timer.lead(0_u64.into()));
    assert_eq!(timer.drain().len(), 1);
}

#[test]
fn a_worker_does_not_wait_for_the_advance_of_a_reaper_that_took_over__t8() {
    let timer = Arc::new(Timer::new(&Config::default(), Clock::manual(0)).expect("the default settings are good"));
    for task in 0..2 {
        timer.add(When::AtUs(task * 50_000), task).expect("in range");
    }
    assert!(timer.lead(0_u64.into()), "the worker finds the first one due, and stands still");
    timer.clock().set_us(50_000);
    assert_eq!(timer.wait_for_work(0_u64.into(), u64::MAX), Wait::Due, "the reaper takes over");
    let worker = Arc::clone(&timer);
    let progress = timer.advance(&mut |_: Released| {
        let worker = Arc::clone(&worker);
        let (send, receive) = std::sync::mpsc::channel();
        let step =
            move || send.send((worker.advance_one_step(&mut |_: Released| unreachable!()), worker.lead(0_u64.into())));
        std::thread::Builder::new().spawn(step).expect("a thread");
        let (has_given, leads) = receive.recv_timeout(Duration::from_secs(20)).expect("it does not wait");
        assert!(!has_given && !leads, "it waits at its queue for what the reaper releases");
    });
    assert_eq!(progress.released, 2);
}
