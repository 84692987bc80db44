//! A hot key: a thread that tries an operation is not held by the marks of the others (P6).

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::{Op, PATIENCE, Wait, assert_empty, join, purgatory, spawn, until, wait_with, watch, within};

thread_local! { static TRIES: Cell<usize> = const { Cell::new(0) }; }

/// One try, up to 8 more for marks, and one that takes no more marks.
const MOST_TRIES: usize = 10;

#[test]
fn a_check_of_a_hot_key_makes_few_tries_however_often_others_check__p6() {
    within(PATIENCE, || {
        let (timer, purgatory) = purgatory();
        let most = Arc::new(AtomicUsize::new(0));
        let on_try = move |_: &Op| TRIES.set(TRIES.get() + 1);
        let op = wait_with(Wait { on_try: Some(Box::new(on_try)), ..Wait::default() });
        watch(&purgatory, &op, [1]);
        let end = Instant::now() + Duration::from_secs(1);
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
        until(|| timer.len() == 0);
        assert_empty(&timer, &purgatory);
    });
}

/// Marked in every try, until one is the last; another thread comes during that, and its event is seen all the same.
#[test]
fn an_event_during_a_long_last_try_is_seen__p6() {
    within(PATIENCE, || {
        let (timer, purgatory) = purgatory();
        let (tell, told) = mpsc::channel();
        let (is_hot, tell) = (Arc::new(AtomicBool::new(false)), std::sync::Mutex::new(tell));
        let (hot, there) = (Arc::clone(&is_hot), Arc::downgrade(&purgatory));
        // The check of another thread, from start to end, in every try: it never waits for this try to return.
        let on_try = move |op: &Op| {
            if hot.load(Ordering::Acquire) && TRIES.get() == 0 {
                let there = there.upgrade().unwrap();
                let number = op.tries.load(Ordering::Relaxed);
                join([spawn(move || there.check_and_complete(&1))]);
                tell.lock().unwrap().send(number).unwrap();
            }
        };
        // It looks first.
        let op = wait_with(Wait { after_try: Some(Box::new(on_try)), ..Wait::default() });
        watch(&purgatory, &op, [1]);
        is_hot.store(true, Ordering::Release);
        let checking = {
            let purgatory = Arc::clone(&purgatory);
            spawn(move || purgatory.check_and_complete(&1))
        };
        let marks = (0..MOST_TRIES).map(|_| told.recv_timeout(PATIENCE).is_ok()).filter(|is_told| *is_told).count();
        is_hot.store(false, Ordering::Release);
        op.ready();
        let other = Arc::clone(&purgatory);
        join([spawn(move || other.check_and_complete(&1))]);
        join([checking]);
        assert!(marks > 5);
        until(|| op.ended() == (1, 0));
        until(|| timer.len() == 0);
        assert_empty(&timer, &purgatory);
    });
}
