//! The threads that send: one waits for the timer, the others for it; one that hangs is replaced (rules D4, D6).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::shared::{ABORT, LOOK_AT_CLOCK, LOOK_AT_CLOCK_US, MOST_HANGING, Senders, Shared, spawn};
use crate::base::error::DeliveryError;
use crate::base::sync::MutexGuard;
use crate::due::dispatcher::{Dispatcher, Event};
use crate::due::retry::Retry;
use crate::run::sends::Sends;
use crate::sinks::{Delivery, Sink, Turns, Verdict, Verdicts};

const REOPEN: Retry = Retry { max_attempts: u32::MAX, first_ms: 200, longest_ms: 10_000 };

/// What a sender sends next.
pub(super) struct Next {
    flight: u64,
    deliveries: Vec<Delivery>,
    turns: Option<Arc<Turns>>,
}

/// What a sink answered: of all, or of the one after those that arrived in turn.
enum Answer {
    OfAll(Verdicts),
    OfTurns(Option<Verdict>),
}

impl Shared {
    pub(super) fn add_sender(self: &Arc<Self>, sink: Box<dyn Sink>) -> Result<(), DeliveryError> {
        let (sync, is_overlapping) = caught(|| Ok((sink.sync(), sink.overlap() > 1)))?;
        let mut senders = self.lock_senders();
        if self.is_closing.load(Ordering::SeqCst) {
            return Ok(()); // opened late: it sends nothing
        }
        let number = senders.next;
        senders.next += 1;
        senders.working.push((number, None));
        senders.syncs.extend(sync.map(|sync| (number, sync)));
        senders.overlapping += usize::from(is_overlapping);
        drop(senders);
        // Without the lock: where the system gives no thread, the sink is dropped here.
        let thread = spawn("sender-deliver", self, move |shared| {
            if is_overlapping { shared.send_overlapping(number, sink) } else { shared.send(number, sink) }
        });
        let mut senders = self.lock_senders();
        match thread {
            Ok(thread) => senders.threads.push(thread),
            Err(error) => {
                senders.working.retain(|(other, _)| *other != number);
                senders.syncs.retain(|(other, _)| *other != number);
                senders.overlapping -= usize::from(is_overlapping);
                return Err(error);
            }
        }
        Ok(())
    }

    pub(super) fn send(self: &Arc<Self>, number: u64, sink: Box<dyn Sink>) {
        let around = match caught(|| Ok(sink.around())) {
            Ok(Some(around)) => around,
            Ok(None) => return self.send_all(number, sink),
            Err(error) => {
                self.fail(&error);
                return self.end_sender(number, sink, false);
            }
        };
        let mut sink = Some(sink);
        around(&mut || {
            if let Some(sink) = sink.take() {
                self.send_all(number, sink);
            }
        });
    }

    pub(super) fn send_all(self: &Arc<Self>, number: u64, mut sink: Box<dyn Sink>) {
        let sent = own_fault_caught(|| self.send_until_over(number, &mut *sink));
        if self.is_forked() {
            std::mem::forget(sink);
            return;
        }
        if let Err(error) = sent {
            self.fail(&error);
        }
        self.end_sender(number, sink, false);
    }

    /// # Errors
    /// The sink failed for good.
    fn send_until_over(self: &Arc<Self>, number: u64, sink: &mut dyn Sink) -> Result<(), DeliveryError> {
        let mut sends = Sends::default();
        while let Some(Next { flight, deliveries, turns }) = self.next(number, sink)? {
            caught(|| {
                sends.tell(&self.engine, sink);
                Ok(())
            })?;
            let sent = caught(|| match &turns {
                Some(turns) => sink.send_in_turn(&deliveries, turns).map(Answer::OfTurns),
                None => sink.send(&deliveries).map(Answer::OfAll),
            });
            // Cut off: another has its place.
            if self.is_forked() || !self.engine.is_in_flight(flight) {
                break;
            }
            match sent? {
                Answer::OfAll(verdicts) => {
                    let position = caught(|| Ok(sink.position()))?;
                    self.engine.settle(flight, verdicts, position);
                }
                Answer::OfTurns(last) => self.engine.settle_turns(flight, last),
            }
            sends.settled(&self.engine);
        }
        Ok(())
    }

    pub(super) fn end_sender(self: &Arc<Self>, number: u64, mut sink: Box<dyn Sink>, is_overlapping: bool) {
        let closed = caught(move || {
            let closed = sink.close();
            drop(sink); // before a close is told that this sender has ended: it keeps nothing of the program's then
            closed
        });
        let mut senders = self.lock_senders();
        senders.overlapping -= usize::from(is_overlapping);
        let was_working = senders.working.iter().any(|(other, _)| *other == number);
        senders.working.retain(|(other, _)| *other != number);
        if was_working {
            if let Err(error) = closed {
                drop(senders);
                self.fail(&DeliveryError::Failed(format!("the destination failed at the end: {error}")));
                senders = self.lock_senders();
            }
        } else {
            senders.hanging -= 1;
        }
        drop(senders);
        self.sender_ended.notify_all();
        self.replace_cut_off();
    }

