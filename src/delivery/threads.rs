//! The engine with threads of its own: the writer, the senders, and what the program is told (rules D5, D6).
//!
//! - One sender at a time waits for the timer; the others wait for it. So a message that is due goes from the timer's wake-up
//!   to the sink in one thread.
//! - A send that takes too long is cut off: its messages count as unanswered, and a fresh thread with a fresh sink takes the
//!   place of the one that hangs, which ends when its sink returns, and whose answer is not heard. At most
//!   [`MOST_HANGING`] hang at a time; then sending waits until one returns.
//! - A sink that answers each message later has one thread for all of them: [`overlapping`].
//! - Once the engine is closing, a sink that was cut off, or that is opened only now, gets nothing to send.

#![forbid(unsafe_code)]

mod overlapping;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::clock::{DueClock, SystemWallTime, WallTime};
use super::dispatcher::{Dispatcher, Event};
use super::engine::{Engine, Settings};
use super::error::{DeliveryError, StoreError};
use super::items::{Completion, Item, Receipt};
use super::retry::Retry;
use super::sends::Sends;
use super::sinks::{Delivery, OpenSink, Sink, SyncFn, Turns, Verdict, Verdicts};
use super::store::owner::Ownership;
use super::store::{Checkpoints, Letter};
use super::summary::Summary;
use super::writer::Writer;
use crate::Clock;
use crate::sync::{PlainCondvar, PlainGuard, PlainMutex};

/// How many sends may hang at a time.
pub(super) const MOST_HANGING: usize = 8;

const LOOK_AT_CLOCK_US: u64 = 1_000_000;
const LOOK_AT_CLOCK: Duration = Duration::from_micros(LOOK_AT_CLOCK_US);
/// How long a sink may take to abort what it has in flight.
const ABORT: Duration = Duration::from_secs(1);
/// How often the writer looks at the sends under way, where no sender looks at the timer.
const LOOK_AT_SENDS_US: u64 = 100_000;
const OBSERVER_PANICKED: &str = "what is told of dead letters panicked: see the output of the panic hook";
const REOPEN: Retry = Retry { max_attempts: u32::MAX, first_ms: 200, longest_ms: 10_000 };

/// What a program is told, in a thread of its own: one that is slow holds up nothing but what it is told next.
///
/// [`OpenOptions::with_observer`](super::OpenOptions::with_observer) has an example.
pub trait Observer: Send + Sync {
    /// Dead letters, which are on disk. They are told again after a crash before this returned.
    ///
    /// # Errors
    /// They could not be taken: this ends the run.
    fn letters(&self, letters: &[Letter]) -> Result<(), DeliveryError>;

    /// What the destination and the clock did.
    fn events(&self, events: Vec<Event>);
}

/// A store that is being delivered, until [`Running::close`].
pub(crate) struct Running {
    shared: Arc<Shared>,
    /// The writer and the teller, in this order, until they are joined.
    threads: PlainMutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    /// The process that opened it.
    process: u32,
    engine: Engine,
    open: OpenSink,
    observer: Box<dyn Observer>,
    /// The sender that waits for the timer waits here, with the dispatcher's lock.
    leader: PlainCondvar,
    followers: PlainCondvar,
    has_leader: AtomicBool,
    /// When the leader wakes up by itself.
    sleeps_until_us: AtomicU64,
    looked_at_us: AtomicU64,
    is_closing: AtomicBool,
    /// The end does not wait for dead letters to be told.
    leaves_letters: AtomicBool,
    senders: PlainMutex<Senders>,
    sender_ended: PlainCondvar,
    failure: PlainMutex<Option<DeliveryError>>,
    /// Wakes the teller.
    telling: PlainMutex<Telling>,
    to_tell: PlainCondvar,
}

#[derive(Default)]
struct Senders {
    next: u64,
    /// Those that work, and the send that each has in hand.
    working: Vec<(u64, Option<u64>)>,
    /// How many were cut off and have not come back.
    hanging: usize,
    /// How many wait for one of those to come back, so that they may begin.
    put_off: usize,
    /// How many have a sink that answers later. They end soon after the engine is halted.
    overlapping: usize,
    syncs: Vec<(u64, SyncFn)>,
    threads: Vec<JoinHandle<()>>,
}

