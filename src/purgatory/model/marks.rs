//! Many threads try one operation: one does, the others mark it, and no event is lost (P6).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Event, Op, Side, assert_empty, purgatory, watch};
use crate::model::{RUNS, every, join, sample, spawn};
use crate::sync::JoinHandle;

/// Each thread makes its event happen, and then tries the operation, which waits for all of them.
fn everyone_tries(threads: usize) {
    let pool = purgatory();
    let events: Vec<_> = (0..threads).map(|_| Event::default()).collect();
    let op = Op::after(&events.iter().collect::<Vec<_>>());
    let won = Arc::new(AtomicU32::new(0));
    let tries = events.into_iter().map(|event| {
        let (pool, op, won) = (Arc::clone(&pool), op.clone(), Arc::clone(&won));
        spawn(move || {
            event.happens();
            won.fetch_add(u32::from(pool.check(&Side, &op, 0).is_won), Ordering::Relaxed);
        })
    });
    join(tries.collect::<Vec<_>>());
    assert_eq!((op.completed(), won.load(Ordering::Relaxed)), (1, 1), "(completed, told that they did)");
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

/// A thread that finds it busy does not wait: it is done before the holder is.
#[test]
fn a_mark_is_left_without_waiting__p6() {
    let waited = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&waited);
    every(move || {
        let (pool, waited) = (purgatory(), Arc::clone(&waited));
        let marked = Arc::new(std::sync::OnceLock::<JoinHandle<()>>::new());
        let inner = Arc::clone(&marked);
        let (pool_there, op_there) = (Arc::clone(&pool), Arc::new(std::sync::OnceLock::<Op>::new()));
        let slot = Arc::clone(&op_there);
        let tries = Arc::new(AtomicU32::new(0));
        let tries_there = Arc::clone(&tries);
        let op = Op::new(move |_| {
            // Inside its first try: another thread checks it, and is waited for.
            if tries_there.fetch_add(1, Ordering::Relaxed) == 0 {
                let (pool, op) = (Arc::clone(&pool_there), slot.get().expect("it is known").clone());
                join([spawn(move || drop(pool.check(&Side, &op, 0)))]);
            }
            let _ = &inner;
        });
        op_there.set(op.clone()).unwrap_or_else(|_| unreachable!());
        pool.check(&Side, &op, 0);
        assert_eq!(tries.load(Ordering::Relaxed), 2, "it was marked, and tried once more");
        waited.fetch_add(1, Ordering::Relaxed);
    });
    assert!(seen.load(Ordering::Relaxed) > 0);
}
