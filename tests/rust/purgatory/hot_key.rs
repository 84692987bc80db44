//! A hot key: the marks of other threads do not keep a thread in its tries for ever (P6).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{Op, PATIENCE, Wait, join, purgatory, spawn, until, until_empty, wait_with, watch, within};

thread_local! { static TRIES: Cell<usize> = const { Cell::new(0) }; }

/// Eight tries that take marks, and one that takes none.
const MOST_TRIES: usize = 9;

#[test]
fn a_check_of_a_hot_key_makes_few_tries_while_other_threads_check_often__p6() {
    within(PATIENCE, || {
        let (timer, purgatory) = purgatory();
        let most = Arc::new(AtomicUsize::new(0));
        let on_try = move |_: &Op| TRIES.set(TRIES.get() + 1);
        let op = wait_with(Wait { on_try: Some(Box::new(on_try)), ..Wait::default() });
        watch(&purgatory, &op, [1]);
        let end = Instant::now() + Duration::from_millis(300);
        let check = || {
            let (purgatory, most) = (Arc::clone(&purgatory), Arc::clone(&most));
            spawn(move || {
                while Instant::now() < end {
                    TRIES.set(0);
                    purgatory.check_and_complete(&1);
                    most.fetch_max(TRIES.get(), Ordering::Relaxed);
                }
            })
        };
        join((0..8).map(|_| check()).collect::<Vec<_>>());
        let most = most.load(Ordering::Relaxed);
        assert!(most <= MOST_TRIES, "{most} tries in one check");
        op.ready();
        purgatory.check_and_complete(&1);
        until(|| op.ended() == (1, 0));
        until_empty(&timer, &purgatory);
    });
}

/// In every try another thread checks the operation, from start to end. It never waits until the try returns.
#[test]
fn a_check_that_is_marked_in_every_try_returns_and_loses_no_event__p6() {
    within(PATIENCE, || {
        let (timer, purgatory) = purgatory();
        let (is_hot, there) = (Arc::new(AtomicBool::new(false)), Arc::downgrade(&purgatory));
        let hot = Arc::clone(&is_hot);
        let check_elsewhere = move |_: &Op| {
            TRIES.set(TRIES.get() + 1);
            assert!(TRIES.get() < 100, "held for good");
            if hot.load(Ordering::Acquire) {
                let there = there.upgrade().unwrap();
                join([spawn(move || there.check_and_complete(&1))]);
            }
        };
        // The try looks first, so only a further try sees what happens during it.
        let op = wait_with(Wait { after_try: Some(Box::new(check_elsewhere)), ..Wait::default() });
        watch(&purgatory, &op, [1]);
        is_hot.store(true, Ordering::Release);
        TRIES.set(0);
        purgatory.check_and_complete(&1);
        let tries = TRIES.get();
        op.ready();
        purgatory.check_and_complete(&1);
        is_hot.store(false, Ordering::Release);
        assert_eq!(tries, MOST_TRIES);
        until(|| op.ended() == (1, 0));
        until_empty(&timer, &purgatory);
    });
}

/// In every try the operation is taken out and watched under the next key. Each such call asks for a further try.
#[test]
fn an_operation_that_is_watched_again_in_every_try_keeps_no_thread__p6() {
    within(PATIENCE, || {
        let (timer, purgatory) = purgatory();
        let (is_on, there) = (Arc::new(AtomicBool::new(false)), Arc::downgrade(&purgatory));
        let on = Arc::clone(&is_on);
        let moves_on = move |op: &Op| {
            TRIES.set(TRIES.get() + 1);
            assert!(TRIES.get() < 100, "held for good");
            if on.load(Ordering::Acquire) && op.cancel() {
                let _ = there.upgrade().unwrap().try_complete_else_watch(op, [1]);
            }
        };
        let op = wait_with(Wait { on_try: Some(Box::new(moves_on)), ..Wait::default() });
        watch(&purgatory, &op, [1]);
        is_on.store(true, Ordering::Release);
        TRIES.set(0);
        purgatory.check_and_complete(&1);
        assert!(TRIES.get() <= MOST_TRIES, "{} tries in one check", TRIES.get());
        is_on.store(false, Ordering::Release);
        op.ready();
        until(|| op.ended() == (1, 0) || purgatory.check_and_complete(&1) == 1);
        until_empty(&timer, &purgatory);
    });
}
