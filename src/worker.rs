//! The worker: it runs released tasks one after another, and drives the timer while it has none to run.

use std::sync::Arc;

use crate::executor::Released;
use crate::panics;
use crate::sync::{PlainMutex, Receiver, Sender};
use crate::timer::Timer;

/// How the worker waits for the next batch: for the timer where it may, otherwise at its queue.
pub struct Waiting<'a, T> {
    timer: &'a Timer<T>,
    /// The worker puts on its own queue what it releases, so the batches of all threads are in one order. It leads only
    /// while this is set, and holds a copy only while it leads: otherwise the queue would never end.
    sender: &'a PlainMutex<Option<Sender<Released>>>,
}

impl<'a, T> Waiting<'a, T> {
    /// Waits on the timer itself; what another thread releases comes by the queue of `sender`.
    pub fn new(timer: &'a Timer<T>, sender: &'a PlainMutex<Option<Sender<Released>>>) -> Self {
        Self { timer, sender }
    }

    /// Waits for the next batch; `None` when the timer has ended and all senders are dropped. The worker leads only
    /// if no task waits on its queue.
    pub fn next(&self, queue: &mut Receiver<Released>) -> Option<Released> {
        let sender = self.sender.lock().clone();
        if let Some(mut sender) = sender {
            while self.timer.lead(self.timer.slack()) {
                let mut has_given = false;
                let has_returned = panics::contain(|| has_given = self.timer.advance_one_step(&mut sender));
                if !has_returned {
                    self.timer.leave_to_reaper(); // a fault of the timer's own: the reaper meets it too, and ends
                }
                if has_given || !has_returned {
                    break;
                }
            }
        } else {
            self.timer.leave_to_reaper();
        }
        queue.recv().ok()
    }
}

/// Runs what is released, one task after another, until all senders are dropped. A task that panics stops no other task.
pub(crate) fn run_released<T>(
    timer: &Arc<Timer<T>>,
    sender: &PlainMutex<Option<Sender<Released>>>,
    queue: &mut Receiver<Released>,
    mut run: impl FnMut(T),
) {
    let waiting = Waiting::new(timer, sender);
    while let Some(released) = waiting.next(queue) {
        for ticket in released.tickets {
            if let Some(claimed) = timer.claim(ticket) {
                panics::contain(|| claimed.run(&mut run));
            }
        }
    }
}

#[cfg(all(test, not(any(tickwheel_model, tickwheel_loom))))]
mod tests;