    /// The next to be sent; waits for it. `None` at the end.
    ///
    /// # Errors
    /// The sink panicked as it was asked for its bounds.
    pub(super) fn next(self: &Arc<Self>, number: u64, sink: &dyn Sink) -> Result<Option<Next>, DeliveryError> {
        let engine = &self.engine;
        let (most, most_bytes) = caught(|| Ok((sink.max_messages(), sink.max_bytes())))?;
        let (is_cut_off, is_in_turn) = caught(|| Ok((sink.is_cut_off(), sink.is_in_turn())))?;
        let mut dispatcher = engine.lock_dispatcher();
        loop {
            let taken = engine.take_locked(&mut dispatcher, most, most_bytes, is_cut_off);
            let is_one_missing = self.hear_events(&mut dispatcher);
            if let Some((flight, deliveries)) = taken {
                let is_kept = self.holds(number, flight);
                if !is_kept {
                    dispatcher.give_back(flight);
                }
                let turns = (is_kept && is_in_turn).then(|| dispatcher.in_turn(flight));
                self.pass_on(&dispatcher);
                drop(dispatcher);
                if is_one_missing {
                    self.replace_cut_off();
                }
                return Ok(is_kept.then_some(Next { flight, deliveries, turns }));
            }
            if is_one_missing {
                drop(dispatcher);
                self.replace_cut_off();
                dispatcher = engine.lock_dispatcher();
                continue;
            }
            if dispatcher.take_more_expired() {
                drop(dispatcher); // others wait for it
                dispatcher = engine.lock_dispatcher();
                continue;
            }
            let is_over = dispatcher.is_halted || self.is_closing.load(Ordering::SeqCst);
            if is_over || !self.is_working(number) {
                self.pass_on(&dispatcher);
                return Ok(None);
            }
            if self.is_time_to_look_at_clock() && dispatcher.follow_clock() {
                engine.queue.wake();
                continue;
            }
            dispatcher = if self.has_leader.load(Ordering::Relaxed) {
                self.pass_on(&dispatcher);
                self.followers.wait(dispatcher)
            } else {
                self.lead(dispatcher)
            };
        }
    }

