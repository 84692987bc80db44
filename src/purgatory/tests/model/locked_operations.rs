//! Another thread holds the operation's own lock: the timer checks the operation again, and no event is lost (P6).

use std::sync::Arc;

use super::{Event, ModelHost, Op, Pool, RUNS, assert_empty, purgatory, run_next_check, watch};
use crate::model::{every, join, sample, spawn};
use crate::sync::{JoinHandle, yield_now};

/// Takes the lock, if it is free, and holds it for a while.
fn hold_own_lock(op: &Op) -> JoinHandle<()> {
    let op = op.clone();
    spawn(move || {
        if op.enter() {
            yield_now();
            op.leave();
        }
    })
}

/// The timer's executor, for this number of checks.
fn executor(pool: &Pool, checks: usize) -> JoinHandle<()> {
    let pool = Arc::clone(pool);
    spawn(move || {
        for _ in 0..checks {
            run_next_check(&pool);
        }
    })
}

fn check(pool: &Pool, event: Event) -> JoinHandle<()> {
    let pool = Arc::clone(pool);
    spawn(move || {
        event.happens();
        pool.check_and_complete(&ModelHost, &1);
    })
}

fn lock_held_by_another_thread(checks: usize) {
    let (pool, events) = (purgatory(), (0..checks).map(|_| Event::default()).collect::<Vec<_>>());
    let op = Op::locked_after(&events);
    watch(&pool, &op, &[1]);
    let others = [hold_own_lock(&op), executor(&pool, 2)];
    join(events.into_iter().map(|event| check(&pool, event)).chain(others).collect::<Vec<_>>());
    // The lock is free, and no event happens any more. The rechecks are due.
    while run_next_check(&pool).is_some() {}
    assert_eq!(op.completed(), 1);
    assert_empty(&pool);
}

#[test]
fn an_event_while_another_thread_holds_the_lock_is_not_lost__p6() {
    sample(RUNS, || lock_held_by_another_thread(1));
}

#[test]
fn an_event_while_a_recheck_is_scheduled_is_not_lost__p6() {
    sample(RUNS, || lock_held_by_another_thread(2));
}

#[test]
fn a_recheck_that_was_lost_with_its_timer_stops_no_recheck_elsewhere__p6() {
    every(|| {
        let (pool, other, event) = (purgatory(), purgatory(), Event::default());
        let op = Op::locked_after(&[event.clone()]);
        let held = op.clone();
        // From here on another thread holds the lock.
        join([spawn(move || assert!(held.enter()))]);
        watch(&pool, &op, &[1]);
        assert_eq!(
            pool.environment.timer_checks.lock().drain(..).count(),
            1,
            "a recheck is scheduled; now the timer is shut down"
        );
        assert!(op.cancel());
        watch(&other, &op, &[1]);
        event.happens();
        other.check_and_complete(&ModelHost, &1);
        op.0.own_lock.iter().for_each(|own_lock| *own_lock.0.lock() = None);
        while run_next_check(&other).is_some() {}
        assert_eq!(op.completed(), 1);
        assert_empty(&other);
    });
}

#[test]
fn a_recheck_that_was_dropped_does_not_replace_the_next__p6() {
    every(|| {
        let (pool, event) = (purgatory(), Event::default());
        let op = Op::locked_after(&[event.clone()]);
        let held = op.clone();
        join([spawn(move || assert!(held.enter()))]);
        watch(&pool, &op, &[1]);
        assert_eq!(
            pool.environment.timer_checks.lock().drain(..).count(),
            1,
            "a recheck is scheduled, and is cancelled on the timer"
        );
        event.happens();
        pool.check_and_complete(&ModelHost, &1);
        op.0.own_lock.iter().for_each(|own_lock| *own_lock.0.lock() = None);
        while run_next_check(&pool).is_some() {}
        assert_eq!(op.completed(), 1);
        assert_empty(&pool);
    });
}
