//! Many threads try one operation: one does, the others mark it, and no event is lost (P6).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Event, MEANWHILE, Op, RUNS, Side, assert_empty, purgatory, watch};
use crate::model::{every, join, sample, spawn};

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
            won.fetch_add(u32::from(pool.check(&Side, &op, 0).is_won), Ordering::Relaxed);
        })
    });
    join(tries.collect::<Vec<_>>());
    assert_eq!((op.completed(), won.load(Ordering::Relaxed)), (1, 1), "completed, and told so");
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
                join([spawn(move || drop(pool.check(&Side, &op, 0)))]);
            }
        });
        pool.check(&Side, &op, 0);
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
                join([spawn(move || drop(pool.check(&Side, &op, 0)))]);
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
        MEANWHILE.with(|slot| *slot.borrow_mut() = Some(Box::new(meanwhile)));
        pool.check(&Side, &op, 0);
        MEANWHILE.with(|slot| *slot.borrow_mut() = None);
        assert_eq!((tries.load(Ordering::Relaxed), gave_way.load(Ordering::Relaxed)), (2, 1));
    });
}

/// Operations that, when they are tried, first check a key, each under a key of its own; two threads check those.
fn they_check(keys: [u8; 2], checked: [u8; 2]) {
    let (pool, ready) = (purgatory(), Event::default());
    let ops = checked.map(|other| {
        let (pool, ready) = (Arc::downgrade(&pool), ready.clone());
        Op::new(move |op| {
            if let Some(pool) = pool.upgrade() {
                pool.check_and_complete(&Side, &other);
            }
            if ready.is_there() {
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
            pool.check_and_complete(&Side, &key);
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
