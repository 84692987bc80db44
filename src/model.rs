//! What the model tests share: shuttle runs the body of a test under many interleavings of its locks, waits and threads.
//!
//! `RUSTFLAGS="--cfg tickwheel_model" cargo test --lib --target-dir target/model model` runs them. With `-- --nocapture` each
//! prints how many interleavings it went through. `docs/internals/concurrency-proofs.md` lists the tests, and which changes of the code they
//! find. The ground rules:
//!
//! - A wait never times out, so a lost wake-up is a deadlock. shuttle reports it with the schedule that led to it.
//! - Small tests go through [`every`] interleaving, larger ones through a [`sample`] with a fixed seed;
//!   `SHUTTLE_RANDOM_SEED` sets another one.

use std::sync::atomic::{AtomicU32, Ordering};

use shuttle::Runner;
use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};

use crate::sync::{self, JoinHandle};

/// The limit of interleavings for [`every`].
const MAX_INTERLEAVINGS: usize = 2_000_000;
/// The bound of PCT: the number of its preemptions plus one.
const PCT_DEPTH: usize = 4;
const SEED: u64 = 20;
pub(crate) const RUNS: usize = 8_000;

/// Runs the body under every interleaving.
pub(crate) fn every(body: impl Fn() + Send + Sync + 'static) {
    let runs = run(DfsScheduler::new(Some(MAX_INTERLEAVINGS), false), body);
    assert!(runs < MAX_INTERLEAVINGS, "more than {MAX_INTERLEAVINGS} interleavings: take a sample of them");
    println!("every one of {runs} interleavings");
}

/// Runs the body under `runs` random interleavings, and as many by probabilistic concurrency testing (PCT).
pub(crate) fn sample(runs: usize, body: impl Fn() + Send + Sync + Clone + 'static) {
    run(RandomScheduler::new_from_seed(SEED, runs), body.clone());
    run(PctScheduler::new_from_seed(SEED, PCT_DEPTH, runs), body);
    println!("a sample of {runs} random and {runs} PCT interleavings");
}

fn run(scheduler: impl Scheduler + 'static, body: impl Fn() + Send + Sync + 'static) -> usize {
    let mut config = shuttle::Config::default();
    config.silence_warnings = true; // shuttle warns that it treats atomics as sequentially consistent
    Runner::new(scheduler, config).run(body)
}

pub(crate) fn spawn(body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    sync::spawn("test", body).expect("a model can always start a thread")
}

pub(crate) fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("it did not panic");
    }
}

pub(crate) fn count(counter: &AtomicU32) {
    counter.fetch_add(1, Ordering::Relaxed);
}
