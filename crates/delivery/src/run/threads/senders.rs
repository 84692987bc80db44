//! The threads that send (rules D4, D6). A sender waits for the timer, and the other senders wait for it. Senders are
//! added as they are needed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::shared::{ABORT, LOOK_AT_CLOCK, LOOK_AT_CLOCK_US, Senders, Shared, spawn};
use crate::base::error::DeliveryError;
use crate::base::sync::MutexGuard;
use crate::due::dispatcher::{Dispatcher, Event};
use crate::due::retry::Retry;
use crate::run::sends::Sends;
use crate::sinks::{Delivery, Opened, Sink};

const REOPEN: Retry =
    Retry { max_attempts: u32::MAX, first_ms: 200, longest_ms: 10_000, waits_ms: Vec::new(), waits_end: false };

impl Shared {
    /// Starts a thread that sends with this sink.
    pub(super) fn add_sender(self: &Arc<Self>, sink: Opened) -> Result<(), DeliveryError> {
        let Some(number) = self.register(&sink)? else { return Ok(()) };
        // This needs no lock. If the system gives no thread, the sink is dropped here.
        let thread = spawn("sender-deliver", self, move |shared| shared.be_sender(number, sink));
        let mut senders = self.lock_senders();
        match thread {
            Ok(thread) => senders.threads.push(thread),
            Err(error) => {
                senders.working.retain(|(other, _)| *other != number);
                senders.syncs.retain(|(other, _)| *other != number);
                senders.has_reply_sender = false;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Notes that a sender works with this sink. A close waits for it. Returns its number. `None`: the run ends, so no
    /// message may be sent with this sink.
    fn register(&self, sink: &Opened) -> Result<Option<u64>, DeliveryError> {
        let (sync, answers_later) = match sink {
            Opened::Sink(sink) => (caught(|| Ok(sink.sync()))?, false),
            Opened::ReplySink(_) => (None, true),
        };
        let mut senders = self.lock_senders();
        if self.is_ending() {
            return Ok(None);
        }
        let number = senders.next;
        senders.next += 1;
        senders.working.push((number, None));
        senders.syncs.extend(sync.map(|sync| (number, sync)));
        senders.answers_later = answers_later;
        senders.has_reply_sender = answers_later;
        Ok(Some(number))
    }

    fn be_sender(self: &Arc<Self>, number: u64, sink: Opened) {
        match sink {
            Opened::Sink(sink) => self.send(number, sink),
            Opened::ReplySink(sink) => self.send_overlapping(number, sink),
        }
    }

    pub(super) fn send(self: &Arc<Self>, number: u64, sink: Box<dyn Sink>) {
        let around = match caught(|| Ok(sink.around())) {
            Ok(Some(around)) => around,
            Ok(None) => return self.send_all(number, sink),
            Err(error) => {
                self.fail(&error);
                return self.end_sender(number, Opened::Sink(sink));
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
        self.end_sender(number, Opened::Sink(sink));
    }

    /// # Errors
    /// The sink failed for good.
    fn send_until_over(self: &Arc<Self>, number: u64, sink: &mut dyn Sink) -> Result<(), DeliveryError> {
        let mut sends = Sends::default();
        while let Some((flight, deliveries)) = self.next(number, sink)? {
            caught(|| {
                sends.tell(&self.engine, sink);
                Ok(())
            })?;
            let sent = caught(|| sink.send(&deliveries));
            // A forked child leaves. If the send was cut off, another sender may have its place.
            if self.is_forked() || self.was_cut_off(flight) {
                break;
            }
            let verdicts = sent?;
            let position = caught(|| Ok(sink.position()))?;
            self.engine.settle(flight, verdicts, position);
            sends.settled(&self.engine);
        }
        Ok(())
    }

    /// Whether the send was cut off. If so, its place is free from now on, and its answer is ignored.
    fn was_cut_off(&self, flight: u64) -> bool {
        let mut dispatcher = self.engine.lock_dispatcher();
        if dispatcher.is_in_flight(flight) {
            return false;
        }
        dispatcher.free_place(flight);
        self.pass_on(&mut dispatcher);
        true
    }

    pub(super) fn end_sender(self: &Arc<Self>, number: u64, mut sink: Opened) {
        let closed = caught(move || {
            let closed = match &mut sink {
                Opened::Sink(sink) => sink.close(),
                Opened::ReplySink(sink) => sink.close(),
            };
            drop(sink); // before a close learns that this sender has ended: no value of the program is kept after it
            closed
        });
        let mut senders = self.lock_senders();
        senders.has_reply_sender = false;
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
        self.add_senders();
    }

    /// Waits for the next send, and returns its number and messages. `None` at the end.
    ///
    /// # Errors
    /// The sink panicked when it was asked for its limits.
    pub(super) fn next(
        self: &Arc<Self>,
        number: u64,
        sink: &dyn Sink,
    ) -> Result<Option<(u64, Vec<Delivery>)>, DeliveryError> {
        let engine = &self.engine;
        let (most, most_bytes, is_cut_off) = caught(|| Ok((sink.max_messages(), sink.max_bytes(), sink.is_cut_off())))?;
        let mut dispatcher = engine.lock_dispatcher();
        loop {
            let taken = engine.take_locked(&mut dispatcher, most, most_bytes, is_cut_off);
            let mut are_wanted = self.hear_events(&mut dispatcher);
            if let Some((flight, deliveries)) = taken {
                let is_kept = self.holds(number, flight);
                if !is_kept {
                    dispatcher.give_back(flight);
                }
                self.pass_on(&mut dispatcher);
                are_wanted |= self.is_none_idle();
                drop(dispatcher);
                if are_wanted {
                    self.add_senders();
                }
                return Ok(is_kept.then_some((flight, deliveries)));
            }
            if are_wanted {
                drop(dispatcher);
                self.add_senders();
                dispatcher = engine.lock_dispatcher();
                continue;
            }
            if dispatcher.has_more_to_pass() {
                drop(dispatcher); // other threads wait for the lock
                dispatcher = engine.lock_dispatcher();
                continue;
            }
            // While the engine is closing, due messages wait for a place or a commit.
            let is_closing = self.is_closing.load(Ordering::SeqCst) && !dispatcher.has_more_to_send(ABORT);
            if dispatcher.is_halted || is_closing || !self.is_working(number) {
                self.pass_on(&mut dispatcher);
                return Ok(None);
            }
            if self.is_time_to_look_at_clock() && dispatcher.follow_clock() {
                engine.queue.wake();
                continue;
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
            dispatcher = if self.has_leader.load(Ordering::Relaxed) {
                self.pass_on(&mut dispatcher);
                self.followers.wait(dispatcher)
            } else {
                self.lead(dispatcher)
            };
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Waits for the timer.
    pub(super) fn lead<'a>(&self, dispatcher: MutexGuard<'a, Dispatcher>) -> MutexGuard<'a, Dispatcher> {
        let next_us = self.engine.timer.next_wake_us().unwrap_or(u64::MAX);
        let wait = Duration::from_micros(next_us.saturating_sub(self.engine.clock().now_us())).min(LOOK_AT_CLOCK);
        if wait.is_zero() || dispatcher.has_more_to_wake() {
            return dispatcher;
        }
        self.has_leader.store(true, Ordering::Relaxed);
        self.sleeps_until_us.store(next_us, Ordering::Relaxed);
        let dispatcher = self.leader.wait_timeout(dispatcher, wait);
        self.has_leader.store(false, Ordering::Relaxed);
        self.sleeps_until_us.store(0, Ordering::Relaxed);
        dispatcher
    }

    /// Wakes another sender in three cases: there is more to send, no sender waits for the timer, or the waiting one
    /// would wake up too late. The caller holds the dispatcher's lock.
    pub(super) fn pass_on(&self, dispatcher: &mut Dispatcher) {
        if !self.has_leader.load(Ordering::Relaxed) {
            self.followers.notify_one();
        } else if dispatcher.has_ready() || self.leader_sleeps_too_long() {
            self.leader.notify_one();
        }
    }

    pub(super) fn leader_sleeps_too_long(&self) -> bool {
        self.engine.timer.next_wake_us().is_some_and(|next_us| next_us < self.sleeps_until_us.load(Ordering::Relaxed))
    }

    /// Returns true once a second, for any sender, even if no sender ever waits. The caller holds the dispatcher's
    /// lock.
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

    /// Notes the send that this sender has. `false` if the sender was cut off meanwhile.
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

    /// Passes all events to the program. Returns whether a sender was cut off. Then the caller calls
    /// [`Shared::add_senders`] without a lock, because the system may need time to start a thread.
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
                is_one_missing = true;
            }
        }
        self.tell(events);
        if is_one_missing {
            self.sender_ended.notify_all(); // a close may wait for the sender that was cut off
        }
        is_one_missing
    }

    /// Whether each sender has a send. Then no sender would watch the timer, or use a place that becomes free.
    fn is_none_idle(&self) -> bool {
        self.engine.places().spare > 0 && self.idle.load(Ordering::Relaxed) == 0
    }

    /// Adds a sender, if one is needed and the limits allow it. If the system gives no thread, the writer asks again.
    pub(super) fn add_senders(self: &Arc<Self>) {
        let limits = self.engine.places();
        loop {
            {
                let mut senders = self.lock_senders();
                let working = senders.working.len() + senders.opening;
                let most = limits.young.saturating_add(limits.spare).saturating_add(limits.hanging);
                let is_needed = if limits.spare > 0 {
                    senders.opening == 0 && self.idle.load(Ordering::Relaxed) == 0
                } else {
                    working < limits.young
                };
                if !is_needed || working + senders.hanging >= most || senders.answers_later || self.is_ending() {
                    return;
                }
                senders.opening += 1;
            }
            let thread = spawn("sender-deliver", self, Self::open_and_send);
            let mut senders = self.lock_senders();
            senders.threads.retain(|it| !it.is_finished());
            let was_lacking = std::mem::replace(&mut senders.lacks_threads, thread.is_err());
            match thread {
                Ok(thread) => senders.threads.push(thread),
                Err(error) => {
                    senders.opening -= 1;
                    drop(senders);
                    if !was_lacking {
                        self.tell(vec![Event::NoThread { reason: error.to_string() }]);
                    }
                    return;
                }
            }
        }
    }

    /// The thread of a further sender. It opens its own sink, because this may take time. Due messages wait for it, and
    /// are not counted as tried.
    fn open_and_send(self: &Arc<Self>) {
        let sink = self.open_until_closing();
        let number = sink.as_ref().map_or(Ok(None), |sink| self.register(sink));
        self.lock_senders().opening -= 1;
        match (sink, number) {
            // If no sender is idle when it takes its first send, it adds the next one.
            (Some(sink), Ok(Some(number))) => self.be_sender(number, sink),
            (_, Err(error)) => self.fail(&error),
            _ => {}
        }
    }

    fn open_until_closing(&self) -> Option<Opened> {
        let mut random = Rng::new();
        for attempt in 1.. {
            if self.is_ending() {
                return None;
            }
            if let Ok(sink) = caught(|| (self.open)(self.engine.store_id())) {
                return Some(sink);
            }
            let end = Instant::now() + Duration::from_micros(REOPEN.wait_us(attempt, &mut random));
            drop(self.sender_ended.wait_while(self.lock_senders(), Some(end), |_| !self.is_ending()));
        }
        None
    }

    /// Stops all senders. Each one finishes its send. Returns whether all ended in time.
    pub(super) fn stop_senders(&self) -> bool {
        {
            let _dispatcher = self.engine.lock_dispatcher();
            self.is_closing.store(true, Ordering::SeqCst);
            self.leader.notify_all();
            self.followers.notify_all();
        }
        drop(self.lock_senders()); // an opener holds it from its check until it waits, so it is not missed
        self.sender_ended.notify_all();
        self.wait_for_senders(Duration::MAX);
        let senders = self.lock_senders();
        let mut all_ended = senders.working.is_empty() && senders.hanging == 0;
        drop(senders);
        {
            let mut dispatcher = self.engine.lock_dispatcher();
            dispatcher.halt();
            all_ended &= dispatcher.to.iter().all(|it| it.places.are_free());
            self.leader.notify_all();
            self.followers.notify_all();
        }
        let end = Instant::now() + ABORT;
        drop(self.sender_ended.wait_while(self.lock_senders(), Some(end), |senders| senders.has_reply_sender));
        all_ended
    }

    /// Waits until no sender works, at most for this time and as long as a close may take.
    pub(super) fn wait_for_senders(&self, most: Duration) {
        let end = Instant::now().checked_add(most);
        let mut senders = self.lock_senders();
        while !senders.working.is_empty() {
            let own_left = end.map(|end| end.saturating_duration_since(Instant::now()));
            senders = match self.left().into_iter().chain(own_left).min() {
                None => self.sender_ended.wait(senders),
                Some(Duration::ZERO) => break,
                Some(left) => self.sender_ended.wait_timeout(senders, left),
            };
        }
    }

    pub(super) fn lock_senders(&self) -> MutexGuard<'_, Senders> {
        self.senders.lock()
    }
}

/// Calls a sink. A sink that panics has failed for good: the fate of its messages is not known.
pub(super) fn caught<T>(call: impl FnOnce() -> Result<T, DeliveryError>) -> Result<T, DeliveryError> {
    or_failed(call, "the destination panicked: see the output of the panic hook")
}

/// Runs a sender's own loop. Each call of the sink in it is [`caught`], so a panic of the loop is a fault of this
/// crate. Without this function, the thread would end in silence, and a close would wait for it.
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
