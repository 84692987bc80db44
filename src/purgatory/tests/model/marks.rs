//! Many threads want to try one operation: one tries it, the others mark it, and no event is lost (P6).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Event, ModelHost, ON_YIELD, Op, RUNS, assert_empty, purgatory, run_next_check, watch};
use crate::model::{count, every, join, sample, spawn};
use crate::purgatory::checking::MAX_MARKED_TRIES;
use crate::sync::{Mutex, yield_now};

/// Each thread makes its event happen, and then tries the operation, which waits for all of them.
fn each_thread_tries(threads: usize) {
    let pool = purgatory();
    let events: Vec<_> = (0..threads).map(|_| Event::default()).collect();
    let op = Op::after(&events);
    let completed_by_calls = Arc::new(AtomicU32::new(0));
    let tries = events.into_iter().map(|event| {
        let (pool, op, count) = (Arc::clone(&pool), op.clone(), Arc::clone(&completed_by_calls));
        spawn(move || {
            event.happens();
            count.fetch_add(u32::from(pool.check_one(&ModelHost, &op, 0).is_completed_by_call), Ordering::Relaxed);
        })
    });
    join(tries.collect::<Vec<_>>());
    // A check that met a last try may have scheduled a recheck.
    let is_recheck_scheduled = run_next_check(&pool).is_some();
    let completions = completed_by_calls.load(Ordering::Relaxed);
    assert!(
        op.completed() == 1 && (completions == 1 || completions == 0 && is_recheck_scheduled),
        "{completions} calls returned that they completed it"
    );
    while run_next_check(&pool).is_some() {}
}

#[test]
fn two_threads_that_try_at_once_lose_no_event__p6() {
    every(|| each_thread_tries(2));
}

#[test]
fn several_threads_that_try_at_once_lose_no_event__p6() {
    sample(RUNS, || each_thread_tries(3));
    sample(RUNS / 4, || each_thread_tries(5));
}

#[test]
fn a_mark_is_left_without_waiting_and_causes_one_try_more__p6() {
    every(|| {
        let (pool, tries) = (purgatory(), Arc::new(AtomicU32::new(0)));
        let (pool_there, tries_there) = (Arc::clone(&pool), Arc::clone(&tries));
        let op = Op::new(move |op| {
            // During the first try another thread checks the operation, and this one waits until that check returns.
            if tries_there.fetch_add(1, Ordering::Relaxed) == 0 {
                let (pool, op) = (Arc::clone(&pool_there), op.clone());
                join([spawn(move || drop(pool.check_one(&ModelHost, &op, 0)))]);
            }
        });
        pool.check_one(&ModelHost, &op, 0);
        assert_eq!(tries.load(Ordering::Relaxed), 2);
    });
}

