//! The assertions of Kafka's own test of its purgatory (`DelayedOperationTest`), and which calls are refused.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tickwheel::{Config, Error, Operation};

use super::{HOUR, PATIENCE, Wait, assert_empty, is_same, on_timer, purgatory, wait, wait_with, watch};

#[test]
fn an_unknown_key_completes_nothing__p3() {
    let (_timer, purgatory) = purgatory();
    assert_eq!(purgatory.check_and_complete(&1), 0);
    assert!(purgatory.cancel_for_key(&1).is_empty());
}

#[test]
fn a_watched_operation_is_completed_once_by_a_check_of_its_key__p3() {
    let (timer, purgatory) = purgatory();
    let (first, second) = (wait(), wait());
    watch(&purgatory, &first, [1]);
    watch(&purgatory, &second, [2]);
    assert_eq!(purgatory.check_and_complete(&1), 0, "watched is not complete");
    assert!(!first.is_completed());
    first.ready();
    assert_eq!(purgatory.check_and_complete(&1), 1);
    assert_eq!(purgatory.check_and_complete(&1), 0);
    second.ready();
    assert_eq!(purgatory.check_and_complete(&2), 1);
    assert_eq!(purgatory.check_and_complete(&2), 0);
    assert_eq!((first.ended(), second.ended()), ((1, 0), (1, 0)));
    assert_empty(&timer, &purgatory);
}

#[test]
fn an_operation_that_is_complete_at_once_is_watched_nowhere__p2() {
    let (timer, purgatory) = purgatory();
    let op = wait();
    op.ready();
    assert_eq!(purgatory.try_complete_else_watch(&op, [1, 2]), Ok(true));
    assert_eq!(op.tries.load(Ordering::Relaxed), 1);
    assert_empty(&timer, &purgatory);
}

#[test]
fn an_operation_that_becomes_ready_during_the_first_try_completes_in_the_second__p2() {
    let (timer, purgatory) = purgatory();
    let on_try = |op: &Operation<Wait>| {
        if op.tries.load(Ordering::Relaxed) == 2 {
            op.ready();
        }
    };
    let op = wait_with(Wait { on_try: Some(Box::new(on_try)), ..Wait::default() });
    assert_eq!(purgatory.try_complete_else_watch(&op, [1, 2]), Ok(true));
    assert_eq!((op.tries.load(Ordering::Relaxed), op.ended()), (2, (1, 0)));
    assert_empty(&timer, &purgatory);
}

#[test]
fn a_deadline_of_20_ms_expires_no_sooner_and_a_long_one_stays__p1() {
    let (timer, purgatory) = purgatory();
    let (sender, receiver) = mpsc::channel();
    let on_expiration = move |()| sender.send(Instant::now()).unwrap();
    let short = Operation::new(
        Duration::from_millis(20),
        Wait { on_expiration: Some(Box::new(on_expiration)), ..Wait::default() },
    );
    let long = wait();
    let began = Instant::now();
    watch(&purgatory, &short, [1]);
    watch(&purgatory, &long, [2]);
    let expired = receiver.recv_timeout(PATIENCE).unwrap();
    assert!(expired - began >= Duration::from_millis(20));
    assert!(short.is_completed() && !long.is_completed());
    assert_eq!((short.ended(), long.ended()), ((1, 1), (0, 0)));
    assert!(!short.force_complete(), "it is complete");
    assert_eq!((purgatory.watched(), purgatory.num_delayed(), timer.len()), (1, 1, 1));
    let stats = purgatory.stats();
    assert_eq!((stats.expired, stats.completed, stats.waiting), (1, 0, 1));
    assert!(stats.waited >= Duration::from_millis(20));
    assert!(long.force_complete());
    assert_empty(&timer, &purgatory);
}

#[test]
fn one_two_and_three_keys_count_three_and_six__p4_p5() {
    let (timer, purgatory) = purgatory();
    let ops = [wait(), wait(), wait()];
    for (op, keys) in ops.iter().zip([vec![1], vec![1, 2], vec![1, 2, 3]]) {
        watch(&purgatory, op, keys);
    }
    let counts = || (purgatory.num_delayed(), purgatory.watched(), purgatory.stats().keys, timer.len());
    assert_eq!(counts(), (3, 6, 3, 3));
    assert!(ops[1].force_complete(), "by other means");
    assert_eq!(counts(), (2, 4, 3, 2), "at once, on all lists and the timer");
    ops[2].ready();
    assert_eq!(purgatory.check_and_complete(&2), 1);
    assert_eq!(counts(), (1, 1, 1, 1));
    assert!(ops[0].force_complete() && !ops[0].force_complete());
    assert_empty(&timer, &purgatory);
}

#[test]
fn cancel_for_key_takes_the_keys_operations_off_the_timer_and_all_lists__p4() {
    let (timer, purgatory) = purgatory();
    let ops = [wait(), wait(), wait(), wait()];
    for (op, keys) in ops.iter().zip([vec![2, 1], vec![2], vec![1, 3], vec![1]]) {
        watch(&purgatory, op, keys);
    }
    assert!(ops[3].force_complete());
    let cancelled = purgatory.cancel_for_key(&1);
    assert_eq!(cancelled.len(), 2, "not what is complete");
    assert!(is_same(&cancelled[0], &ops[0]) && is_same(&cancelled[1], &ops[2]), "in order of arrival");
    assert_eq!((purgatory.watched(), purgatory.num_delayed(), timer.len(), purgatory.stats().keys), (1, 1, 1, 1));
    assert!(purgatory.cancel_for_key(&1).is_empty());
    assert_eq!(ops[0].ended(), (0, 0));
    assert!(ops[0].force_complete(), "it is the canceller's");
    assert_eq!(purgatory.cancel_for_key(&2).len(), 1);
    assert_eq!(purgatory.stats().cancelled, 3);
    assert_empty(&timer, &purgatory);
}

