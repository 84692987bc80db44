//! Where released tasks go: one worker thread, or whatever implements the trait.
//!
//! An executor is given tickets, in order. The tasks stay in the timer until the executor claims them, each right
//! before its run. That makes a cancel exact (T9).

use crate::sync::Sender;
use crate::wheel::Ticket;

/// Tickets of tasks that are due: the earlier instant first, then the earlier add.
#[derive(Debug, PartialEq, Eq)]
pub struct Released {
    /// Claim each with [`crate::Timer::claim`].
    pub tickets: Vec<Ticket>,
    /// Whether the same advance will give more. Its last batch says no, and may be empty.
    pub more: bool,
}

/// The last batch of an executor.
#[derive(Debug, Default)]
pub(crate) struct LastBatch {
    /// It has not answered for these.
    pub(crate) tickets: Vec<Ticket>,
    /// It was told that the same advance gives more.
    pub(crate) is_announced: bool,
}

/// Takes what is released. The thread that advances the timer calls it, without any lock; it must not wait.
///
/// A closure that takes a [`Released`] is an executor that refuses nothing.
///
/// ```
/// use std::sync::mpsc::{Sender, channel};
/// use std::time::Duration;
/// use tickwheel::{Clock, Config, Executor, Released, Ticket, Timer};
///
/// /// A queue to another thread.
/// struct Queue(Sender<Ticket>);
///
/// impl Executor for Queue {
///     fn execute(&mut self, released: Released) -> Result<(), Released> {
///         let Released { mut tickets, more } = released;
///         let sent = tickets.iter().take_while(|ticket| self.0.send(**ticket).is_ok()).count();
///         tickets.drain(..sent);
///         if tickets.is_empty() { Ok(()) } else { Err(Released { tickets, more }) }
///     }
/// }
///
/// let timer = Timer::new(&Config::default(), Clock::manual(0))?;
/// let (send, receive) = channel();
/// timer.add(Duration::ZERO, "now")?;
/// timer.advance(&mut Queue(send));
/// let ticket = receive.recv().expect("it was sent");
/// assert_eq!(timer.claim(ticket).map(|claimed| claimed.task), Some("now"));
/// # Ok::<(), tickwheel::Error>(())
/// ```
pub trait Executor {
    /// Takes a batch.
    ///
    /// # Errors
    /// The part of the batch that the executor refuses, all or some. Those tasks do not run: the timer takes them out, and
    /// [`take_rejected`](crate::Timer::take_rejected) gives them back, to be added again. A panic counts as a refusal of every task of the batch
    /// that is not claimed by then.
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