    /// Waits for the timer.
    pub(super) fn lead<'a>(&self, dispatcher: MutexGuard<'a, Dispatcher>) -> MutexGuard<'a, Dispatcher> {
        let next_us = self.engine.next_wake_us().unwrap_or(u64::MAX);
        let wait = Duration::from_micros(next_us.saturating_sub(self.engine.clock().now_us())).min(LOOK_AT_CLOCK);
        if wait.is_zero() {
            return dispatcher;
        }
        self.has_leader.store(true, Ordering::Relaxed);
        self.sleeps_until_us.store(next_us, Ordering::Relaxed);
        let dispatcher = self.leader.wait_timeout(dispatcher, wait);
        self.has_leader.store(false, Ordering::Relaxed);
        self.sleeps_until_us.store(0, Ordering::Relaxed);
        dispatcher
    }

    /// Another sender goes on where there is more to send, where none waits for the timer, or where the one that waits would
    /// wake up too late. With the dispatcher's lock.
    pub(super) fn pass_on(&self, dispatcher: &Dispatcher) {
        if !self.has_leader.load(Ordering::Relaxed) {
            self.followers.notify_one();
        } else if dispatcher.has_ready() || self.leader_sleeps_too_long() {
            self.leader.notify_one();
        }
    }

    pub(super) fn leader_sleeps_too_long(&self) -> bool {
        self.engine.next_wake_us().is_some_and(|next_us| next_us < self.sleeps_until_us.load(Ordering::Relaxed))
    }

    /// Once a second, whichever sender asks; also where none ever waits. With the dispatcher's lock.
    pub(super) fn is_time_to_look_at_clock(&self) -> bool {
        let now_us = self.engine.clock().now_us();
        let is_time = now_us.saturating_sub(self.looked_at_us.load(Ordering::Relaxed)) >= LOOK_AT_CLOCK_US;
        if is_time {
            self.looked_at_us.store(now_us, Ordering::Relaxed);
        }
        is_time
    }

    pub(super) fn is_working(&self, number: u64) -> bool {
        self.lock_senders().working.iter().any(|(other, _)| *other == number)
    }

    /// Notes what the sender has in hand; `false` if it was cut off meanwhile.
    pub(super) fn holds(&self, number: u64, flight: u64) -> bool {
        let mut senders = self.lock_senders();
        match senders.working.iter_mut().find(|(other, _)| *other == number) {
            Some((_, in_hand)) => {
                *in_hand = Some(flight);
                true
            }
            None => false,
        }
    }

    /// The program is told of everything. Whether a sender was cut off: the caller calls [`Shared::replace_cut_off`] without a
    /// lock, because the system may take its time to start a thread.
    pub(super) fn hear_events(&self, dispatcher: &mut Dispatcher) -> bool {
        if dispatcher.events.is_empty() {
            return false;
        }
        let mut is_one_missing = false;
        let events = std::mem::take(&mut dispatcher.events);
        for event in &events {
            if let Event::CutOff { flight, .. } = event {
                let mut senders = self.lock_senders();
                let Some(place) = senders.working.iter().position(|(_, it)| *it == Some(*flight)) else { continue };
                let (number, _) = senders.working.swap_remove(place);
                senders.syncs.retain(|(other, _)| *other != number);
                senders.hanging += 1;
                senders.missing += 1;
                is_one_missing = true;
            }
        }
        self.tell(events);
        if is_one_missing {
            self.sender_ended.notify_all(); // a close may wait for the one that was cut off
        }
        is_one_missing
    }

    /// For each sender that was cut off a new one begins, while at most [`MOST_HANGING`] are replaced. Where the system gives no
    /// thread, the writer asks again.
    pub(super) fn replace_cut_off(self: &Arc<Self>) {
        loop {
            {
                let mut senders = self.lock_senders();
                let replaced = senders.hanging.saturating_sub(senders.missing);
                if senders.missing == 0 || replaced >= MOST_HANGING {
                    return;
                }
                senders.missing -= 1;
            }
            let opener = self.open_another();
            let mut senders = self.lock_senders();
            let Ok(opener) = opener else {
                senders.missing += 1;
                return;
            };
            senders.threads.push(opener);
        }
    }

    /// A thread opens a sink, as that may take its time; what is due waits for it, and is not counted as tried.
    fn open_another(self: &Arc<Self>) -> Result<JoinHandle<()>, DeliveryError> {
        spawn("opener-deliver", self, |shared| {
            let mut random = Rng::new();
            for attempt in 1.. {
                if shared.is_closing.load(Ordering::SeqCst) {
                    return;
                }
                if let Ok(sink) = caught(|| (shared.open)(shared.engine.store_id())) {
                    if let Err(error) = shared.add_sender(sink) {
                        shared.fail(&error);
                    }
                    return;
                }
                let end = Instant::now() + Duration::from_micros(REOPEN.delay_us(attempt, &mut random));
                let mut senders = shared.lock_senders();
                while !shared.is_closing.load(Ordering::SeqCst) {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    senders = shared.sender_ended.wait_timeout(senders, left);
                }
            }
        })
    }

    /// Every sender ends what it has in hand; whether all did in time.
    pub(super) fn stop_senders(&self) -> bool {
        {
            let _dispatcher = self.engine.lock_dispatcher();
            self.is_closing.store(true, Ordering::SeqCst);
            self.leader.notify_all();
            self.followers.notify_all();
        }
        let mut senders = self.lock_senders(); // first, so that an opener between its look and its wait is not missed
        self.sender_ended.notify_all();
        while !senders.working.is_empty() {
            senders = match self.left() {
                None => self.sender_ended.wait(senders),
                Some(Duration::ZERO) => break,
                Some(left) => self.sender_ended.wait_timeout(senders, left),
            };
        }
        let all_ended = senders.working.is_empty() && senders.hanging == 0;
        drop(senders);
        {
            let mut dispatcher = self.engine.lock_dispatcher();
            dispatcher.halt();
            self.leader.notify_all();
        }
        let end = Instant::now() + ABORT;
        let mut senders = self.lock_senders();
        while senders.overlapping > 0 && Instant::now() < end {
            senders = self.sender_ended.wait_timeout(senders, end.saturating_duration_since(Instant::now()));
        }
        all_ended
    }

    pub(super) fn lock_senders(&self) -> MutexGuard<'_, Senders> {
        self.senders.lock()
    }
}

/// Calls a sink. One that panics has failed for good: nothing is known about the messages that it had.
pub(super) fn caught<T>(call: impl FnOnce() -> Result<T, DeliveryError>) -> Result<T, DeliveryError> {
    or_failed(call, "the destination panicked: see the output of the panic hook")
}

/// Runs a sender's own loop, in which each call of the sink is [`caught`]. A panic of the loop is a fault of this crate. Without
/// this the thread would end in silence, and a close would wait for it.
pub(super) fn own_fault_caught<T>(run: impl FnOnce() -> Result<T, DeliveryError>) -> Result<T, DeliveryError> {
    or_failed(
        run,
        "the engine panicked, which is a fault of tickwheel: see the output of the panic hook, and report it",
    )
}

fn or_failed<T>(call: impl FnOnce() -> Result<T, DeliveryError>, why: &str) -> Result<T, DeliveryError> {
    let failed = |_| DeliveryError::Failed(why.to_owned());
    catch_unwind(AssertUnwindSafe(call)).map_err(failed).and_then(|result| result)
}
