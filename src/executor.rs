//! Where released tasks go: one worker thread, or whatever implements the trait.
//!
//! What is given to it are handles, in order; the tasks stay in the timer until the executor claims them one by one,
//! each right before it runs. That is what makes a cancel exact (T9).

#![forbid(unsafe_code)]

use crate::sync::Sender;
use crate::wheel::Handle;

/// Handles of tasks that are due, in the order of T6.
#[derive(Debug, PartialEq, Eq)]
pub struct Released {
    /// Claim each with [`crate::Timer::claim`].
    pub handles: Vec<Handle>,
    /// Whether more of the same advance is on its way; the last batch of it says no, and may be empty.
    pub more: bool,
}

/// Takes what is released. Called by the thread that advances the timer, without any lock; it must not wait.
///
/// A closure that takes a [`Released`] is an executor that refuses nothing.
pub trait Executor {
    /// Takes a batch.
    ///
    /// # Errors
    /// The part of it that the executor refuses, all or some: those tasks do not run. The timer takes them out, and
    /// [`crate::Timer::take_rejected`] gives them back, to be added again. A panic counts as a refusal of every task of the batch
    /// that was not claimed by then.
    fn execute(&mut self, released: Released) -> Result<(), Released>;
}

impl<F: FnMut(Released)> Executor for F {
    fn execute(&mut self, released: Released) -> Result<(), Released> {
        self(released);
        Ok(())
    }
}

/// The queue before a worker: unbounded, so that the reaper never waits for a callback (T8). It refuses once no worker
/// receives any more.
impl Executor for Sender<Released> {
    fn execute(&mut self, released: Released) -> Result<(), Released> {
        self.send(released).map_err(|error| error.0)
    }
}
