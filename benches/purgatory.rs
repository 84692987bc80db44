//! The cost of a wait in the purgatory: an operation is watched under one of 10,000 keys and completed by its key. The
//! cost of an add and a cancel of the timer is measured in the same run.
//!
//! `cargo bench --bench purgatory` prints medians in nanoseconds for one operation. The two are measured in turn. The
//! deadline of the operation is on the same kind of timer, so an add and a cancel are part of the wait.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tickwheel::{Config, DelayedOperation, DelayedOperationPurgatory, Operation, SystemTimer};

const KEYS: u32 = 10_000;
const REPEATS: usize = 51;
const HOUR: Duration = Duration::from_secs(3600);

struct Flag(AtomicBool);

impl DelayedOperation for Flag {
    type Key = u32;

    fn try_complete(this: &Operation<Self>) -> bool {
        this.0.load(Ordering::Relaxed) && this.force_complete()
    }

    fn on_complete(&self) {}
}

fn main() {
    let timer = Arc::new(SystemTimer::new("bench", &Config::default()).expect("the default settings are good"));
    let purgatory = DelayedOperationPurgatory::new(Arc::clone(&timer), true);
    let mut rounds: [Vec<f64>; 4] = Default::default();
    for _ in 0..REPEATS {
        for (times, time) in rounds.iter_mut().zip([time_timer(&timer), time_purgatory(&purgatory)].concat()) {
            times.push(time);
        }
    }
    let [add, cancel, watch, complete] = rounds.map(median);
    println!("{KEYS} live, median of {REPEATS} rounds, ns per operation");
    println!("timer       add   {add:6.0}   cancel   {cancel:6.0}   both {:6.0}", add + cancel);
    println!("purgatory   watch {watch:6.0}   complete {complete:6.0}   both {:6.0}", watch + complete);
    println!("ratio       {:.2} (aim: at most 3)", (watch + complete) / (add + cancel));
    assert_eq!((purgatory.watched(), purgatory.num_delayed(), timer.len()), (0, 0, 0), "nothing is left behind");
    timer.shutdown(None);
}

fn time_timer(timer: &SystemTimer) -> [f64; 2] {
    let mut tasks = Vec::with_capacity(KEYS as usize);
    let add = Instant::now();
    for key in 0..KEYS {
        tasks.push(
            timer
                .after(HOUR, move || {
                    black_box(key);
                })
                .expect("the timer is open"),
        );
    }
    let cancel = Instant::now();
    for task in &tasks {
        assert!(task.cancel());
    }
    [nanos(cancel - add), nanos(cancel.elapsed())]
}

fn time_purgatory(purgatory: &DelayedOperationPurgatory<Flag>) -> [f64; 2] {
    let operations: Vec<_> = (0..KEYS).map(|_| Operation::new(HOUR, Flag(AtomicBool::new(false)))).collect();
    let watch = Instant::now();
    for (key, operation) in (0..).zip(&operations) {
        assert_eq!(purgatory.try_complete_else_watch(operation, [key]), Ok(false));
    }
    let watched = watch.elapsed();
    for operation in &operations {
        operation.0.store(true, Ordering::Relaxed);
    }
    let complete = Instant::now();
    for key in 0..KEYS {
        assert_eq!(purgatory.check_and_complete(&key), 1);
    }
    [nanos(watched), nanos(complete.elapsed())]
}

fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64 / f64::from(KEYS)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
