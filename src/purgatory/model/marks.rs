//! Many threads try one operation: one does, the others mark it, and no event is lost (P6).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::checking::MAX_MARKED_TRIES;
use super::{Event, ModelHost, ON_YIELD, Op, RUNS, assert_empty, purgatory, run_next_check, watch};
use crate::model::{count, every, join, sample, spawn};
use crate::sync::{Mutex, yield_now};

/// Each thread makes its event happen, and then tries the operation, which waits for all of them.
fn everyone_tries(threads: usize) {
    let pool = purgatory();
    let events: Vec<_> = (0..threads).map(|_| Event::default()).collect();
    let op = Op::after(&events);
    let won = Arc::new(AtomicU32::new(0));
    let tries = events.into_iter().map(|event| {
        let (pool, op, won) = (Arc::clone(&pool), op.clone(), Arc::clone(&won));
        spawn(move || {
            event.happens();
            won.fetch_add(u32::from(pool.check_one(&ModelHost, &op, 0).is_completed_by_call), Ordering::Relaxed);
        })
    });
    join(tries.collect::<Vec<_>>());
    // A check that met a last try may have been put off.
    let is_recheck_scheduled = run_next_check(&pool).is_some();
    let told = won.load(Ordering::Relaxed);
    assert!(op.completed() == 1 && (told == 1 || told == 0 && is_recheck_scheduled), "completed, and told so: {told}");
    while run_next_check(&pool).is_some() {}
}

#[test]
fn two_who_try_at_once_lose_no_event__p6() {
    every(|| everyone_tries(2));
}

#[test]
fn several_who_try_at_once_lose_no_event__p6() {
    sample(RUNS, || everyone_tries(3));
    sample(RUNS / 4, || everyone_tries(5));
}

#[test]
fn a_mark_is_left_without_waiting_and_makes_one_try_more__p6() {
    every(|| {
        let (pool, tries) = (purgatory(), Arc::new(AtomicU32::new(0)));
        let (pool_there, tries_there) = (Arc::clone(&pool), Arc::clone(&tries));
        let op = Op::new(move |op| {
            // During the first try another thread checks it, and this one waits for that to return.
            if tries_there.fetch_add(1, Ordering::Relaxed) == 0 {
                let (pool, op) = (Arc::clone(&pool_there), op.clone());
                join([spawn(move || drop(pool.check_one(&ModelHost, &op, 0)))]);
            }
        });
        pool.check_one(&ModelHost, &op, 0);
        assert_eq!(tries.load(Ordering::Relaxed), 2);
    });
}

/// Otherwise two that mark each other in every try would never end.
#[test]
fn all_marks_that_come_while_it_gives_way_make_one_try_more__p6() {
    every(|| {
        let (pool, tries, gave_way) = (purgatory(), Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
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
        let (marked, gave_way_there) = (op.clone(), Arc::clone(&gave_way));
        let meanwhile = move || {
            assert_eq!(gave_way_there.fetch_add(1, Ordering::Relaxed), 0, "marked again, for ever");
            mark(&marked);
            mark(&marked);
        };
        ON_YIELD.with(|slot| *slot.borrow_mut() = Some(Box::new(meanwhile)));
        pool.check_one(&ModelHost, &op, 0);
        ON_YIELD.with(|slot| *slot.borrow_mut() = None);
        assert_eq!((tries.load(Ordering::Relaxed), gave_way.load(Ordering::Relaxed)), (2, 1));
    });
}

/// The marks of others do not hold a thread: after some rounds it takes no more, and leaves.
#[test]
fn a_check_that_is_marked_in_every_round_returns__p6() {
    every(|| {
        let (pool, tries) = (purgatory(), Arc::new(AtomicU32::new(0)));
        let tries_there = Arc::clone(&tries);
        let (there, is_inside) = (Arc::clone(&pool), Arc::new(AtomicU32::new(0)));
        let op = Op::new(move |op| {
            assert!(tries_there.fetch_add(1, Ordering::Relaxed) < 10, "marked again, for ever");
            // Another thread checks it in every try; that one is not tried by this closure's thread.
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

/// Each of three threads makes an event happen, twice, and checks after it, while a fourth is what the timer does.
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

/// A thread is in its last try and has looked already, when an event happens in another: whatever the order, it is seen.
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
                // A mark in each round but the last; in that, another thread comes.
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

/// Operations that, when they are tried, first check a key, each under a key of its own; two threads check those.
fn they_check(keys: [u8; 2], checked: [u8; 2]) {
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
fn two_operations_that_check_each_other_come_to_an_end__p6() {
    sample(RUNS, || they_check([1, 2], [2, 1]));
}

#[test]
fn operations_that_check_their_own_key_come_to_an_end__p6() {
    sample(RUNS, || they_check([1, 1], [1, 1]));
}
