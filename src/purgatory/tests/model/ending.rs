//! Completion, expiry and cancel meet: exactly one of them gets the operation (P1, P4).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Event, ModelHost, Op, Pool, RUNS, assert_empty, expire_all, purgatory, watch};
use crate::model::{count, every, join, sample, spawn};
use crate::purgatory::leaving;
use crate::purgatory::operation_state::Completer;
use crate::sync::JoinHandle;

#[derive(Debug, Default)]
struct Fates {
    completed: AtomicU32,
    expired: AtomicU32,
    cancelled: AtomicU32,
}

impl Fates {
    /// Exactly one of the three has happened.
    fn judge(&self, op: &Op, cancelled: u32) {
        let fate = (op.completed() - op.expired(), op.expired(), cancelled);
        count(match fate {
            (1, 0, 0) => &self.completed,
            (0, 1, 0) => &self.expired,
            (0, 0, 1) => &self.cancelled,
            _ => panic!("(completed, expired, cancelled) = {fate:?}"),
        });
    }

    fn seen(&self) -> [bool; 3] {
        [&self.completed, &self.expired, &self.cancelled].map(|fate| fate.load(Ordering::Relaxed) > 0)
    }
}

fn check(pool: &Pool, event: &Event) -> JoinHandle<()> {
    let (pool, event) = (Arc::clone(pool), event.clone());
    spawn(move || {
        event.happens();
        pool.check_and_complete(&ModelHost, &1);
    })
}

fn expire(pool: &Pool) -> JoinHandle<()> {
    let pool = Arc::clone(pool);
    spawn(move || expire_all(&pool))
}

fn cancel(pool: &Pool, cancelled: &Arc<AtomicU32>) -> JoinHandle<()> {
    let (pool, cancelled) = (Arc::clone(pool), Arc::clone(cancelled));
    spawn(move || {
        for _ in pool.cancel_for_key(&ModelHost, &1) {
            count(&cancelled);
        }
    })
}

/// An operation waits, and several threads end its wait at the same time.
fn meet(fates: &Fates, keys: &[u8], [checks, expires, cancels]: [bool; 3]) {
    let (pool, event, cancelled) = (purgatory(), Event::default(), Arc::new(AtomicU32::new(0)));
    let op = Op::after(&[event.clone()]);
    assert_eq!(watch(&pool, &op, keys), Some(false));
    let checking = checks.then(|| check(&pool, &event));
    let expiring = expires.then(|| expire(&pool));
    let cancelling = cancels.then(|| cancel(&pool, &cancelled));
    join([checking, expiring, cancelling].into_iter().flatten());
    let cancelled = cancelled.load(Ordering::Relaxed);
    fates.judge(&op, cancelled);
    assert_empty(&pool);
    event.happens();
    assert_eq!(pool.check_and_complete(&ModelHost, &2), 0);
    assert_eq!(op.force_complete(), cancelled == 1, "it is the canceller's, or complete");
}

#[test]
fn of_completion_expiry_and_cancel_one_gets_it__p1_p4() {
    let cases: [(&[u8], [bool; 3]); 4] = [
        (&[1], [true, true, false]),
        (&[1], [true, false, true]),
        (&[1], [false, true, true]),
        (&[1, 2], [true, true, true]),
    ];
    for (keys, ways) in cases {
        let fates = Arc::new(Fates::default());
        let seen = Arc::clone(&fates);
        sample(RUNS, move || meet(&fates, keys, ways));
        assert_eq!(seen.seen(), ways);
    }
}

/// One thread expires an operation while the test's own thread cancels it.
#[test]
fn an_expiry_and_a_cancel_have_one_winner__p4() {
    let fates = Arc::new(Fates::default());
    let seen = Arc::clone(&fates);
    every(move || {
        let pool = purgatory();
        let op = Op::after(&[Event::default()]);
        assert_eq!(watch(&pool, &op, &[1]), Some(false));
        let expiring = expire(&pool);
        let cancelled = op.cancel();
        join([expiring]);
        fates.judge(&op, u32::from(cancelled));
        assert_empty(&pool);
    });
    assert_eq!(seen.seen(), [false, true, true]);
}

/// A completion by a caller succeeds in any case: also after a cancel.
#[test]
fn a_caller_completes_before_a_cancel_and_after_it__p1() {
    let orders = Arc::new([const { AtomicU32::new(0) }; 2]);
    let seen = Arc::clone(&orders);
    every(move || {
        let pool = purgatory();
        let op = Op::after(&[Event::default()]);
        watch(&pool, &op, &[1]);
        let completer = {
            let op = op.clone();
            spawn(move || assert!(op.force_complete()))
        };
        count(&orders[usize::from(op.cancel())]);
        join([completer]);
        assert_eq!(op.completed(), 1);
        assert_empty(&pool);
    });
    assert!(seen.iter().all(|order| order.load(Ordering::Relaxed) > 0), "{seen:?}");
}

