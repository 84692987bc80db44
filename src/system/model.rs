//! Model tests: shuttle runs the real code under many interleavings of its locks, waits, queues and threads.
//!
//! `RUSTFLAGS="--cfg tickwheel_model" cargo test --lib --target-dir target/model model` runs them, with `-- --nocapture`
//! they say how many interleavings each went through. `docs/concurrency.md` lists them, and which mutations of the code
//! they catch. The ground rules:
//!
//! - A wait never times out, so a lost wake-up is a deadlock, which shuttle reports with the schedule that led to it.
//! - The clock stands at 0 until [`pass_time`] moves it and lets the sleeps end that would have ended by then.
//! - Small tests go through [`every`] interleaving, larger ones through a [`sample`] with a fixed seed;
//!   `SHUTTLE_RANDOM_SEED` takes another.
//! - A panic inside a callback is caught by the worker: callbacks write down, and the test's own thread judges.

mod claiming;
mod dropping;
mod ending;
mod order;
mod waking;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use shuttle::Runner;
use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};

use super::{Callback, SystemTimer, Task};
use crate::clock::Clock;
use crate::config::Config;
use crate::error::Error;
use crate::executor::Released;
use crate::reaper;
use crate::sync::{self, JoinHandle, Receiver, unbounded};
use crate::timer::{Pending, Timer};
use crate::wheel::Handle;

/// More interleavings than this are too many for [`every`].
const TOO_MANY: usize = 200_000;
/// How often in a row a [`sample`] with PCT takes the turn away from the thread that would go on.
const PCT_DEPTH: usize = 4;
const SEED: u64 = 20;
const RUNS: usize = 8_000;

const NOW: Duration = Duration::ZERO;
const SOON: Duration = Duration::from_millis(25);
const SOON_US: u64 = 25_000;
const FAR: Duration = Duration::from_secs(3600);

/// Runs the body under every interleaving there is.
fn every(body: impl Fn() + Send + Sync + 'static) {
    let runs = run(DfsScheduler::new(Some(TOO_MANY), false), body);
    assert!(runs < TOO_MANY, "more than {TOO_MANY} interleavings: take a sample of them");
    println!("every one of {runs} interleavings");
}

/// Runs the body under `runs` interleavings at random, and as many by probabilistic concurrency testing.
fn sample(runs: usize, body: impl Fn() + Send + Sync + Clone + 'static) {
    run(RandomScheduler::new_from_seed(SEED, runs), body.clone());
    run(PctScheduler::new_from_seed(SEED, PCT_DEPTH, runs), body);
    println!("a sample of {runs} random and {runs} PCT interleavings");
}

fn run(scheduler: impl Scheduler + 'static, body: impl Fn() + Send + Sync + 'static) -> usize {
    let mut config = shuttle::Config::default();
    config.silence_warnings = true; // about atomics: the only one of the core is the manual clock
    Runner::new(scheduler, config).run(body)
}

fn spawn(body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    sync::spawn("test".to_owned(), body).expect("a model always has room for a thread")
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("it did not panic");
    }
}

/// Without slack: a sleep that is held up to its floor would need [`pass_time`] to end.
fn config() -> Config {
    Config { slack_us: 0, ..Config::default() }
}

fn timer<T>() -> Arc<Timer<T>> {
    Arc::new(Timer::new(&config(), Clock::manual(0)).expect("the settings are allowed"))
}

/// A reaper for a timer without an executor, and what it released.
fn with_reaper<T: Send + 'static>(timer: &Arc<Timer<T>>) -> (JoinHandle<()>, Receiver<Released>) {
    let (mut queue, released) = unbounded();
    let timer = Arc::clone(timer);
    (spawn(move || reaper::run(&timer, &mut queue)), released)
}

/// Advances to now; what was released.
fn advance<T>(timer: &Timer<T>) -> Vec<Handle> {
    let mut handles = Vec::new();
    timer.advance(&mut |released: Released| handles.extend(released.handles));
    handles
}

fn system() -> Arc<SystemTimer> {
    let timer = SystemTimer::on_clock("model", &config(), Clock::manual(0));
    Arc::new(timer.expect("the settings are allowed"))
}

/// Moves the clock, and lets every sleep end that would have ended by then. A reaper that read the clock before the move
/// holds the lock until it sleeps, so none misses it.
fn pass_time<T>(timer: &Timer<T>, now_us: u64) {
    timer.clock().set_us(now_us);
    drop(timer.lock());
    timer.wake_if(true);
}

/// What became of each task; exactly one thing may.
#[derive(Clone)]
struct Books(Arc<Vec<Fate>>);

#[derive(Debug, Default)]
struct Fate {
    ran: AtomicU32,
    cancelled: AtomicU32,
    /// By a shutdown, still pending.
    returned: AtomicU32,
    /// By an add, because the timer was closed.
    refused: AtomicU32,
}

impl Books {
    fn of(tasks: usize) -> Self {
        Self(Arc::new((0..tasks).map(|_| Fate::default()).collect()))
    }

    fn add(&self, timer: &SystemTimer, task: usize, delay: Duration) -> Option<Task> {
        let books = self.clone();
        match timer.after(delay, move || books.called(task)) {
            Ok(added) => Some(added),
            Err(Error::Closed) => {
                count(&self.0[task].refused);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// By the worker, or by whoever looks through what a shutdown returned.
    fn called(&self, task: usize) {
        shuttle::thread::yield_now(); // a callback takes its time
        let is_worker = sync::current_thread().name() == Some("executor-model");
        count(if is_worker { &self.0[task].ran } else { &self.0[task].returned });
    }

    fn cancel(&self, task: usize, added: &Task) {
        if added.cancel() {
            count(&self.0[task].cancelled);
        }
    }

    fn ran(&self, task: usize) -> bool {
        self.0[task].ran.load(Ordering::Relaxed) > 0
    }

    fn close(&self) {
        for (task, fate) in self.0.iter().enumerate() {
            let ways = [&fate.ran, &fate.cancelled, &fate.returned, &fate.refused];
            let times: u32 = ways.iter().map(|way| way.load(Ordering::Relaxed)).sum();
            assert_eq!(times, 1, "task {task}: {fate:?}");
        }
    }
}

/// Calls what a shutdown returned, so that it is counted as returned.
fn look_through(unfinished: Vec<Pending<Callback>>) {
    for pending in unfinished {
        (pending.task)();
    }
}

fn count(counter: &AtomicU32) {
    counter.fetch_add(1, Ordering::Relaxed);
}
