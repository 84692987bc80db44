//! A cancel or a move meets the advance and the claim: exactly one of them gets the task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Outcomes, RUNS, advance, count, every, join, look_through, pass_time, sample, spawn, system, timer};
use crate::timer::Timer;
use crate::wheel::Ticket;
use crate::when::When;

/// Claims, and counts the tasks that it got.
fn claim<T>(timer: &Timer<T>, ticket: Ticket, claimed: &AtomicU32) {
    if let Some(_running) = timer.claim(ticket) {
        count(claimed);
    }
}

#[test]
fn a_released_task_is_claimed_or_cancelled__t9() {
    let (by_claim, by_cancel) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let seen = (Arc::clone(&by_claim), Arc::clone(&by_cancel));
    every(move || {
        let timer = timer();
        let handle = timer.add(When::AtUs(0), "task").unwrap();
        let [ticket] = advance(&timer)[..] else { panic!("it was due") };
        let claimed = Arc::new(AtomicU32::new(0));
        let worker = {
            let (timer, claimed) = (Arc::clone(&timer), Arc::clone(&claimed));
            spawn(move || claim(&timer, ticket, &claimed))
        };
        let was_cancelled = timer.cancel(handle).is_some();
        join([worker]);
        let was_claimed = claimed.load(Ordering::Relaxed) == 1;
        assert_ne!(was_cancelled, was_claimed);
        count(if was_claimed { &by_claim } else { &by_cancel });
    });
    assert!(seen.0.load(Ordering::Relaxed) > 0, "the claim never won");
    assert!(seen.1.load(Ordering::Relaxed) > 0, "the cancel never won");
}

#[test]
fn a_task_that_is_moved_while_it_is_claimed_runs_once_per_add__t7() {
    let (moves, adds) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let seen = (Arc::clone(&moves), Arc::clone(&adds));
    every(move || {
        let timer = timer();
        let handle = timer.add(When::AtUs(0), "task").unwrap();
        let [ticket] = advance(&timer)[..] else { panic!("it was due") };
        let claimed = Arc::new(AtomicU32::new(0));
        let worker = {
            let (timer, claimed) = (Arc::clone(&timer), Arc::clone(&claimed));
            spawn(move || claim(&timer, ticket, &claimed))
        };
        let added = if timer.reschedule(handle, When::AtUs(0)).unwrap() {
            count(&moves);
            1
        } else {
            count(&adds);
            timer.add(When::AtUs(0), "task").unwrap();
            2
        };
        join([worker]);
        for ticket in advance(&timer) {
            claim(&timer, ticket, &claimed);
        }
        assert_eq!(claimed.load(Ordering::Relaxed), added);
    });
    assert!(seen.0.load(Ordering::Relaxed) > 0, "the move never won");
    assert!(seen.1.load(Ordering::Relaxed) > 0, "the claim never won");
}

#[test]
fn a_cancel_meets_the_advance_and_the_claim_anywhere_on_the_way__t9() {
    let (ran, cancelled) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let seen = (Arc::clone(&ran), Arc::clone(&cancelled));
    sample(RUNS, move || {
        let (outcomes, timer) = (Outcomes::of(3), system());
        let delays = [0, 2, 25].map(Duration::from_millis);
        let tasks: Vec<_> = (0..3).map(|task| outcomes.add(&timer, task, delays[task]).unwrap()).collect();
        let canceller = {
            let outcomes = outcomes.clone();
            spawn(move || tasks.iter().enumerate().for_each(|(task, added)| outcomes.cancel(task, added)))
        };
        let time = {
            let timer = Arc::clone(&timer);
            // From the front, from level 1, and from level 2 by way of level 1.
            spawn(move || [2, 20, 25].iter().for_each(|now_ms| pass_time(&timer.timer, now_ms * 1000)))
        };
        join([canceller, time]);
        look_through(timer.shutdown(None));
        (0..3).for_each(|task| count(if outcomes.ran(task) { &ran } else { &cancelled }));
        outcomes.check();
    });
    assert!(seen.0.load(Ordering::Relaxed) > 0, "none ran");
    assert!(seen.1.load(Ordering::Relaxed) > 0, "none was cancelled");
}