/// Only the atomic step.
#[test]
fn one_of_several_completions_succeeds__p1() {
    every(|| {
        let op = Op::after(&[Event::default()]);
        let wins = Arc::new(AtomicU32::new(0));
        let completers = [false, true].map(|expires| {
            let (op, wins) = (op.clone(), Arc::clone(&wins));
            spawn(move || {
                let won = if expires { leaving::expire(&ModelHost, &op, Completer::Try) } else { op.force_complete() };
                wins.fetch_add(u32::from(won), Ordering::Relaxed);
            })
        });
        join(completers);
        assert_eq!((wins.load(Ordering::Relaxed), op.completed()), (1, 1));
    });
}

#[test]
fn cancelled_and_watched_again_it_is_completed_once__p4() {
    let (in_time, too_late) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let seen = (Arc::clone(&in_time), Arc::clone(&too_late));
    sample(RUNS, move || {
        let (pool, other, event) = (purgatory(), purgatory(), Event::default());
        let op = Op::after(&[event.clone()]);
        watch(&pool, &op, &[1]);
        let checking = check(&pool, &event);
        if op.cancel() {
            watch(&other, &op, &[2]);
        }
        join([checking]);
        // The check was of the first key. It may complete the operations that it found there, wherever they wait now.
        let late = other.check_and_complete(&ModelHost, &2);
        assert_eq!(op.completed(), 1);
        count(&[&in_time, &too_late][late]);
        assert_empty(&pool);
        assert_empty(&other);
    });
    assert!(seen.0.load(Ordering::Relaxed) > 0 && seen.1.load(Ordering::Relaxed) > 0);
}

#[test]
fn what_is_watched_again_does_not_expire_by_its_old_deadline__p1() {
    let (moved, expired) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let seen = (Arc::clone(&moved), Arc::clone(&expired));
    sample(RUNS / 2, move || {
        let (pool, other) = (purgatory(), purgatory());
        let op = Op::after(&[Event::default()]);
        watch(&pool, &op, &[1]);
        let expiring = expire(&pool);
        let moves = op.cancel();
        if moves {
            assert_eq!(watch(&other, &op, &[2]), Some(false));
        }
        join([expiring]);
        assert_eq!(op.expired(), u32::from(!moves));
        count(if moves { &moved } else { &expired });
        op.cancel();
        assert_empty(&pool);
        assert_empty(&other);
    });
    assert!(seen.0.load(Ordering::Relaxed) > 0 && seen.1.load(Ordering::Relaxed) > 0);
}

/// The operation moves to another key after the list was read and before the cancel.
#[test]
fn what_moved_to_another_key_is_not_taken_out_with_the_first__p4() {
    let (moved, taken) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let seen = (Arc::clone(&moved), Arc::clone(&taken));
    sample(RUNS, move || {
        let (pool, cancelled) = (purgatory(), Arc::new(AtomicU32::new(0)));
        let op = Op::after(&[Event::default()]);
        watch(&pool, &op, &[1]);
        let cancelling = cancel(&pool, &cancelled);
        let moves = op.cancel();
        if moves {
            assert_eq!(watch(&pool, &op, &[2]), Some(false));
        }
        join([cancelling]);
        assert_eq!(cancelled.load(Ordering::Relaxed), u32::from(!moves));
        assert_eq!(pool.counts(&ModelHost).watched, usize::from(moves));
        count(if moves { &moved } else { &taken });
        op.cancel();
        assert_empty(&pool);
    });
    assert!(seen.0.load(Ordering::Relaxed) > 0 && seen.1.load(Ordering::Relaxed) > 0);
}

#[test]
fn what_moved_to_another_purgatory_is_not_taken_out_by_a_shutdown__p4() {
    sample(RUNS, move || {
        let (pool, other) = (purgatory(), purgatory());
        let op = Op::after(&[Event::default()]);
        watch(&pool, &op, &[1]);
        let found = Arc::new(AtomicU32::new(0));
        let closing = {
            let (pool, found) = (Arc::clone(&pool), Arc::clone(&found));
            spawn(move || found.store(pool.close(&ModelHost).len() as u32, Ordering::Relaxed))
        };
        let moves = op.cancel();
        if moves {
            assert_eq!(watch(&other, &op, &[1]), Some(false));
        }
        join([closing]);
        assert_eq!(found.load(Ordering::Relaxed), u32::from(!moves));
        assert_eq!(other.counts(&ModelHost).watched, usize::from(moves));
        op.cancel();
        assert_empty(&other);
    });
}

/// A completion by a caller succeeds, whatever purgatory the operation is put in or taken out of at that moment.
#[test]
fn a_caller_completes_during_any_number_of_moves__p1() {
    sample(RUNS, || {
        let pool = purgatory();
        let op = Op::after(&[Event::default()]);
        watch(&pool, &op, &[1]);
        let mover = {
            let (pool, op) = (Arc::clone(&pool), op.clone());
            spawn(move || {
                for key in [2, 3] {
                    if op.cancel() {
                        watch(&pool, &op, &[key]);
                    }
                }
                op.cancel();
            })
        };
        assert!(op.force_complete(), "no other thread completes it");
        join([mover]);
        assert_eq!(op.completed(), 1);
        assert_empty(&pool);
    });
}
