//! Loom tests of the real code of the lock and its condition variable. Loom goes through the interleavings of
//! their atomics and small locks, and through the values that a processor with weak ordering may read.
//!
//! `make test-all` runs them. The ground rules:
//!
//! - A sleep on the lock does not end by itself, so a lost wake-up is a deadlock, which loom reports. For this the model's
//!   flag has the two fences that the real lock leaves out (`primitives.rs`). One test ends the sleeps itself.
//! - The model's flag panics when a second thread gets what it guards.

use std::sync::Arc;

use loom::model::Builder;
use loom::thread::spawn;

use super::super::condvar::Condvar;
use super::super::mutex::Mutex;

/// The most preemptions in one interleaving, for models that would be too large without a bound.
const MAX_PREEMPTIONS: usize = 4;

/// Goes through every interleaving with at most this many preemptions.
fn bounded(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut model = Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(body);
}

fn add_one(mutex: &Mutex<u32>) {
    let mut number = mutex.lock();
    let before = *number;
    *number = before + 1;
}

#[test]
fn loom_two_threads_have_the_lock_one_after_the_other() {
    loom::model(|| {
        let mutex = Arc::new(Mutex::new(0));
        let other = Arc::clone(&mutex);
        let other = spawn(move || add_one(&other));
        add_one(&mutex);
        other.join().unwrap();
        assert_eq!((*mutex.lock(), mutex.has_waiters()), (2, false));
    });
}

#[test]
fn loom_each_of_three_threads_is_woken_though_one_wake_up_is_sent_at_a_time() {
    bounded(MAX_PREEMPTIONS, || {
        let mutex = Arc::new(Mutex::new(0));
        let held = mutex.lock();
        let others = [0, 1].map(|_| {
            let mutex = Arc::clone(&mutex);
            spawn(move || add_one(&mutex))
        });
        drop(held);
        add_one(&mutex);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!((*mutex.lock(), mutex.has_waiters()), (3, false));
    });
}

#[test]
fn loom_a_thread_that_locks_twice_wakes_one_that_slept_through_the_first() {
    bounded(MAX_PREEMPTIONS + 1, || {
        let mutex = Arc::new(Mutex::new(0));
        let other = Arc::clone(&mutex);
        let other = spawn(move || add_one(&other));
        add_one(&mutex);
        add_one(&mutex);
        other.join().unwrap();
        assert_eq!(*mutex.lock(), 3);
    });
}

#[test]
fn loom_a_sleep_that_ends_by_itself_loses_no_wake_up() {
    bounded(MAX_PREEMPTIONS, || {
        let mutex = Arc::new(Mutex::new(0));
        let (other, time) = (Arc::clone(&mutex), Arc::clone(&mutex));
        let other = spawn(move || add_one(&other));
        let time = spawn(move || time.end_sleeps());
        add_one(&mutex);
        add_one(&mutex);
        other.join().unwrap();
        time.join().unwrap();
        assert_eq!(*mutex.lock(), 3);
    });
}

#[test]
fn loom_a_notification_reaches_a_thread_about_to_wait__rule6() {
    bounded(MAX_PREEMPTIONS, || {
        let shared = Arc::new((Mutex::new(false), Condvar::default()));
        let waits = Arc::clone(&shared);
        let waiter = spawn(move || {
            let mut is_set = waits.0.lock();
            while !*is_set {
                is_set = waits.1.wait(is_set, None);
            }
        });
        *shared.0.lock() = true;
        shared.1.notify_all();
        waiter.join().unwrap();
    });
}