/// What a sender sends next.
struct Next {
    flight: u64,
    deliveries: Vec<Delivery>,
    turns: Option<Arc<Turns>>,
}

/// What a sink answered: of all, or of the one after those that arrived in turn.
enum Answer {
    OfAll(Verdicts),
    OfTurns(Option<Verdict>),
}

#[derive(Default)]
struct Telling {
    events: Vec<Event>,
    /// The writer has ended.
    is_over: bool,
    /// The teller has ended.
    has_ended: bool,
    is_woken: bool,
}

impl Running {
    /// Opens the store and the destination, and starts the threads. Nothing is due before [`Running::start`].
    ///
    /// # Errors
    /// The store or the destination cannot be opened.
    pub(crate) fn open(
        ownership: Ownership,
        settings: Settings,
        open: OpenSink,
        threads: usize,
        observer: Box<dyn Observer>,
    ) -> Result<Self, DeliveryError> {
        let wall: Arc<dyn WallTime> = Arc::new(SystemWallTime);
        let mut engine = Engine::open(ownership, settings, Clock::monotonic(0), wall)?;
        engine.is_driven = false;
        let mut first = open(engine.store_id())?;
        engine.recover(&mut *first)?;
        let threads = if first.overlap() > 1 { 1 } else { threads.max(first.threads()) };
        let mut sinks = vec![first];
        while sinks.len() < threads {
            sinks.push(open(engine.store_id())?);
        }
        let shared = Arc::new(Shared {
            process: std::process::id(),
            engine,
            open,
            observer,
            leader: PlainCondvar::default(),
            followers: PlainCondvar::default(),
            has_leader: AtomicBool::new(false),
            sleeps_until_us: AtomicU64::new(0),
            looked_at_us: AtomicU64::new(0),
            is_closing: AtomicBool::new(false),
            leaves_letters: AtomicBool::new(false),
            senders: PlainMutex::default(),
            sender_ended: PlainCondvar::default(),
            failure: PlainMutex::new(None),
            telling: PlainMutex::default(),
            to_tell: PlainCondvar::default(),
        });
        let weak = Arc::downgrade(&shared);
        let failed = move |error: &StoreError| {
            if let Some(shared) = weak.upgrade() {
                shared.tell(vec![Event::CheckpointFailed { reason: error.to_string() }]);
            }
        };
        shared.engine.with_writer(|writer| {
            writer.checkpoints = Some(Checkpoints::start(&writer.store, Box::new(failed))?);
            Ok::<_, StoreError>(())
        })?;
        for sink in sinks {
            shared.add_sender(sink)?;
        }
        let writer = spawn("writer-deliver", &shared, Shared::write)?;
        let teller = spawn("teller-deliver", &shared, Shared::tell_all)?;
        Ok(Self { shared, threads: PlainMutex::new(vec![writer, teller]) })
    }

    /// The engine, for what can be asked of it and submitted to it.
    #[must_use]
    pub(crate) fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// From now on messages are due.
    pub(crate) fn start(&self, clock: DueClock) {
        self.shared.engine.start(clock);
    }

