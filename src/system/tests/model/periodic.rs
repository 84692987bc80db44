//! A cancel of a periodic task against its calls, and a shutdown against both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::{NOW, RUNS, SOON, SOON_US, count, join, pass_time, sample, spawn, system};
use crate::every::Every;

#[test]
fn no_call_of_a_periodic_task_begins_after_its_cancel__t9_t20() {
    let (ran, stopped) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let seen = (Arc::clone(&ran), Arc::clone(&stopped));
    sample(RUNS, move || {
        let timer = system();
        let (is_cancelled, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let late = Arc::new(AtomicU32::new(0));
        let callback = {
            let (is_cancelled, calls, late) = (Arc::clone(&is_cancelled), Arc::clone(&calls), Arc::clone(&late));
            move || {
                count(if is_cancelled.load(Ordering::SeqCst) { &late } else { &calls });
                shuttle::thread::yield_now(); // a callback takes its time
            }
        };
        let task = timer.every(Every { start: Some(NOW.into()), ..Every::new(SOON) }, callback).unwrap();
        let clock = {
            let timer = Arc::clone(&timer);
            spawn(move || pass_time(&timer.timer, SOON_US))
        };
        assert!(task.cancel(), "it was the only one");
        is_cancelled.store(true, Ordering::SeqCst);
        join([clock]);
        assert!(timer.shutdown(None).is_empty());
        assert_eq!(late.load(Ordering::SeqCst), 0, "a call began after the cancel");
        assert_eq!(Arc::strong_count(&calls), 1, "the callback is dropped with the series");
        count(if calls.load(Ordering::SeqCst) > 0 { &ran } else { &stopped });
    });
    assert!(seen.0.load(Ordering::Relaxed) > 0, "no call ever ran");
    assert!(seen.1.load(Ordering::Relaxed) > 0, "the cancel was never first");
}

#[test]
fn a_shutdown_returns_the_pending_call_of_a_series_or_ends_it__t11_t20() {
    sample(RUNS, || {
        let timer = system();
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let task = timer.every(Every { start: Some(NOW.into()), ..Every::new(SOON) }, move || count(&counted)).unwrap();
        let unfinished = timer.shutdown(None);
        assert!(unfinished.len() <= 1);
        assert_eq!(calls.load(Ordering::SeqCst), 1, "the first call was due");
        // One that the shutdown returned can still be stopped.
        assert_eq!(task.cancel(), unfinished.len() == 1);
        unfinished.into_iter().for_each(|pending| (pending.task)());
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert_eq!(Arc::strong_count(&calls), 1, "the callback is dropped with the series");
    });
}
