//! A sender whose sink answers each message later, so that one thread has many in flight (rules D4, D6, D8).
//!
//! ```text
//! take -> start -> (the sink, on its own) -> Reply::settle -> outcomes
//!   ^                                              |
//!   +------------- a place is free ----------------+
//! ```
//!
//! - Each message is a send of its own, with its own time-out. A key still has at most one in flight.
//! - A message takes a place from its start until its [`Reply`] is used or dropped. One that is cut off keeps its place until
//!   the sink has ended what it does for it. So a sink never has more at a time than it said, than the
//!   settings allow (D18), or than so many bytes.
//! - While the engine is closing, what is due by then is still started; then the sink has until the time-out to answer.
//!   What it has not answered is aborted, and no answer is heard any more.
//! - The counts of places change under the dispatcher's lock, so that no notification of a free one is lost.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use super::senders::{caught, own_fault_caught};
use super::shared::Shared;
use crate::base::error::DeliveryError;
use crate::due::dispatcher::Event;
use crate::sinks::{Delivery, Replies, Reply, Sink, Verdict, Verdicts};

/// How many messages are taken under one lock, so that the first of many does not wait for the last.
const TAKEN_AT_ONCE: usize = 64;

/// How much the sink has in its hands.
struct Places {
    shared: Weak<Shared>,
    messages: AtomicUsize,
    bytes: AtomicUsize,
    most: usize,
    most_bytes: usize,
    is_over: AtomicBool,
}

/// What the sender does next, without a lock.
#[derive(Default)]
struct Step {
    started: Vec<(u64, Delivery)>,
    cut_off: Vec<u64>,
    is_over: bool,
}

impl Shared {
    pub(super) fn send_overlapping(self: &Arc<Self>, number: u64, mut sink: Box<dyn Sink>) {
        if let Err(error) = own_fault_caught(|| self.start_until_over(&mut *sink)) {
            self.fail(&error);
        }
        self.end_sender(number, sink, true);
    }

    /// # Errors
    /// The sink failed for good.
    fn start_until_over(self: &Arc<Self>, sink: &mut dyn Sink) -> Result<(), DeliveryError> {
        let (overlap, most_bytes, is_cut_off) = caught(|| Ok((sink.overlap(), sink.max_bytes(), sink.is_cut_off())))?;
        let places = Arc::new(Places {
            shared: Arc::downgrade(self),
            messages: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            most: overlap.min(self.engine.settings.concurrency),
            most_bytes,
            is_over: AtomicBool::new(false),
        });
        let mut is_draining = false;
        loop {
            let step = self.next_step(&places, is_cut_off, &mut is_draining);
            for number in step.cut_off {
                caught(|| {
                    sink.abort(number);
                    Ok(())
                })?;
            }
            for (number, delivery) in step.started {
                let reply = Reply::new(number, delivery.body.size(), places.clone());
                if let Err(error) = caught(|| sink.start(delivery, reply)) {
                    self.fail(&error);
                }
            }
            if step.is_over {
                return Ok(());
            }
        }
    }

    /// Waits until there is something to start or to abort, or nothing any more.
    fn next_step(&self, places: &Places, is_cut_off: bool, is_draining: &mut bool) -> Step {
        let engine = &self.engine;
        let mut step = Step::default();
        let mut dispatcher = engine.lock_dispatcher();
        loop {
            let is_closing = self.is_closing.load(Ordering::SeqCst);
            while step.started.len() < TAKEN_AT_ONCE {
                let has_room = places.has_room() && !*is_draining;
                // With no room it takes from the timer only: sends may have to be cut off.
                let taken = engine.take_locked(&mut dispatcher, usize::from(has_room), usize::MAX, is_cut_off);
                let Some((number, deliveries)) = taken else {
                    *is_draining |= is_closing && has_room;
                    break;
                };
                for delivery in deliveries {
                    places.take(delivery.body.size());
                    step.started.push((number, delivery));
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
            step.is_over = dispatcher.is_halted || (*is_draining && places.are_free());
            if dispatcher.is_halted {
                places.is_over.store(true, Ordering::Relaxed);
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

impl Places {
    fn has_room(&self) -> bool {
        self.messages.load(Ordering::Relaxed) < self.most && self.bytes.load(Ordering::Relaxed) < self.most_bytes
    }

    fn are_free(&self) -> bool {
        self.messages.load(Ordering::Relaxed) == 0
    }

    fn take(&self, size: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(size, Ordering::Relaxed);
    }
}

impl Replies for Places {
    fn settle(&self, number: u64, size: usize, verdict: Verdict) {
        let Some(shared) = self.shared.upgrade() else { return };
        let engine = &shared.engine;
        let mut dispatcher = engine.lock_dispatcher();
        let was_full = !self.has_room();
        self.messages.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(size, Ordering::Relaxed);
        let is_delivered = verdict == Verdict::Delivered;
        if !self.is_over.load(Ordering::Relaxed) {
            engine.settle_locked(&mut dispatcher, number, Verdicts::Each(vec![verdict]), None);
        }
        let is_wanted = was_full
            || dispatcher.has_ready()
            || !dispatcher.events.is_empty()
            || shared.is_closing.load(Ordering::SeqCst)
            // It may be tried again, or the destination probed, before all that was on the timer.
            || (!is_delivered && shared.leader_sleeps_too_long());
        if is_wanted {
            shared.leader.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
