//! `SystemTimer::every`: calls again and again, until a cancel. Waits for events, never for a time to have passed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tickwheel::{Config, Error, Every, Missed, PeriodicTask, SystemTimer};

const PATIENCE: Duration = Duration::from_secs(60);
const BEAT: Duration = Duration::from_millis(2);
const HOUR: Duration = Duration::from_secs(3600);

fn timer(name: &str) -> SystemTimer {
    SystemTimer::new(name, &Config::default()).unwrap()
}

#[test]
fn a_periodic_task_is_called_again_and_again_and_never_early__t5_t20() {
    let timer = timer("beats");
    let (send, receive) = mpsc::channel();
    let start = Instant::now();
    let heart = timer.every(BEAT, move || send.send(Instant::now()).unwrap()).unwrap();
    for number in 1..=20 {
        let at = receive.recv_timeout(PATIENCE).expect("it goes on");
        assert!(at >= start + BEAT * number, "call {number} came early");
    }
    assert!(heart.cancel() && !heart.cancel());
    receive.iter().for_each(drop); // ends once the callback is dropped, and its sender with it
    assert!(timer.is_empty());
}

#[test]
fn no_call_begins_after_a_cancel_has_returned__t9_t20() {
    let timer = timer("cancels");
    for _ in 0..300 {
        let calls = Arc::new(AtomicUsize::new(0));
        let (send, receive) = mpsc::channel();
        let counted = Arc::clone(&calls);
        let every = Every { missed: Missed::All, ..Every::new(Duration::from_micros(20)) };
        let task = timer
            .every(every, move || {
                counted.fetch_add(1, Ordering::SeqCst);
                let _ = send.send(());
            })
            .unwrap();
        receive.recv_timeout(PATIENCE).unwrap();
        assert!(task.cancel());
        let (before, ran) = (calls.load(Ordering::SeqCst), mpsc::channel());
        // Behind whatever was released: one call may have run while the cancel came.
        timer.after(Duration::ZERO, move || ran.0.send(()).unwrap()).unwrap();
        ran.1.recv_timeout(PATIENCE).unwrap();
        assert!(calls.load(Ordering::SeqCst) <= before + 1);
        receive.iter().for_each(drop);
        assert_eq!(Arc::strong_count(&calls), 1, "the callback is dropped");
    }
}

#[test]
fn a_cancel_inside_of_the_call_ends_the_series__t20() {
    let timer = timer("inside");
    let (send, receive) = mpsc::channel::<PeriodicTask>();
    let (tell, told) = mpsc::channel();
    let task = timer.every(BEAT, move || tell.send(receive.recv().unwrap().cancel()).unwrap()).unwrap();
    send.send(task).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE), Ok(true));
    assert!(told.recv_timeout(PATIENCE).is_err(), "the callback is dropped after its last call");
    assert!(timer.is_empty());
}

#[test]
fn a_call_that_panics_does_not_end_the_series__t10_t20() {
    let timer = timer("panics");
    let (send, receive) = mpsc::channel();
    let mut calls = 0;
    let task = timer.every(BEAT, move || {
        calls += 1;
        send.send(calls).unwrap();
        if calls == 2 {
            std::panic::resume_unwind(Box::new("broken")); // without the panic hook's message
        }
    });
    assert!(receive.iter().take(4).eq(1..=4));
    assert!(task.unwrap().cancel());
}

#[test]
fn a_shutdown_ends_a_series_and_returns_the_pending_call__t11_t20() {
    let timer = timer("ends");
    let (send, receive) = mpsc::channel();
    let task = timer.every(HOUR, move || send.send(()).unwrap()).unwrap();
    let unfinished = timer.shutdown(None);
    assert_eq!(unfinished.len(), 1);
    for pending in unfinished {
        (pending.task)(); // the caller may make the call by hand
    }
    assert_eq!(receive.recv_timeout(PATIENCE), Ok(()));
    assert!(receive.recv().is_err(), "no call comes after it, and the callback is dropped");
    assert!(!task.cancel(), "the series has ended");
    let refused = timer.every(HOUR, || ()).unwrap_err();
    assert_eq!(*refused.error(), Error::Closed);
    (refused.into_task())();
}

#[test]
fn a_timer_that_is_dropped_during_a_call_makes_no_other__t11_t20() {
    let timer = timer("dropped");
    let (send, receive) = mpsc::channel();
    let (drop_first, dropped) = mpsc::channel();
    let task = timer.every(BEAT, move || {
        dropped.recv().unwrap();
        send.send(()).unwrap();
    });
    drop(timer);
    drop_first.send(()).unwrap();
    drop_first.send(()).unwrap(); // for a second call, which would be one too many
    assert_eq!(receive.recv_timeout(PATIENCE), Ok(()));
    assert!(receive.recv().is_err(), "the callback is dropped after its last call");
    assert!(!task.unwrap().cancel(), "the series has ended");
}

#[test]
fn a_period_of_nothing_is_refused_with_the_callback__t13_t20() {
    let timer = timer("refuses");
    let refused = timer.every(Duration::ZERO, || ()).unwrap_err();
    assert!(refused.to_string().contains("a microsecond or more"), "{refused}");
    let full = SystemTimer::new("full", &Config { max_pending: Some(1), ..Config::default() }).unwrap();
    full.after(HOUR, || ()).unwrap();
    assert_eq!(*full.every(HOUR, || ()).unwrap_err().error(), Error::Full { max_pending: 1 });
}

#[test]
fn a_series_lets_its_callback_go_when_its_pending_call_is_dropped__t11_t20() {
    let (send, receive) = mpsc::channel::<()>();
    let timer = timer("drops");
    let task = timer
        .every(HOUR, move || {
            let _ = &send;
        })
        .unwrap();
    let unfinished = timer.shutdown(None);
    assert_eq!(receive.try_recv(), Err(mpsc::TryRecvError::Empty), "the caller may still make the call");
    drop(unfinished);
    assert_eq!(receive.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    assert!(!task.cancel());
}

#[test]
fn a_series_that_holds_its_own_task_ends_with_its_timer__t20() {
    let (send, receive) = mpsc::channel::<()>();
    let timer = timer("own");
    let own = Arc::new(std::sync::OnceLock::<PeriodicTask>::new());
    let inside = Arc::clone(&own);
    let task = timer.every(HOUR, move || drop((inside.get().map(PeriodicTask::cancel), send.clone()))).unwrap();
    own.set(task).unwrap();
    drop((own, timer.shutdown(None), timer));
    assert_eq!(receive.try_recv(), Err(mpsc::TryRecvError::Disconnected));
}

#[test]
fn a_task_that_is_moved_after_its_timer_was_dropped_runs_all_the_same__t7() {
    let timer = timer("moves");
    let (go_on, wait) = mpsc::channel::<()>();
    let (send, receive) = mpsc::channel();
    timer.after(Duration::ZERO, move || wait.recv().unwrap()).unwrap();
    let task = timer.after(Duration::ZERO, move || send.send("ran").unwrap()).unwrap();
    while timer.stats().executor_depth == 0 || timer.stats().running == 0 {
        std::thread::yield_now();
    }
    drop(timer);
    // Moved, or refused because the timer has closed: in both cases it runs.
    let _ = task.reschedule(BEAT);
    go_on.send(()).unwrap();
    assert_eq!(receive.recv_timeout(PATIENCE), Ok("ran"));
}