#[test]
fn a_cancelled_operation_may_be_watched_again__p4() {
    let (timer, purgatory) = purgatory();
    let op = wait();
    for key in 1..4 {
        watch(&purgatory, &op, [key]);
        assert_eq!(purgatory.try_complete_else_watch(&op, [9]).unwrap_err(), waits_already());
        assert!(op.cancel() && !op.cancel());
        assert_empty(&timer, &purgatory);
    }
    watch(&purgatory, &op, [4]);
    op.ready();
    assert_eq!(purgatory.check_and_complete(&1), 0, "it waits there no more");
    assert_eq!(purgatory.check_and_complete(&4), 1);
    assert_eq!(op.ended(), (1, 0));
    assert!(!op.cancel());
    assert_empty(&timer, &purgatory);
}

fn waits_already() -> Error {
    Error::Invalid("the operation waits in a purgatory already: make one for each wait".into())
}

#[test]
fn watching_without_a_key_or_twice_is_refused_and_changes_nothing__p2() {
    let (_timer, first) = purgatory();
    let (_other_timer, second) = purgatory();
    let op = wait();
    assert!(matches!(first.try_complete_else_watch(&op, []), Err(Error::Invalid(_))));
    assert_eq!(op.tries.load(Ordering::Relaxed), 0);
    watch(&first, &op, [1]);
    op.ready();
    for purgatory in [&first, &second] {
        assert_eq!(purgatory.try_complete_else_watch(&op, [2]).unwrap_err(), waits_already());
    }
    assert_eq!((first.watched(), second.watched(), op.is_completed()), (1, 0, false));
    assert_eq!(first.check_and_complete(&1), 1);
    assert_eq!(first.try_complete_else_watch(&op, [2]), Ok(false), "complete, and not by this call");
    assert_eq!(first.watched(), 0);
}

#[test]
fn equal_keys_count_once__p4() {
    let (timer, purgatory) = purgatory();
    let op = wait();
    watch(&purgatory, &op, [1, 2, 1, 2, 2]);
    assert_eq!(purgatory.watched(), 2);
    op.ready();
    assert_eq!(purgatory.check_and_complete(&2), 1);
    assert_eq!(op.ended(), (1, 0));
    assert_empty(&timer, &purgatory);
}

#[test]
fn a_shutdown_returns_the_waiting_operations_in_order_and_takes_no_more__p4() {
    let (timer, purgatory) = purgatory();
    let ops: Vec<_> = (0..100).map(|_| wait()).collect();
    for (number, op) in (0..).zip(&ops) {
        watch(&purgatory, op, [number * 7 % 100, 1000, 2000 + number]);
    }
    let left = purgatory.shutdown();
    assert!(left.iter().zip(&ops).all(|(left, op)| is_same(left, op)), "in order of arrival");
    assert_eq!(left.len(), 100);
    assert_empty(&timer, &purgatory);
    assert!(purgatory.shutdown().is_empty(), "twice is fine");
    let late = wait();
    assert_eq!(purgatory.try_complete_else_watch(&late, [1]), Err(Error::Closed));
    assert!(!late.cancel(), "it waits nowhere");
    late.ready();
    assert_eq!(purgatory.try_complete_else_watch(&late, [1]), Ok(true), "the first try comes first");
}

#[test]
fn without_a_timer_an_operation_waits_until_an_event__p2() {
    let (timer, _) = purgatory();
    let purgatory = tickwheel::DelayedOperationPurgatory::new(Arc::clone(&timer), false);
    let op = Operation::new(Duration::ZERO, Wait::default());
    watch(&purgatory, &op, [1]);
    assert_eq!((purgatory.watched(), purgatory.num_delayed(), timer.len()), (1, 0, 0));
    op.ready();
    assert_eq!(purgatory.check_and_complete(&1), 1);
    assert_eq!(op.ended(), (1, 0));
}

#[test]
fn an_operation_that_a_full_or_closed_timer_refuses_waits_nowhere__p2() {
    let (timer, purgatory) = on_timer(&Config { max_pending: Some(1), ..Config::default() });
    let (first, second) = (wait(), wait());
    watch(&purgatory, &first, [1]);
    assert_eq!(purgatory.try_complete_else_watch(&second, [1, 2]), Err(Error::Full { max_pending: 1 }));
    assert_eq!((purgatory.watched(), purgatory.num_delayed(), purgatory.stats().waiting), (1, 1, 1));
    assert!(first.cancel());
    watch(&purgatory, &second, [1, 2]);
    assert!(second.cancel());
    timer.shutdown(None);
    assert_eq!(purgatory.try_complete_else_watch(&first, [1]), Err(Error::Closed));
    assert_empty(&timer, &purgatory);
    let soon = Operation::new(HOUR * 24 * 365 * 200_000, Wait::default());
    assert!(purgatory.try_complete_else_watch(&soon, [1]).is_err(), "past the end of time");
    assert_empty(&timer, &purgatory);
}
