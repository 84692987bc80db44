//! What the worker releases, and what it leaves to the reaper.

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
    let mut executor = |released: Released| batches.push((released.handles.len(), released.more));
    assert!(timer.lead(u64::MAX));
    assert!(timer.advance_one_step(&mut executor));
    assert!(!timer.lead(0), "it waits at its queue for the rest");
    assert_eq!(timer.wait_for_work(0, u64::MAX), Wait::Due, "whatever the floor");
    timer.advance(&mut executor);
    assert_eq!(batches, [(STEP, true), (0, false)]);
}

#[test]
fn after_a_close_the_worker_releases_nothing__t11() {
    let timer = Timer::new(&Config::default(), Clock::manual(0)).expect("the default settings are good");
    timer.add(When::AtUs(0), ()).expect("in range");
    assert!(timer.lead(0));
    timer.close();
    assert!(!timer.advance_one_step(&mut |_: Released| unreachable!()));
    assert!(!timer.lead(0));
    assert_eq!(timer.drain().len(), 1);
}
