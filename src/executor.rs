//! Where released tasks go: one worker thread, or whoever implements the trait.
//!
//! What is handed over are handles, in order; the tasks stay in the timer until the executor claims them one by one,
//! each right before it runs. That is what makes a cancel exact (T9).

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::sync::{Receiver, Sender};
use crate::timer::Timer;
use crate::wheel::Handle;

/// Handles of tasks that are due, in the order of T6.
#[derive(Debug)]
pub struct Released {
    /// Claim each with [`Timer::claim`].
    pub handles: Vec<Handle>,
    /// Whether more of the same advance is on its way; the last batch of it says no, and may be empty.
    pub more: bool,
}

/// Takes what is released. Called by the reaper's thread, without any lock; it must not wait.
pub trait Executor {
    /// Takes a batch over.
    fn execute(&mut self, released: Released);
}

impl<F: FnMut(Released)> Executor for F {
    fn execute(&mut self, released: Released) {
        self(released);
    }
}

/// The queue before a worker: unbounded, so that the reaper never waits for a callback (T8).
impl Executor for Sender<Released> {
    fn execute(&mut self, released: Released) {
        // Nobody receives any more only once the timer is closed; then the tasks are found still pending.
        let _ = self.send(released);
    }
}

/// Runs what is released, one task after another, until every sender is gone.
pub(crate) fn work<T>(timer: &Arc<Timer<T>>, queue: &Receiver<Released>, mut run: impl FnMut(T)) {
    while let Ok(released) = queue.recv() {
        for handle in released.handles {
            if let Some(claimed) = timer.claim(handle) {
                run(claimed.task);
                timer.finish(1);
            }
        }
    }
}
