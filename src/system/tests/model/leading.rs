//! The worker that leads, and the reaper behind it: each wake-up reaches the thread that needs it, whichever that is.

use std::sync::Arc;

use shuttle::sync::mpsc::channel;
use shuttle::thread::yield_now;

use super::{FAR, NOW, RUNS, SOON, SOON_US, join, look_through, pass_time, sample, spawn, system};
use crate::lead::TAKE_OVER_US;
use crate::system::SystemTimer;
use crate::timer::STEP;

/// Adds a callback that is due now, and waits for it; no shutdown would release it.
fn runs_now(timer: &SystemTimer) {
    let (send, receive) = channel();
    timer.after(NOW, move || send.send(()).unwrap()).unwrap();
    receive.recv().unwrap();
}

#[test]
fn an_add_is_heard_whichever_thread_is_about_to_sleep() {
    sample(RUNS, || {
        let timer = system();
        runs_now(&timer);
        runs_now(&timer); // the worker is about to lead again
        look_through(timer.shutdown(None));
    });
}

#[test]
fn an_add_is_heard_by_a_worker_that_waits_for_a_far_task() {
    sample(RUNS, || {
        let timer = system();
        timer.after(FAR, || unreachable!()).unwrap();
        runs_now(&timer);
        assert_eq!(timer.shutdown(None).len(), 1);
    });
}

#[test]
fn several_adding_threads_are_heard() {
    sample(RUNS, || {
        let timer = system();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let timer = Arc::clone(&timer);
                spawn(move || runs_now(&timer))
            })
            .collect();
        join(threads);
        look_through(timer.shutdown(None));
    });
}

/// A callback runs until the wheel has gone on. `before` are added before it, `meanwhile` while it runs.
fn the_wheel_goes_on(before: bool, meanwhile: bool) {
    let timer = system();
    let (started, has_started) = channel();
    let (go_on, may_go_on) = channel();
    let (ran, has_run) = channel();
    let add = |delay| {
        let ran = ran.clone();
        timer.after(delay, move || ran.send(()).unwrap()).unwrap();
    };
    if before {
        add(SOON);
    }
    timer
        .after(NOW, move || {
            started.send(()).unwrap();
            may_go_on.recv().unwrap();
        })
        .unwrap();
    has_started.recv().unwrap();
    if meanwhile {
        add(NOW);
    }
    pass_time(&timer.timer, SOON_US + TAKE_OVER_US);
    while timer.len() > 0 {
        yield_now();
    }
    assert_eq!(timer.stats().executor_depth, usize::from(before) + usize::from(meanwhile));
    go_on.send(()).unwrap();
    for _ in 0..u32::from(before) + u32::from(meanwhile) {
        has_run.recv().unwrap();
    }
    runs_now(&timer);
    assert!(timer.shutdown(None).is_empty());
}

#[test]
fn a_slow_callback_does_not_stop_the_wheel__t8() {
    sample(RUNS, || the_wheel_goes_on(true, false));
    sample(RUNS, || the_wheel_goes_on(false, true));
    sample(RUNS, || the_wheel_goes_on(true, true));
}

#[test]
fn the_reaper_does_the_rest_of_a_long_advance__t6() {
    sample(50, || {
        let timer = system();
        let (send, receive) = channel();
        let count = STEP + 2;
        for task in 0..count {
            let send = send.clone();
            timer.after(SOON, move || send.send(task).unwrap()).unwrap();
        }
        pass_time(&timer.timer, SOON_US);
        for task in 0..count {
            assert_eq!(receive.recv().unwrap(), task);
        }
        runs_now(&timer);
        look_through(timer.shutdown(None));
    });
}