/// Otherwise two threads that mark each other's operation in each try would never end.
#[test]
fn all_marks_during_one_yield_cause_one_try_more__p6() {
    every(|| {
        let (pool, tries, yielded) = (purgatory(), Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let mark = {
            let pool = Arc::clone(&pool);
            move |op: &Op| {
                let (pool, op) = (Arc::clone(&pool), op.clone());
                join([spawn(move || drop(pool.check_one(&ModelHost, &op, 0)))]);
            }
        };
        let (tries_there, mark_there) = (Arc::clone(&tries), mark.clone());
        let op = Op::new(move |op| {
            if tries_there.fetch_add(1, Ordering::Relaxed) == 0 {
                mark_there(op);
            }
        });
        let (marked, yielded_there) = (op.clone(), Arc::clone(&yielded));
        let meanwhile = move || {
            assert_eq!(yielded_there.fetch_add(1, Ordering::Relaxed), 0, "marked again, for ever");
            mark(&marked);
            mark(&marked);
        };
        ON_YIELD.with(|slot| *slot.borrow_mut() = Some(Box::new(meanwhile)));
        pool.check_one(&ModelHost, &op, 0);
        ON_YIELD.with(|slot| *slot.borrow_mut() = None);
        assert_eq!((tries.load(Ordering::Relaxed), yielded.load(Ordering::Relaxed)), (2, 1));
    });
}

/// Marks by other threads do not hold a thread for ever: after some rounds it takes no more, and returns.
#[test]
fn a_check_that_is_marked_in_every_round_returns__p6() {
    every(|| {
        let (pool, tries) = (purgatory(), Arc::new(AtomicU32::new(0)));
        let tries_there = Arc::clone(&tries);
        let (there, is_inside) = (Arc::clone(&pool), Arc::new(AtomicU32::new(0)));
        let op = Op::new(move |op| {
            assert!(tries_there.fetch_add(1, Ordering::Relaxed) < 10, "marked again, for ever");
            // In each try of this thread another thread checks the operation.
            if is_inside.fetch_add(1, Ordering::Relaxed) == 0 {
                let (pool, op) = (Arc::clone(&there), op.clone());
                join([spawn(move || drop(pool.check_one(&ModelHost, &op, 0)))]);
                is_inside.store(0, Ordering::Relaxed);
            }
        });
        pool.check_one(&ModelHost, &op, 0);
        assert_eq!(tries.load(Ordering::Relaxed), MAX_MARKED_TRIES + 1);
        assert_eq!(pool.environment.timer_checks.lock().drain(..).count(), 1, "the check that came in the last try");
    });
}

/// Each of three threads makes an event happen and checks the key, twice or more. A fourth thread is the timer's.
fn hot_key(checks: usize) {
    let (pool, events) = (purgatory(), (0..3 * checks).map(|_| Event::default()).collect::<Vec<_>>());
    let op = Op::after(&events);
    watch(&pool, &op, &[1]);
    let check = |events: &[Event]| {
        let (pool, events) = (Arc::clone(&pool), events.to_vec());
        spawn(move || {
            for event in events {
                event.happens();
                pool.check_and_complete(&ModelHost, &1);
            }
        })
    };
    let timer = {
        let pool = Arc::clone(&pool);
        spawn(move || _ = run_next_check(&pool))
    };
    join(events.chunks(checks).map(check).chain([timer]).collect::<Vec<_>>());
    while run_next_check(&pool).is_some() {}
    assert_eq!(op.completed(), 1, "an event was lost");
    assert_empty(&pool);
}

#[test]
fn no_event_of_a_hot_key_is_lost__p6() {
    sample(RUNS, || hot_key(2));
    sample(RUNS / 4, || hot_key(4));
}

/// An event happens in another thread while one is in its last try and has looked already: it is seen in each order.
#[test]
fn an_event_that_meets_a_last_try_is_not_lost__p6() {
    let seen = Arc::new([const { AtomicU32::new(0) }; 2]);
    let both = Arc::clone(&seen);
    sample(RUNS, move || {
        let (pool, event, tries) = (purgatory(), Event::default(), Arc::new(AtomicU32::new(0)));
        let (looks, there) = (event.clone(), Arc::downgrade(&pool));
        let late = Arc::new(Mutex::new(None));
        let comes_late = Arc::clone(&late);
        let op = Op::new(move |op| {
            let is_there = looks.has_happened();
            let round = tries.fetch_add(1, Ordering::Relaxed);
            if let Some(pool) = there.upgrade().filter(|_| round <= MAX_MARKED_TRIES) {
                let (op, event) = (op.clone(), looks.clone());
                let check = spawn(move || {
                    if round == MAX_MARKED_TRIES {
                        event.happens();
                    }
                    pool.check_one(&ModelHost, &op, 0);
                });
                // A mark in each round but the last. In the last round the event happens.
                if round < MAX_MARKED_TRIES {
                    join([check]);
                } else {
                    *comes_late.lock() = Some(check);
                    (0..4).for_each(|_| yield_now());
                }
            }
            if is_there {
                op.force_complete();
            }
        });
        pool.check_one(&ModelHost, &op, 0);
        let late = late.lock().take();
        join(late);
        count(&both[usize::from(pool.environment.timer_checks.lock().is_empty())]);
        while run_next_check(&pool).is_some() {}
        assert_eq!(op.completed(), 1, "an event was lost");
    });
    assert!(seen.iter().all(|way| way.load(Ordering::Relaxed) > 0), "{seen:?}");
}

/// Two operations, each under a key of its own, whose tries first check a key. Two threads check the operations' keys.
fn operations_that_check(keys: [u8; 2], checked: [u8; 2]) {
    let (pool, ready) = (purgatory(), Event::default());
    let ops = checked.map(|other| {
        let (pool, ready) = (Arc::downgrade(&pool), ready.clone());
        Op::new(move |op| {
            if let Some(pool) = pool.upgrade() {
                pool.check_and_complete(&ModelHost, &other);
            }
            if ready.has_happened() {
                op.force_complete();
            }
        })
    });
    for (op, key) in ops.iter().zip(keys) {
        assert_eq!(watch(&pool, op, &[key]), Some(false));
    }
    join(keys.map(|key| {
        let (pool, ready) = (Arc::clone(&pool), ready.clone());
        spawn(move || {
            ready.happens();
            pool.check_and_complete(&ModelHost, &key);
        })
    }));
    assert_eq!(ops.map(|op| op.completed()), [1, 1]);
    assert_empty(&pool);
}

#[test]
fn the_checks_of_two_operations_that_check_each_other_end__p6() {
    sample(RUNS, || operations_that_check([1, 2], [2, 1]));
}

#[test]
fn the_checks_of_operations_that_check_their_own_key_end__p6() {
    sample(RUNS, || operations_that_check([1, 1], [1, 1]));
}