    /// As [`Engine::submit`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn submit(&self, items: Vec<Item>) -> Result<Receipt, DeliveryError> {
        self.shared.engine.submit(items)
    }

    /// As [`Engine::submit_with`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn submit_with(&self, items: Vec<Item>, complete: Completion) -> Result<(), DeliveryError> {
        self.shared.engine.submit_with(items, complete)
    }

    /// What ended the run, if anything did.
    #[must_use]
    pub(crate) fn failure(&self) -> Option<DeliveryError> {
        self.shared.failure.lock().clone()
    }

    /// Ends the run with this error: nothing more is sent.
    pub(crate) fn fail(&self, error: &DeliveryError) {
        self.shared.fail(error);
    }

    /// Whether nothing waits any more, within that time.
    ///
    /// # Errors
    /// What ended the run.
    pub(crate) fn wait_until_empty(&self, timeout: Duration) -> Result<bool, DeliveryError> {
        let queue = &self.shared.engine.queue;
        let end = Instant::now().checked_add(timeout);
        let mut state = queue.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.is_empty() {
                return Ok(true);
            }
            let left = end.map_or(LOOK_AT_CLOCK, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(false);
            }
            state = queue.wait(state, left);
        }
    }

    /// Sends what is due by now, commits, and stops. Nothing that comes after it is taken. A sink that hangs is waited for
    /// until `timeout`; what is in its hands counts as not delivered then, and is sent again next time. So is an observer that
    /// hangs with dead letters, which is told of them again next time, and a sink that hangs in its sync: what was sent since the
    /// last commit is sent again then.
    ///
    /// # Errors
    /// What ended the run, or a failure at the end of it.
    pub(crate) fn close(&self, timeout: Option<Duration>) -> Result<Summary, DeliveryError> {
        let shared = self.shared.clone();
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let all_ended = shared.stop_senders(timeout);
        shared.engine.queue.stop();
        let mut threads = std::mem::take(&mut *self.threads.lock());
        if !shared.wait_for(end, |telling| telling.has_ended) {
            threads.truncate(1); // the writer; the teller ends when its observer returns
            shared.leaves_letters.store(true, Ordering::SeqCst);
            shared.engine.queue.wake();
            if !shared.wait_for(end, |telling| telling.is_over) {
                threads.clear(); // it ends when the sink's sync returns, and commits nothing more
            }
        }
        for thread in threads {
            let _ = thread.join();
        }
        let failure = shared.failure.lock().clone();
        let summary = shared.engine.close(all_ended && failure.is_none());
        match failure {
            Some(failure) => Err(failure),
            None => summary,
        }
    }
}

/// One that is not closed sends nothing more, and gives its store up once its threads have ended.
impl Drop for Running {
    fn drop(&mut self) {
        if !self.threads.lock().is_empty() {
            self.shared.is_closing.store(true, Ordering::SeqCst);
            self.shared.fail(&DeliveryError::Closed);
        }
    }
}

impl Shared {
    // --- The writer's thread -------------------------------------------------

    fn write(self: &Arc<Self>) {
        let load_every_us = (self.engine.settings.horizon_ms * 1000 / 4).max(1_000);
        loop {
            let is_stopping = self.wait_for_work(load_every_us);
            let failure = self.engine.queue.lock().failure.clone();
            if let Some(failure) = failure {
                self.write_the_rest(&failure);
                break;
            }
            if is_stopping {
                let _ = self.engine.with_writer(|writer| Ok::<_, StoreError>(writer.loader.stop()));
            }
            match self.engine.write(&|| self.sync()) {
                Err(error) => {
                    self.fail(&error);
                    break;
                }
                Ok(_) => self.wake_after_commit(),
            }
            let leaves_letters = self.leaves_letters.load(Ordering::SeqCst);
            if is_stopping && self.is_written(leaves_letters) {
                break;
            }
        }
        let mut telling = self.telling.lock();
        telling.is_over = true;
        self.to_tell.notify_all();
    }

    fn is_written(&self, leaves_letters: bool) -> bool {
        let queue = &self.engine.queue;
        let is_finished = |writer: &mut Writer| Ok::<_, StoreError>(writer.is_finished(queue, leaves_letters));
        self.engine.with_writer(is_finished).unwrap_or(true)
    }

    /// Waits until there is a group to write, or it is time to load what is due next; whether the engine is being closed.
    fn wait_for_work(self: &Arc<Self>, load_every_us: u64) -> bool {
        let load_at_us = self.engine.clock().now_us() + load_every_us;
        loop {
            {
                let state = self.engine.queue.lock();
                let now_us = self.engine.clock().now_us();
                let idle_us = state.idle_us(now_us, load_at_us.saturating_sub(now_us));
                if idle_us == 0 {
                    return state.is_stopping;
                }
                // A leader wakes up once a second itself, and may be the one that hangs next.
                let is_led = self.has_leader.load(Ordering::Relaxed);
                let most_us = if is_led { LOOK_AT_CLOCK_US } else { LOOK_AT_SENDS_US };
                drop(self.engine.queue.wait(state, Duration::from_micros(idle_us.min(most_us))));
            }
            self.cut_off_sends();
        }
    }

