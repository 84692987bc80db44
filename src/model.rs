//! What the model tests share: shuttle runs a test's body under many interleavings of its locks, waits and threads.
//!
//! `RUSTFLAGS="--cfg tickwheel_model" cargo test --lib --target-dir target/model model` runs them, with `-- --nocapture`
//! they say how many interleavings each went through. `docs/concurrency.md` lists them, and which mutations of the code
//! they catch. The ground rules:
//!
//! - A wait never times out, so a lost wake-up is a deadlock, which shuttle reports with the schedule that led to it.
//! - Small tests go through [`every`] interleaving, larger ones through a [`sample`] with a fixed seed;
//!   `SHUTTLE_RANDOM_SEED` takes another.

use std::sync::atomic::{AtomicU32, Ordering};

use shuttle::Runner;
use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};

use crate::sync::{self, JoinHandle};

/// More interleavings than this are too many for [`every`].
const TOO_MANY: usize = 200_000;
/// How often in a row a [`sample`] with PCT takes the turn away from the thread that would go on.
const PCT_DEPTH: usize = 4;
const SEED: u64 = 20;
pub(crate) const RUNS: usize = 8_000;

/// Runs the body under every interleaving there is.
pub(crate) fn every(body: impl Fn() + Send + Sync + 'static) {
    let runs = run(DfsScheduler::new(Some(TOO_MANY), false), body);
    assert!(runs < TOO_MANY, "more than {TOO_MANY} interleavings: take a sample of them");
    println!("every one of {runs} interleavings");
}

/// Runs the body under `runs` interleavings at random, and as many by probabilistic concurrency testing.
pub(crate) fn sample(runs: usize, body: impl Fn() + Send + Sync + Clone + 'static) {
    run(RandomScheduler::new_from_seed(SEED, runs), body.clone());
    run(PctScheduler::new_from_seed(SEED, PCT_DEPTH, runs), body);
    println!("a sample of {runs} random and {runs} PCT interleavings");
}

fn run(scheduler: impl Scheduler + 'static, body: impl Fn() + Send + Sync + 'static) -> usize {
    let mut config = shuttle::Config::default();
    config.silence_warnings = true; // about atomics: they are taken as sequentially consistent
    Runner::new(scheduler, config).run(body)
}

pub(crate) fn spawn(body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    sync::spawn("test", body).expect("a model always has room for a thread")
}

pub(crate) fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("it did not panic");
    }
}

pub(crate) fn count(counter: &AtomicU32) {
    counter.fetch_add(1, Ordering::Relaxed);
}
