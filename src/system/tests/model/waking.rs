//! An add meets a reaper that is about to sleep: no wake-up is lost, and none is wasted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{RUNS, every, join, on_alarm, pass_time, sample, spawn, system_on_alarm, timer, with_reaper};
use crate::clock::{ALARM_START_US, Clock};
use crate::executor::Released;
use crate::lead::Wait;
use crate::sync::{Mutex, unbounded};
use crate::timer::Timer;
use crate::wake_signal::WakeSignal;
use crate::when::When;

const HOUR_US: u64 = 3_600_000_000;
const SECOND_US: u64 = 1_000_000;

/// Runs every interleaving and returns the most wake-ups that any of them counted.
fn most_wake_ups(body: impl Fn(Arc<Timer<u32>>) + Send + Sync + 'static) -> u64 {
    let most = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&most);
    every(move || {
        let timer = timer();
        body(Arc::clone(&timer));
        seen.fetch_max(timer.stats().wake_ups, Ordering::Relaxed);
    });
    most.load(Ordering::Relaxed)
}

#[test]
fn an_add_is_heard_by_a_reaper_with_nothing_to_wait_for() {
    every(|| {
        let timer = timer();
        let (reaper, released) = with_reaper(&timer);
        timer.add(When::AtUs(0), 1).unwrap();
        assert_eq!(released.recv().unwrap().tickets.len(), 1);
        timer.close();
        join([reaper]);
    });
}

#[test]
fn an_add_is_heard_by_a_reaper_that_waits_for_a_far_task() {
    every(|| {
        let timer = timer();
        timer.add(When::AfterUs(HOUR_US), 1).unwrap();
        let (reaper, released) = with_reaper(&timer);
        timer.add(When::AtUs(0), 2).unwrap();
        let soon = released.recv().unwrap().tickets[0];
        timer.close();
        join([reaper]);
        assert_eq!(timer.claim(soon).map(|claimed| claimed.task), Some(2));
    });
}

fn several_adders(adders: u64) {
    let timer = timer();
    let (reaper, released) = with_reaper(&timer);
    let threads: Vec<_> = (0..adders)
        .map(|task| {
            let timer = Arc::clone(&timer);
            spawn(move || drop(timer.add(When::AtUs(0), task)))
        })
        .collect();
    let mut heard = 0;
    while heard < adders {
        heard += released.recv().unwrap().tickets.len() as u64;
    }
    join(threads);
    timer.close();
    join([reaper]);
}

#[test]
fn each_of_several_adders_is_heard() {
    sample(RUNS, || several_adders(2));
    sample(RUNS, || several_adders(4));
}

#[test]
fn of_adds_in_the_future_only_one_that_becomes_the_earliest_wakes() {
    let add_second = |due_us| {
        most_wake_ups(move |timer| {
            timer.add(When::AfterUs(HOUR_US), 1).unwrap();
            let (reaper, _released) = with_reaper(&timer);
            timer.add(When::AfterUs(due_us), 2).unwrap();
            timer.close(); // one more wake-up
            join([reaper]);
        })
    };
    assert_eq!(add_second(SECOND_US), 2);
    assert_eq!(add_second(2 * HOUR_US), 1);
}

#[test]
fn before_its_floor_a_sleeper_is_woken_once_at_the_most__t5() {
    let most = most_wake_ups(|timer| {
        timer.add(When::AtUs(0), 0).unwrap();
        assert_eq!(timer.wait_for_work(100_u64.into(), u64::MAX), Wait::Due); // from now on the floor is 100
        timer.advance(&mut |_: Released| ());
        let sleeper = Arc::clone(&timer);
        let sleeper = spawn(move || assert_eq!(sleeper.wait_for_work(100_u64.into(), u64::MAX), Wait::Closed));
        // The first moves the end of the sleep to the floor; nothing can move it before that.
        timer.add(When::AtUs(5), 1).unwrap();
        timer.add(When::AtUs(0), 2).unwrap();
        timer.close(); // one more wake-up
        join([sleeper]);
    });
    assert_eq!(most, 2);
}

#[test]
fn a_move_forward_is_heard__t7() {
    every(|| {
        let timer = timer();
        let far = timer.add(When::AfterUs(HOUR_US), 1).unwrap();
        let (reaper, released) = with_reaper(&timer);
        assert!(timer.reschedule(far, When::AtUs(0)).unwrap());
        assert_eq!(released.recv().unwrap().tickets.len(), 1);
        timer.close();
        join([reaper]);
    });
}

#[test]
fn a_wake_between_the_look_and_the_sleep_by_an_alarm_is_not_lost() {
    every(|| {
        let clock = Clock::manual(ALARM_START_US / 1000);
        let shared = Arc::new((Mutex::new(0), WakeSignal::on(&clock).unwrap()));
        let waker = {
            let shared = Arc::clone(&shared);
            spawn(move || {
                for _ in 0..2 {
                    *shared.0.lock() += 1; // it is unlocked before the wake
                    shared.1.wake();
                }
            })
        };
        let mut changes = shared.0.lock();
        while *changes < 2 {
            changes = shared.1.sleep((&shared.0, changes), &clock, u64::MAX);
        }
        drop(changes);
        join([waker]);
    });
}

#[test]
fn an_add_and_a_suspend_are_heard_by_a_reaper_that_sleeps_by_an_alarm() {
    sample(RUNS, || {
        let timer = on_alarm();
        timer.add(When::AfterUs(HOUR_US), 1).unwrap();
        let (reaper, released) = with_reaper(&timer);
        timer.add(When::AtUs(0), 2).unwrap();
        assert_eq!(released.recv().unwrap().tickets.len(), 1);
        // The machine sleeps for an hour, at any moment between the reaper's look and its sleep.
        pass_time(&timer, ALARM_START_US + HOUR_US);
        assert_eq!(released.recv().unwrap().tickets.len(), 1);
        timer.close();
        join([reaper]);
    });
}

#[test]
fn what_comes_due_during_a_suspend_runs_at_once_whoever_leads() {
    sample(RUNS, || {
        let timer = system_on_alarm();
        let (send, receive) = unbounded();
        let far = send.clone();
        timer.after(Duration::from_micros(HOUR_US), move || far.send("far").unwrap()).unwrap();
        let adder = {
            let timer = Arc::clone(&timer);
            spawn(move || drop(timer.after(Duration::ZERO, move || send.send("now").unwrap())))
        };
        assert_eq!(receive.recv(), Ok("now"));
        pass_time(&timer.timer, ALARM_START_US + HOUR_US);
        assert_eq!(receive.recv(), Ok("far"));
        join([adder]);
        assert!(timer.shutdown(None).is_empty());
    });
}