    /// While each sender has a send in hand, none looks at the timer: then the writer does, so that one that hangs is cut off.
    fn cut_off_sends(self: &Arc<Self>) {
        if self.has_leader.load(Ordering::Relaxed) {
            return;
        }
        let mut dispatcher = self.engine.lock_dispatcher();
        dispatcher.advance();
        self.engine.flush(&mut dispatcher);
        self.hear_events(&mut dispatcher);
        self.pass_on(&dispatcher);
    }

    /// The run has failed. What was delivered before is committed, if the store is not what failed.
    fn write_the_rest(&self, failure: &DeliveryError) {
        if !matches!(failure, DeliveryError::Store(_)) {
            let _ = self.engine.write(&|| self.sync()); // the first failure counts
        }
        self.engine.give_up(failure);
    }

    /// Messages may be on the timer that are due sooner than all others; sending may go on where it paused.
    fn wake_after_commit(&self) {
        {
            let dispatcher = self.engine.lock_dispatcher();
            if dispatcher.has_ready() || self.leader_sleeps_too_long() {
                self.leader.notify_one();
            }
        }
        self.wake_teller();
    }

    fn sync(&self) -> Result<(), DeliveryError> {
        let syncs: Vec<SyncFn> = {
            let senders = self.lock_senders();
            senders.syncs.iter().map(|(_, sync)| sync.clone()).collect()
        };
        syncs.iter().try_for_each(|sync| sync())
    }

    // --- The senders' threads ------------------------------------------------

    fn add_sender(self: &Arc<Self>, sink: Box<dyn Sink>) -> Result<(), DeliveryError> {
        let mut senders = self.lock_senders();
        if self.is_closing.load(Ordering::SeqCst) {
            return Ok(()); // opened late: it sends nothing
        }
        let number = senders.next;
        senders.next += 1;
        senders.working.push((number, None));
        if let Some(sync) = sink.sync() {
            senders.syncs.push((number, sync));
        }
        let is_overlapping = sink.overlap() > 1;
        let run = if is_overlapping { Self::send_overlapping } else { Self::send };
        let thread = spawn("sender-deliver", self, move |shared| run(shared, number, sink))?;
        senders.overlapping += usize::from(is_overlapping);
        senders.threads.push(thread);
        Ok(())
    }

    fn send(self: &Arc<Self>, number: u64, sink: Box<dyn Sink>) {
        let Some(around) = sink.around() else { return self.send_all(number, sink) };
        let mut sink = Some(sink);
        around(&mut || {
            if let Some(sink) = sink.take() {
                self.send_all(number, sink);
            }
        });
    }

    fn send_all(self: &Arc<Self>, number: u64, mut sink: Box<dyn Sink>) {
        let mut sends = Sends::default();
        while let Some(Next { flight, deliveries, turns }) = self.next(number, &*sink) {
            sends.tell(&self.engine, &mut *sink);
            let sent = caught(|| match &turns {
                Some(turns) => sink.send_in_turn(&deliveries, turns).map(Answer::OfTurns),
                None => sink.send(&deliveries).map(Answer::OfAll),
            });
            if std::process::id() != self.process {
                std::mem::forget(sink); // the sink forked: the child has nothing of the engine but this thread
                return;
            }
            if !self.engine.is_in_flight(flight) {
                break; // it was cut off, and another has its place
            }
            match sent {
                Ok(Answer::OfAll(verdicts)) => {
                    self.engine.settle(flight, verdicts, sink.position());
                    sends.settled(&self.engine);
                }
                Ok(Answer::OfTurns(last)) => {
                    self.engine.settle_turns(flight, last);
                    sends.settled(&self.engine);
                }
                Err(error) => {
                    self.fail(&error);
                    break;
                }
            }
        }
        self.end_sender(number, sink);
    }

