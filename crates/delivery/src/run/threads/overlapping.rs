//! A sender with a [`ReplySink`]: it answers each message later, so one thread has many messages in flight (rules D4, D6,
//! D8).
//!
//! ```text
//! take -> start -> (the sink, on its own) -> Reply::settle -> outcomes
//!   ^                                              |
//!   +------------- a place is free ----------------+
//! ```
//!
//! - Each message is a send of its own, with its own time-out. A key still has at most one message in flight.
//! - A message takes a place from its start until its [`Reply`] is used or dropped: [`places`](crate::due::places). If
//!   it is cut off, it keeps its place until the sink has stopped working on it. So a sink never has more messages than
//!   its own limits, the settings (D18) and the limits for bytes allow.
//! - While the engine is closing, messages that are due by then are still started. The sink has until the time-out to
//!   answer. Then sends without an answer are aborted, and later answers are ignored. If the sink does not end them
//!   either, messages that wait for their places stay in the store.
//! - Places change under the dispatcher's lock, so that no notification of a free place is lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use super::senders::{caught, own_fault_caught};
use super::shared::{ABORT, Shared};
use crate::base::error::DeliveryError;
use crate::due::dispatcher::Event;
use crate::sinks::{Delivery, Opened, Replies, Reply, ReplySink, Verdict, Verdicts};

/// How many messages are taken under one hold of the lock. The first of many does not wait for the last.
const TAKEN_AT_ONCE: usize = 64;

/// Receives the sink's answers.
struct Answers {
    shared: Weak<Shared>,
    is_over: AtomicBool,
}

/// The sender's next actions, done without a lock.
#[derive(Default)]
struct Step {
    started: Vec<(u64, Delivery)>,
    cut_off: Vec<u64>,
    is_over: bool,
}

impl Shared {
    pub(super) fn send_overlapping(self: &Arc<Self>, number: u64, mut sink: Box<dyn ReplySink>) {
        if let Err(error) = own_fault_caught(|| self.start_until_over(&mut *sink)) {
            self.fail(&error);
        }
        self.end_sender(number, Opened::ReplySink(sink));
    }

    /// # Errors
    /// The sink failed for good.
    fn start_until_over(self: &Arc<Self>, sink: &mut dyn ReplySink) -> Result<(), DeliveryError> {
        let is_cut_off = caught(|| Ok(sink.is_cut_off()))?;
        let answers = Arc::new(Answers { shared: Arc::downgrade(self), is_over: AtomicBool::new(false) });
        let mut is_draining = false;
        loop {
            let step = self.next_step(&answers, is_cut_off, &mut is_draining);
            for number in step.cut_off {
                caught(|| {
                    sink.abort(number);
                    Ok(())
                })?;
            }
            for (number, delivery) in step.started {
                let reply = Reply::new(number, answers.clone());
                if let Err(error) = caught(|| sink.start(delivery, reply)) {
                    self.fail(&error);
                }
            }
            if step.is_over {
                return Ok(());
            }
        }
    }

    /// Waits until there is a message to start or to abort, or the end.
    fn next_step(&self, answers: &Answers, is_cut_off: bool, is_draining: &mut bool) -> Step {
        let engine = &self.engine;
        let mut step = Step::default();
        let mut dispatcher = engine.lock_dispatcher();
        loop {
            let is_closing = self.is_closing.load(Ordering::SeqCst);
            while step.started.len() < TAKEN_AT_ONCE {
                // Once it is draining, it only handles the timer, because sends may have to be cut off.
                let most = usize::from(!*is_draining);
                let taken = engine.take_locked(&mut dispatcher, most, usize::MAX, is_cut_off);
                if let Some((number, deliveries)) = taken {
                    step.started.extend(deliveries.into_iter().map(|delivery| (number, delivery)));
                } else if !dispatcher.has_more_to_pass() {
                    *is_draining |= is_closing && !dispatcher.has_more_to_send(ABORT);
                    break;
                }
            }
            for event in &dispatcher.events {
                if let Event::CutOff { flight, .. } = event {
                    step.cut_off.push(*flight);
                }
            }
            if !dispatcher.events.is_empty() {
                self.tell(std::mem::take(&mut dispatcher.events));
            }
            step.is_over =
                dispatcher.is_halted || (*is_draining && dispatcher.to.iter().all(|it| it.places.only_hang(0)));
            if dispatcher.is_halted {
                answers.is_over.store(true, Ordering::Relaxed);
            }
            if step.is_over || !step.started.is_empty() || !step.cut_off.is_empty() {
                return step;
            }
            if self.is_time_to_look_at_clock() && dispatcher.follow_clock() {
                engine.queue.wake();
                continue;
            }
            dispatcher = self.lead(dispatcher);
        }
    }
}

impl Replies for Answers {
    fn settle(&self, number: u64, verdict: Verdict) {
        let Some(shared) = self.shared.upgrade() else { return };
        let engine = &shared.engine;
        let mut dispatcher = engine.lock_dispatcher();
        let is_delivered = verdict == Verdict::Delivered;
        if self.is_over.load(Ordering::Relaxed) {
            dispatcher.free_place(number);
        } else {
            engine.settle_locked(&mut dispatcher, number, Verdicts::Each(vec![verdict]), None);
        }
        let is_wanted = dispatcher.has_ready()
            || !dispatcher.events.is_empty()
            || shared.is_closing.load(Ordering::SeqCst)
            // The message or the destination may be tried again before the first alarm on the timer. Or the next send
            // moves to the spare place that is free now.
            || ((!is_delivered || dispatcher.waits_for_place()) && shared.leader_sleeps_too_long());
        if is_wanted {
            shared.leader.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
