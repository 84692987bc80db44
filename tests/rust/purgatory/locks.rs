//! An operation's own lock (P6). If the caller has it, the call may enter. If another thread has it, no thread waits and no
//! event is lost.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use tickwheel::{Config, DelayedOperationPurgatory};

use super::{
    Op, OwnLock, PATIENCE, Wait, assert_empty, join, on_timer, purgatory, spawn, until, until_empty, wait_with, watch,
};

fn with_lock(own_lock: &Arc<OwnLock>) -> Op {
    wait_with(Wait { own_lock: Some(Arc::clone(own_lock)), ..Wait::default() })
}

/// Another thread that holds the lock until the test ends that.
fn stranger(own_lock: &Arc<OwnLock>) -> (mpsc::Sender<()>, JoinHandle<()>) {
    let (go, go_receiver) = mpsc::channel::<()>();
    let (sender, receiver) = mpsc::channel();
    let own_lock = Arc::clone(own_lock);
    let thread = spawn(move || {
        assert!(own_lock.try_with(&mut || {
            sender.send(()).unwrap();
            go_receiver.recv_timeout(PATIENCE).unwrap();
        }));
    });
    receiver.recv_timeout(PATIENCE).unwrap();
    (go, thread)
}

#[test]
fn a_caller_that_holds_the_lock_may_check__p6() {
    let (timer, purgatory) = purgatory();
    let own_lock = Arc::new(OwnLock::default());
    let op = with_lock(&own_lock);
    watch(&purgatory, &op, [1]);
    assert!(own_lock.try_with(&mut || {
        op.ready();
        assert_eq!(purgatory.check_and_complete(&1), 1);
    }));
    assert_eq!(op.ended(), (1, 0));
    assert_empty(&timer, &purgatory);
}

#[test]
fn the_lock_is_held_during_a_try_and_free_during_the_completion__p6() {
    let (timer, purgatory) = purgatory();
    let own_lock = Arc::new(OwnLock::default());
    let (in_try, in_end) = (Arc::clone(&own_lock), Arc::clone(&own_lock));
    let (sender, receiver) = mpsc::channel();
    let end_sender = sender.clone();
    let op = wait_with(Wait {
        own_lock: Some(Arc::clone(&own_lock)),
        on_try: Some(Box::new(move |_| sender.send(("try", in_try.is_free())).unwrap())),
        on_complete: Some(Box::new(move |()| end_sender.send(("end", in_end.is_free())).unwrap())),
        ..Wait::default()
    });
    watch(&purgatory, &op, [1]);
    op.ready();
    assert_eq!(purgatory.check_and_complete(&1), 1);
    drop(op);
    assert_eq!(
        receiver.iter().take(4).collect::<Vec<_>>(),
        [("try", false), ("try", false), ("try", false), ("end", true)]
    );
    assert_empty(&timer, &purgatory);
}

#[test]
fn a_check_does_not_wait_for_another_thread_and_is_not_lost__p6() {
    let (timer, purgatory) = purgatory();
    let own_lock = Arc::new(OwnLock::default());
    let op = with_lock(&own_lock);
    watch(&purgatory, &op, [1]);
    let (go, thread) = stranger(&own_lock);
    op.ready();
    for _ in 0..3 {
        assert_eq!(purgatory.check_and_complete(&1), 0, "this returns: the lock is a stranger's");
    }
    assert!(timer.len() <= 2, "the deadline, and one check that was put off");
    // The timer checks it more than once, and does not wait either.
    until(|| timer.stats().expired >= 3);
    assert!(!op.is_completed());
    go.send(()).unwrap();
    join([thread]);
    until(|| op.ended() == (1, 0)); // without any further event
    until_empty(&timer, &purgatory);
}