    fn end_sender(self: &Arc<Self>, number: u64, mut sink: Box<dyn Sink>) {
        let closed = sink.close();
        let mut senders = self.lock_senders();
        senders.overlapping -= usize::from(sink.overlap() > 1);
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
            if senders.put_off > 0 {
                senders.put_off -= 1;
                self.replace(&mut senders);
            }
        }
        drop(senders);
        self.sender_ended.notify_all();
    }

    /// The next to be sent; waits for it. `None` at the end.
    fn next(self: &Arc<Self>, number: u64, sink: &dyn Sink) -> Option<Next> {
        let engine = &self.engine;
        let mut dispatcher = engine.lock_dispatcher();
        loop {
            let (most, most_bytes) = (sink.max_messages(), sink.max_bytes());
            let taken = engine.take_locked(&mut dispatcher, most, most_bytes, sink.is_cut_off());
            self.hear_events(&mut dispatcher);
            if let Some((flight, deliveries)) = taken {
                if !self.holds(number, flight) {
                    dispatcher.give_back(flight);
                    return None;
                }
                let turns = sink.is_in_turn().then(|| dispatcher.in_turn(flight));
                self.pass_on(&dispatcher);
                return Some(Next { flight, deliveries, turns });
            }
            let is_over = dispatcher.is_halted || self.is_closing.load(Ordering::SeqCst);
            if is_over || !self.is_working(number) {
                self.pass_on(&dispatcher);
                return None;
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
    fn lead<'a>(&self, dispatcher: PlainGuard<'a, Dispatcher>) -> PlainGuard<'a, Dispatcher> {
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
    fn pass_on(&self, dispatcher: &Dispatcher) {
        if !self.has_leader.load(Ordering::Relaxed) {
            self.followers.notify_one();
        } else if dispatcher.has_ready() || self.leader_sleeps_too_long() {
            self.leader.notify_one();
        }
    }

    fn leader_sleeps_too_long(&self) -> bool {
        self.engine.next_wake_us().is_some_and(|next_us| next_us < self.sleeps_until_us.load(Ordering::Relaxed))
    }

    /// Once a second, whichever sender asks; also where none ever waits. With the dispatcher's lock.
    fn is_time_to_look_at_clock(&self) -> bool {
        let now_us = self.engine.clock().now_us();
        let is_time = now_us.saturating_sub(self.looked_at_us.load(Ordering::Relaxed)) >= LOOK_AT_CLOCK_US;
        if is_time {
            self.looked_at_us.store(now_us, Ordering::Relaxed);
        }
        is_time
    }

    fn is_working(&self, number: u64) -> bool {
        self.lock_senders().working.iter().any(|(other, _)| *other == number)
    }

    /// Notes what the sender has in hand; `false` if it was cut off meanwhile.
    fn holds(&self, number: u64, flight: u64) -> bool {
        let mut senders = self.lock_senders();
        match senders.working.iter_mut().find(|(other, _)| *other == number) {
            Some((_, in_hand)) => {
                *in_hand = Some(flight);
                true
            }
            None => false,
        }
    }

    /// A sender that was cut off is replaced; the program is told of everything.
    fn hear_events(self: &Arc<Self>, dispatcher: &mut Dispatcher) {
        if dispatcher.events.is_empty() {
            return;
        }
        let events = std::mem::take(&mut dispatcher.events);
        for event in &events {
            if let Event::CutOff { flight, .. } = event {
                let mut senders = self.lock_senders();
                let Some(place) = senders.working.iter().position(|(_, it)| *it == Some(*flight)) else { continue };
                let (number, _) = senders.working.swap_remove(place);
                senders.syncs.retain(|(other, _)| *other != number);
                senders.hanging += 1;
                if senders.hanging <= MOST_HANGING {
                    self.replace(&mut senders);
                } else {
                    senders.put_off += 1;
                }
            }
        }
        self.tell(events);
    }

    /// A new sender begins. In a thread, as opening may take its time; what is due waits for it, and is not counted as
    /// tried.
    fn replace(self: &Arc<Self>, senders: &mut Senders) {
        let opener = spawn("opener-deliver", self, |shared| {
            let mut random = Rng::new();
            for attempt in 1.. {
                if shared.is_closing.load(Ordering::SeqCst) {
                    return;
                }
                if let Ok(sink) = (shared.open)(shared.engine.store_id()) {
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
        });
        if let Ok(opener) = opener {
            senders.threads.push(opener);
        }
    }

    /// Every sender ends what it has in hand; whether all did within that time.
    fn stop_senders(&self, timeout: Option<Duration>) -> bool {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        {
            let _dispatcher = self.engine.lock_dispatcher();
            self.is_closing.store(true, Ordering::SeqCst);
            self.leader.notify_all();
            self.followers.notify_all();
        }
        self.sender_ended.notify_all();
        let mut senders = self.lock_senders();
        while !senders.working.is_empty() {
            senders = match end {
                None => self.sender_ended.wait(senders),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    self.sender_ended.wait_timeout(senders, left)
                }
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

    fn lock_senders(&self) -> PlainGuard<'_, Senders> {
        self.senders.lock()
    }

    // --- What the program is told --------------------------------------------

    fn fail(&self, error: &DeliveryError) {
        self.failure.lock().get_or_insert_with(|| error.clone());
        {
            let mut dispatcher = self.engine.lock_dispatcher();
            dispatcher.halt();
            self.leader.notify_all();
            self.followers.notify_all();
        }
        self.engine.queue.fail(error);
        self.wake_teller();
    }

    fn tell(&self, mut events: Vec<Event>) {
        self.telling.lock().events.append(&mut events);
        self.wake_teller();
    }

    fn wake_teller(&self) {
        self.telling.lock().is_woken = true;
        self.to_tell.notify_all();
    }

    /// Whether a thread has ended by then, or soon after where that is over already.
    fn wait_for(&self, end: Option<Instant>, has_ended: impl Fn(&Telling) -> bool) -> bool {
        let end = end.map(|end| end.max(Instant::now() + ABORT));
        let mut telling = self.telling.lock();
        while !has_ended(&telling) {
            telling = match end {
                None => self.to_tell.wait(telling),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    self.to_tell.wait_timeout(telling, left)
                }
            };
        }
        true
    }

    fn tell_all(self: &Arc<Self>) {
        self.tell_until_over();
        self.telling.lock().has_ended = true;
        self.to_tell.notify_all();
    }

    fn tell_until_over(&self) {
        loop {
            let (events, is_over) = {
                let mut telling = self.telling.lock();
                while !telling.is_woken && !telling.is_over {
                    telling = self.to_tell.wait(telling);
                }
                telling.is_woken = false;
                (std::mem::take(&mut telling.events), telling.is_over)
            };
            if !events.is_empty() {
                // The panic hook has told of it, and events are only for the log.
                let _ = catch_unwind(AssertUnwindSafe(|| self.observer.events(events)));
            }
            if let Some((letters, through)) = self.engine.take_letters() {
                let told = catch_unwind(AssertUnwindSafe(|| self.observer.letters(&letters)));
                match told.unwrap_or_else(|_| Err(DeliveryError::Failed(OBSERVER_PANICKED.to_owned()))) {
                    Ok(()) => self.engine.letters_told(through),
                    Err(error) => self.fail(&error),
                }
            } else if is_over {
                return;
            }
        }
    }
}

/// A sink that panics has failed for good: nothing is known about the messages that it had.
fn caught<T>(call: impl FnOnce() -> Result<T, DeliveryError>) -> Result<T, DeliveryError> {
    let failed = |_| DeliveryError::Failed("the destination panicked: see the output of the panic hook".to_owned());
    catch_unwind(AssertUnwindSafe(call)).map_err(failed).and_then(|result| result)
}

fn spawn(
    name: &str,
    shared: &Arc<Shared>,
    run: impl FnOnce(&Arc<Shared>) + Send + 'static,
) -> Result<JoinHandle<()>, DeliveryError> {
    let shared = shared.clone();
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || run(&shared))
        .map_err(|error| DeliveryError::Failed(format!("the system gives no thread: {error}")))
}

#[cfg(test)]
mod tests;
