//! Model tests of the timer, its two threads and `SystemTimer`, on `crate::model`.
//!
//! - The clock is at 0 until [`pass_time`] moves it and ends the sleeps that would have ended by then.
//! - The worker catches a panic inside a callback. So callbacks count, and the test's own thread asserts.

mod claiming;
mod dropping;
mod ending;
mod leading;
mod order;
mod periodic;
mod waking;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::super::{Callback, SystemTimer, Task};
use crate::clock::Clock;
use crate::config::Config;
use crate::error::Error;
use crate::executor::Released;
use crate::model::{RUNS, count, every, join, sample, spawn};
use crate::state::Pending;
use crate::sync::{self, JoinHandle, Receiver, unbounded};
use crate::timer::Timer;
use crate::wheel::Ticket;

const NOW: Duration = Duration::ZERO;
const SOON: Duration = Duration::from_millis(25);
const SOON_US: u64 = 25_000;
const FAR: Duration = Duration::from_secs(3600);

/// Without slack: a sleep to its floor would end only with [`pass_time`].
fn config() -> Config {
    Config { slack_us: 0, ..Config::default() }
}

fn timer<T>() -> Arc<Timer<T>> {
    Arc::new(Timer::new(&config(), Clock::manual(0)).expect("the settings are allowed"))
}

/// Starts a reaper for a timer; returns its thread, and the queue of what it releases.
fn with_reaper<T: Send + 'static>(timer: &Arc<Timer<T>>) -> (JoinHandle<()>, Receiver<Released>) {
    let (mut queue, released) = unbounded();
    let timer = Arc::clone(timer);
    (spawn(move || timer.drive(&mut queue)), released)
}

/// Advances to now; returns what was released.
fn advance<T>(timer: &Timer<T>) -> Vec<Ticket> {
    let mut tickets = Vec::new();
    timer.advance(&mut |released: Released| tickets.extend(released.tickets));
    tickets
}

fn system() -> Arc<SystemTimer> {
    let timer = SystemTimer::on_clock("model", &config(), Clock::manual(0));
    Arc::new(timer.expect("the settings are allowed"))
}

/// Moves the clock, and ends each sleep that would have ended by then, and no other.
fn pass_time<T>(timer: &Timer<T>, now_us: u64) {
    timer.clock().set_us(now_us);
    timer.end_due_sleeps();
}

/// What happened to each task: exactly one of four.
#[derive(Clone)]
struct Outcomes(Arc<Vec<Outcome>>);

#[derive(Debug, Default)]
struct Outcome {
    ran: AtomicU32,
    cancelled: AtomicU32,
    /// By a shutdown, still pending.
    returned: AtomicU32,
    /// By an add, because the timer was closed.
    refused: AtomicU32,
}

impl Outcomes {
    fn of(tasks: usize) -> Self {
        Self(Arc::new((0..tasks).map(|_| Outcome::default()).collect()))
    }

    fn add(&self, timer: &SystemTimer, task: usize, delay: Duration) -> Option<Task> {
        let outcomes = self.clone();
        match timer.after(delay, move || outcomes.called(task)) {
            Ok(added) => Some(added),
            Err(refused) => {
                assert_eq!(*refused.error(), Error::Closed);
                count(&self.0[task].refused);
                None
            }
        }
    }

    /// Called by the worker, or by [`look_through`] for what a shutdown returned.
    fn called(&self, task: usize) {
        shuttle::thread::yield_now(); // other threads run during a callback
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

    fn check(&self) {
        for (task, outcome) in self.0.iter().enumerate() {
            let ways = [&outcome.ran, &outcome.cancelled, &outcome.returned, &outcome.refused];
            let times: u32 = ways.iter().map(|way| way.load(Ordering::Relaxed)).sum();
            assert_eq!(times, 1, "task {task}: {outcome:?}");
        }
    }
}

/// Calls what a shutdown returned, so that it is counted as returned.
fn look_through(unfinished: Vec<Pending<Callback>>) {
    for pending in unfinished {
        (pending.task)();
    }
}