#[test]
fn an_operation_that_is_watched_while_another_thread_has_its_lock_is_complete_soon_after__p6() {
    let (timer, purgatory) = purgatory();
    let own_lock = Arc::new(OwnLock::default());
    let op = with_lock(&own_lock);
    op.ready();
    let (go, thread) = stranger(&own_lock);
    watch(&purgatory, &op, [1]);
    assert_eq!(op.tries.load(Ordering::Relaxed), 0);
    go.send(()).unwrap();
    join([thread]);
    until(|| op.ended() == (1, 0));
    until_empty(&timer, &purgatory);
}

#[test]
fn a_full_timer_takes_a_postponed_check__p6() {
    let (timer, purgatory) = on_timer(&Config { max_pending: Some(1), ..Config::default() });
    let own_lock = Arc::new(OwnLock::default());
    let op = with_lock(&own_lock);
    watch(&purgatory, &op, [1]);
    let (go, thread) = stranger(&own_lock);
    op.ready();
    assert_eq!(purgatory.check_and_complete(&1), 0);
    go.send(()).unwrap();
    join([thread]);
    until(|| op.ended() == (1, 0));
    until_empty(&timer, &purgatory);
}

#[test]
fn after_the_timers_shutdown_the_next_check_completes_it__p6() {
    let (timer, purgatory) = purgatory();
    let own_lock = Arc::new(OwnLock::default());
    let op = with_lock(&own_lock);
    watch(&purgatory, &op, [1]);
    let (go, thread) = stranger(&own_lock);
    op.ready();
    assert_eq!(purgatory.check_and_complete(&1), 0);
    timer.shutdown(None);
    assert_eq!(purgatory.check_and_complete(&1), 0, "no operation waits");
    go.send(()).unwrap();
    join([thread]);
    assert_eq!(purgatory.check_and_complete(&1), 1);
    assert_empty(&timer, &purgatory);
}

/// A postponed check was lost with its timer. That must not stop a check of another timer.
#[test]
fn a_check_that_was_lost_with_its_timer_does_not_replace_another__p6() {
    let (timer, first) = purgatory();
    let (second_timer, second) = purgatory();
    let own_lock = Arc::new(OwnLock::default());
    let op = with_lock(&own_lock);
    watch(&first, &op, [1]);
    let (go, thread) = stranger(&own_lock);
    // The timer's worker is blocked, so it runs no check until the timer is shut down.
    let (resume, resumed) = mpsc::channel::<()>();
    let (sender, receiver) = mpsc::channel();
    timer
        .after(std::time::Duration::ZERO, move || {
            sender.send(()).unwrap();
            let _ = resumed.recv_timeout(PATIENCE);
        })
        .unwrap();
    receiver.recv_timeout(PATIENCE).unwrap();
    assert_eq!(first.check_and_complete(&1), 0);
    assert_eq!(timer.shutdown(Some(std::time::Duration::ZERO)).len(), 2, "the deadline, and the check");
    resume.send(()).unwrap();
    assert!(op.cancel());
    op.ready();
    watch(&second, &op, [1]);
    go.send(()).unwrap();
    join([thread]);
    until(|| op.ended() == (1, 0));
    until(|| second_timer.is_empty());
    assert_empty(&second_timer, &second);
}

#[test]
fn a_postponed_check_does_not_try_a_cancelled_operation__p4() {
    let (timer, purgatory) = purgatory();
    let own_lock = Arc::new(OwnLock::default());
    let op = with_lock(&own_lock);
    watch(&purgatory, &op, [1]);
    let (go, thread) = stranger(&own_lock);
    op.ready();
    purgatory.check_and_complete(&1);
    assert_eq!(purgatory.cancel_for_key(&1).len(), 1);
    go.send(()).unwrap();
    join([thread]);
    until(|| timer.is_empty() && timer.stats().executor_depth + timer.stats().running == 0);
    assert_eq!((op.ended(), op.is_completed()), ((0, 0), false));
    let elsewhere = DelayedOperationPurgatory::new(Arc::clone(&timer), true);
    assert_eq!(elsewhere.try_complete_else_watch(&op, [1]), Ok(true));
}
