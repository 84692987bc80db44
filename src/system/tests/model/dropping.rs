//! A timer without a holder: it lives until it is empty, then both threads end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{
    FAR, NOW, Outcomes, RUNS, SOON, SOON_US, advance, count, every, join, pass_time, sample, spawn, system, timer,
    with_reaper,
};
use crate::every::Every;
use crate::sync::JoinHandle;
use crate::system::SystemTimer;
use crate::timer::Timer;
use crate::when::When;

/// Takes the threads out of a timer, to see that they end by themselves.
fn threads(timer: &SystemTimer) -> [JoinHandle<()>; 2] {
    let (reaper, worker) = (timer.reaper.lock().take(), timer.worker.lock().take());
    [reaper.expect("it has a reaper"), worker.expect("it has a worker")]
}

#[test]
fn a_timer_that_closes_when_it_is_empty_ends_its_reaper() {
    every(|| {
        let timer = timer::<()>();
        let (reaper, _released) = with_reaper(&timer);
        timer.close_when_empty();
        join([reaper]);
    });
}

#[test]
fn a_timer_that_closes_when_it_is_empty_ends_its_reaper_when_the_last_task_is_cancelled() {
    sample(RUNS, || {
        let timer = timer();
        let task = timer.add(When::AfterUs(SOON_US), ()).unwrap();
        let (reaper, _released) = with_reaper(&timer);
        let canceller = {
            let timer = Arc::clone(&timer);
            spawn(move || assert!(timer.cancel(task).is_some()))
        };
        timer.close_when_empty();
        join([reaper, canceller]);
    });
}

/// How many of these are still on the timer once its reaper has ended, and how many were released.
fn left_and_released<T: Send + 'static>(
    timer: &Arc<Timer<T>>,
    batch: impl FnOnce(&Timer<T>) + Send + 'static,
) -> (usize, usize) {
    let (reaper, released) = with_reaper(timer);
    let batch = {
        let timer = Arc::clone(timer);
        spawn(move || batch(&timer))
    };
    timer.close_when_empty();
    join([batch, reaper]);
    let tickets = std::iter::from_fn(|| released.try_recv().ok()).flat_map(|it| it.tickets);
    let count = tickets.filter(|ticket| timer.claim(*ticket).is_some()).count();
    (timer.len(), count)
}

#[test]
fn a_batch_goes_in_whole_or_is_refused_while_the_timer_closes_as_it_is_empty() {
    sample(RUNS, || {
        let timer = timer();
        timer.add(NOW, ()).unwrap();
        let added = Arc::new(AtomicU32::new(0));
        let of_batch = Arc::clone(&added);
        let batch = move |timer: &Timer<()>| {
            if timer.add_many([(NOW, ()); 5]).is_ok() {
                of_batch.store(5, Ordering::Relaxed);
            }
        };
        let (left, released) = left_and_released(&timer, batch);
        assert_eq!((left, released), (0, 1 + added.load(Ordering::Relaxed) as usize));
    });
}

#[test]
fn a_timer_that_was_dropped_runs_what_is_pending_and_ends() {
    sample(RUNS, || {
        let (outcomes, timer) = (Outcomes::of(2), system());
        let (threads, core) = (threads(&timer), Arc::clone(&timer.timer));
        outcomes.add(&timer, 0, NOW);
        outcomes.add(&timer, 1, SOON);
        let time = spawn(move || pass_time(&core, SOON_US));
        drop(timer);
        join(threads);
        join([time]);
        assert!(outcomes.ran(0) && outcomes.ran(1));
        outcomes.check();
    });
}

#[test]
fn a_timer_that_was_dropped_ends_when_its_last_task_is_cancelled() {
    sample(RUNS, || {
        let (outcomes, timer) = (Outcomes::of(2), system());
        let threads = threads(&timer);
        let tasks = [0, 1].map(|task| outcomes.add(&timer, task, FAR).unwrap());
        let mut number = 0;
        let cancellers = tasks.map(|added| {
            let (outcomes, task) = (outcomes.clone(), number);
            number += 1;
            spawn(move || outcomes.cancel(task, &added))
        });
        drop(timer);
        join(threads);
        join(cancellers);
        outcomes.check();
    });
}

#[test]
fn a_drain_ends_the_reaper_of_a_timer_that_closes_when_it_is_empty() {
    sample(RUNS, || {
        let timer = timer();
        timer.add(When::AfterUs(SOON_US), ()).unwrap();
        timer.close_when_empty();
        let (reaper, _released) = with_reaper(&timer);
        assert_eq!(timer.drain().len(), 1);
        join([reaper]);
    });
}

#[test]
fn a_series_of_a_timer_that_was_dropped_ends_with_the_pending_call__t20() {
    sample(RUNS, || {
        let timer = system();
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let task = timer.every(Every { start: Some(NOW.into()), ..Every::new(SOON) }, move || count(&counted)).unwrap();
        let (threads, core) = (threads(&timer), Arc::clone(&timer.timer));
        drop(timer);
        pass_time(&core, SOON_US);
        join(threads);
        assert_eq!(Arc::strong_count(&calls), 1, "the callback is dropped");
        assert!(!task.cancel(), "the series has ended");
    });
}
