//! From the timer to the senders and back (rules D3, D4, D6): what is due, in order per key, one of a key at a time.
//!
//! ```text
//! place -> timer -> offered -> take -> (the sink) -> settle -> outcomes
//!             ^        ^                                |
//!             |        +---- again, by back-off --------+
//!             +------ early, after a step of the clock --+
//! ```
//!
//! - One timer task stands for all that is due in a millisecond, the finest that a due time can be. What goes out of a lane
//!   is always its first message, so order needs no care of the timer's, and a message that was accepted late goes before
//!   what is due after it.
//! - Right before the send the clock is read again. What would be early, as the wall clock was stepped back, goes back on
//!   the timer, and with it all that waits.
//! - No message goes out that is due after `sent_until_ms`, a mark that is on disk: after a crash, only what is due until
//!   then may have been sent.
//! - A lock guards all of this. No sink is called under it.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use rustc_hash::{FxHashMap, FxHashSet};

use super::clock::{DueClock, WallTime};
use super::lanes::Slot;
use super::message::Body;
use super::outage::{Outage, bounded};
use super::retry::Retry;
use super::shown::cut;
use super::sinks::{Delivery, Turns, Verdict, Verdicts};
use super::store::{Attempts, Done, Outcome};
use super::window::{Bounds, State, Window};
use crate::{Clock, Config, Error, Handle, Released, Timer, When};

/// Why a message that a crashed process had in its hands counts as tried.
pub(super) const CRASHED: &str = "the process ended while this was being sent";

/// Why a destination is down whose sink answered that it tried none of a send.
const NONE_TRIED: &str = "the sink tried none of the messages it was given";

/// Messages that are sent one after another wait for so long at most for one before them, if another sender is free.
const DIVIDE_AFTER: Duration = Duration::from_millis(2);

/// How many characters of a name are told.
const LONGEST_NAME: usize = 200;

/// How many suspects go out together, by how often each was tried.
const SUSPECTS: [usize; 3] = [256, 16, 1];

/// What the timer tells.
#[derive(Clone, Copy, Debug)]
pub(super) enum Alarm {
    /// This millisecond has come.
    Due(i64),
    /// A message may be tried again.
    Again(Slot, i64),
    /// The destination may be asked again whether it is up.
    Probe,
    /// A send takes too long.
    CutOff(u64),
    /// Those of a send that have not begun go to another sender.
    Divide(u64),
}

/// What is due and can be sent.
#[derive(Clone, Copy, Debug)]
enum Offer {
    Lane(u32),
    /// Without a key, or to be tried again.
    Message(Slot, i64),
}

/// What the dispatcher has for the writer.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    pub(super) done: Vec<Done>,
    /// Of the dead among them, in the same order.
    pub(super) dead: Vec<Dead>,
    /// Messages that were tried.
    pub(super) attempts: Vec<Attempts>,
    /// Those among them that go out once this is on disk.
    pub(super) before_send: Vec<i64>,
}

impl Outcomes {
    pub(super) fn is_empty(&self) -> bool {
        self.done.is_empty() && self.attempts.is_empty()
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.done.append(&mut other.done);
        self.dead.append(&mut other.dead);
        self.attempts.append(&mut other.attempts);
        self.before_send.append(&mut other.before_send);
    }
}

/// A message that was given up.
#[derive(Debug)]
pub(super) struct Dead {
    pub(super) seq: i64,
    pub(super) due_ms: i64,
    pub(super) attempts: u32,
    pub(super) reason: String,
    pub(super) body: Body,
}

/// What the destination and the clock did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Nothing can be told to the destination.
    Down {
        /// Why.
        reason: String,
    },
    /// The destination answers again.
    Up {
        /// After so long, in milliseconds.
        after_ms: u64,
    },
    /// A message failed for the first time.
    Failed {
        /// The first 200 characters of its key, if it has one.
        key: Option<String>,
        /// The first 200 characters of its id.
        id: String,
        /// Why.
        reason: String,
    },
    /// A send took too long.
    CutOff {
        /// The number of the send.
        flight: u64,
        /// How many messages it had.
        messages: usize,
    },
    /// The wall clock was stepped.
    ClockStepped,
    /// The log of the store could not be moved to its place.
    CheckpointFailed {
        /// Why.
        reason: String,
    },
}

/// What is known of a message whose cancel came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakenBack {
    /// It does not go out.
    Taken,
    /// It is being sent.
    Sending,
    /// It has its outcome, which may not be committed yet.
    Over(Outcome),
    /// It is not in memory.
    Absent,
}

/// What goes to a sink in one call.
#[derive(Debug)]
struct InFlight {
    slot: Slot,
    seq: i64,
    at_ms: i64,
    late_us: i64,
}

struct Flight {
    messages: Vec<InFlight>,
    is_probe: bool,
    /// How long it may take, and the task for the end of that.
    limit: Option<Duration>,
    time_out: Option<Handle>,
    /// Where they are sent one after another.
    turns: Option<InTurn>,
}

struct InTurn {
    turns: Arc<Turns>,
    /// The place of the first of the messages that are left.
    first: usize,
    divide: Option<Handle>,
}

struct Moment {
    task: Handle,
    messages: Vec<(Slot, i64)>,
}

/// All of it; see the module's text.
pub(super) struct Dispatcher {
    pub(super) window: Window,
    /// A message due after this waits for the writer.
    pub(super) sent_until_ms: i64,
    pub(super) wants_mark: bool,
    pub(super) outcomes: Outcomes,
    pub(super) events: Vec<Event>,
    pub(super) is_halted: bool,
    timer: Arc<Timer<Alarm>>,
    wall: Arc<dyn WallTime>,
    clock: Option<DueClock>,
    retry: Retry,
    give_up_after: Option<Duration>,
    random: Rng,
    outage: Outage,
    moments: BTreeMap<i64, Moment>,
    offered: VecDeque<Offer>,
    flights: FxHashMap<u64, Flight>,
    next_flight: u64,
    /// Messages that a crashed process may have had in its hands; they go out in groups, one group at a time.
    suspects: VecDeque<(Slot, i64)>,
    /// The group that is on its way: each is noted, and was not answered.
    suspects_out: FxHashSet<i64>,
    released: Vec<Handle>,
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher")
            .field("offered", &self.offered)
            .field("sent_until_ms", &self.sent_until_ms)
            .field("wants_mark", &self.wants_mark)
            .field("moments", &self.moments.keys().collect::<Vec<_>>())
            .field("flights", &self.flights.len())
            .finish_non_exhaustive()
    }
}

impl Dispatcher {
    pub(super) fn new(
        timer: Arc<Timer<Alarm>>,
        wall: Arc<dyn WallTime>,
        bounds: Bounds,
        is_global: bool,
        retry: Retry,
        give_up_after: Option<Duration>,
        seed: u64,
    ) -> Self {
        Self {
            window: Window::new(bounds, is_global),
            sent_until_ms: i64::MIN,
            wants_mark: false,
            outcomes: Outcomes::default(),
            events: Vec::new(),
            is_halted: false,
            timer,
            wall,
            clock: None,
            retry,
            give_up_after,
            random: Rng::with_seed(seed),
            outage: Outage::default(),
            moments: BTreeMap::new(),
            offered: VecDeque::new(),
            flights: FxHashMap::default(),
            next_flight: 0,
            suspects: VecDeque::new(),
            suspects_out: FxHashSet::default(),
            released: Vec::new(),
        }
    }

    // --- For the writer ------------------------------------------------------

    /// From now on messages are due, by this clock.
    pub(super) fn start(&mut self, clock: DueClock) {
        self.clock = Some(clock);
    }

    /// The latest due time that is at most so far ahead; `None` before the start.
    pub(super) fn due_within(&self, ms: f64) -> Option<i64> {
        Some(self.clock?.due_within(ms, self.timer.clock().now_us(), self.wall.now_us()))
    }

    /// The due time of the first message on the timer.
    pub(super) fn first_due_ms(&self) -> Option<i64> {
        self.moments.first_key_value().map(|(due_ms, _)| *due_ms)
    }

    /// These are committed: they go on the timer.
    pub(super) fn place(&mut self, slots: impl IntoIterator<Item = (Slot, i64)>) {
        for (slot, seq) in slots {
            if self.window.get(slot, seq).is_some_and(|entry| entry.state == State::Held) {
                self.place_one(slot);
            }
        }
    }

    /// Keeps a message from going out, if that is certain. Its lane goes on once that is committed.
    pub(super) fn take_back(&mut self, seq: i64) -> TakenBack {
        let Some(slot) = self.window.find(seq) else { return TakenBack::Absent };
        let entry = self.window.entry(slot);
        match entry.state {
            State::Over => TakenBack::Over(entry.outcome.expect("it is over")),
            State::Sending => TakenBack::Sending,
            State::Held | State::Waiting | State::Ready | State::Retrying | State::Leaving => {
                self.suspects_out.remove(&seq);
                self.window.end(slot, Outcome::Cancelled);
                TakenBack::Taken
            }
        }
    }

    /// Where a message in memory stands, and how often it was tried.
    pub(super) fn state_of(&self, seq: i64) -> Option<(State, Option<Outcome>, u32)> {
        let entry = self.window.entry(self.window.find(seq)?);
        Some((entry.state, entry.outcome, entry.attempts))
    }

    /// These outcomes are committed.
    pub(super) fn forget(&mut self, seqs: impl IntoIterator<Item = i64>) {
        for seq in seqs {
            if let Some(lane) = self.window.forget(seq) {
                self.offer(lane);
            }
        }
    }

    /// These attempts are on disk: the messages go out.
    pub(super) fn noted(&mut self, seqs: impl IntoIterator<Item = i64>) {
        for seq in seqs {
            if let Some(slot) = self.window.find(seq)
                && self.window.entry(slot).state == State::Retrying
            {
                self.offered.push_back(Offer::Message(slot, seq));
            }
        }
    }

    /// Whether the wall clock was stepped; then all that waits was placed anew.
    pub(super) fn follow_clock(&mut self) -> bool {
        let stepped = self.clock.is_some_and(|clock| clock.was_stepped(self.timer.clock(), &*self.wall));
        if stepped {
            self.place_again(Vec::new());
        }
        stepped
    }

    /// Since when the destination is down, on the timer's clock, and why.
    pub(super) fn down(&self) -> Option<(u64, &str)> {
        self.outage.down()
    }

    /// Whether [`Dispatcher::take`] would give something now; after [`Dispatcher::advance`].
    pub(super) fn has_ready(&self) -> bool {
        let has_some = !self.offered.is_empty() || (self.suspects_out.is_empty() && !self.suspects.is_empty());
        !self.is_halted && has_some && !self.wants_mark && self.outage.may_send()
    }

    #[cfg(all(test, feature = "delivery-http"))]
    pub(super) fn probes(&self) -> u32 {
        self.outage.probes()
    }

    /// How many messages are left to a send.
    #[cfg(test)]
    pub(super) fn left_of(&self, number: u64) -> Option<usize> {
        self.flights.get(&number).map(|flight| flight.messages.len())
    }

    /// Whether all that is due can be on its way.
    #[cfg(test)]
    pub(super) fn has_room_and_no_suspects(&self) -> bool {
        !self.window.was_full && self.suspects_out.is_empty() && self.suspects.is_empty()
    }

    // --- For the senders -----------------------------------------------------

    /// Takes from the timer what has come.
    pub(super) fn advance(&mut self) {
        let mut released = std::mem::take(&mut self.released);
        self.timer.advance(&mut |batch: Released| released.extend(batch.handles));
        let mut claimed = 0;
        for handle in released.drain(..) {
            let Some(alarm) = self.timer.claim(handle) else { continue };
            claimed += 1;
            match alarm.task {
                Alarm::Due(due_ms) => self.release(due_ms),
                Alarm::Again(slot, seq) => self.offered.push_back(Offer::Message(slot, seq)),
                Alarm::Probe => self.outage.probe_is_due(),
                Alarm::CutOff(flight) => self.cut_off(flight),
                Alarm::Divide(flight) => self.divide(flight),
            }
        }
        self.timer.finish(claimed);
        self.released = released;
    }

    /// The next to be sent, at most so many messages and bytes, with the number of the send.
    pub(super) fn take(
        &mut self,
        most: usize,
        most_bytes: usize,
        time_out: Option<Duration>,
    ) -> Option<(u64, Vec<Delivery>)> {
        let clock = self.clock.filter(|_| self.has_ready())?;
        let is_probe = self.outage.is_down();
        let most = if is_probe { 1 } else { most };
        let (timer_us, wall_us) = (self.timer.clock().now_us(), self.wall.now_us());
        let mut flight = Flight { messages: Vec::new(), is_probe, limit: time_out, time_out: None, turns: None };
        let mut deliveries = Vec::new();
        let mut early = Vec::new();
        let mut bytes = 0;
        while deliveries.len() < most && bytes < most_bytes {
            let Some(offer) = self.offered.pop_front() else { break };
            let Some(slot) = self.accept(offer) else { continue };
            let entry = self.window.entry(slot);
            let late_us = clock.late_us(entry.due_ms, timer_us, wall_us);
            if late_us < 0 {
                early.push(slot);
                continue;
            }
            if entry.due_ms > self.sent_until_ms {
                self.offered.push_front(Offer::Message(slot, entry.seq));
                self.window.entry_mut(slot).state = State::Retrying;
                self.wants_mark = true;
                break;
            }
            if entry.redelivered && !entry.is_noted {
                self.suspects.push_back((slot, entry.seq));
                self.window.entry_mut(slot).state = State::Retrying;
                continue;
            }
            let entry = self.window.entry_mut(slot);
            entry.state = State::Sending;
            entry.was_sent = true;
            let body = entry.body.clone().expect("what waits has its body");
            bytes += body.size();
            let at_ms = wall_us.div_euclid(1000);
            flight.messages.push(InFlight { slot, seq: entry.seq, at_ms, late_us });
            deliveries.push(Delivery {
                seq: entry.seq,
                body,
                due_ms: entry.due_ms,
                delivered_at_ms: at_ms,
                lateness_us: late_us,
                attempt: entry.attempts + u32::from(!entry.is_noted),
                redelivered: entry.redelivered,
            });
        }
        self.note_suspects();
        if !early.is_empty() {
            self.place_again(early);
        }
        if deliveries.is_empty() {
            return None;
        }
        if is_probe {
            self.outage.probe_is_sent();
        }
        let number = self.next_flight;
        self.next_flight += 1;
        flight.time_out = time_out.and_then(|after| self.arm(after, Alarm::CutOff(number)));
        self.flights.insert(number, flight);
        Some((number, deliveries))
    }

    /// The messages of this send go out one after another.
    pub(super) fn in_turn(&mut self, number: u64) -> Arc<Turns> {
        let count = self.flights.get(&number).map_or(0, |flight| flight.messages.len());
        let turns = Arc::new(Turns::new(count));
        let divide = if count > 1 { self.arm(DIVIDE_AFTER, Alarm::Divide(number)) } else { None };
        if let Some(flight) = self.flights.get_mut(&number) {
            flight.turns = Some(InTurn { turns: turns.clone(), first: 0, divide });
        }
        turns
    }

    /// The sink has ended its turns; `last`: what became of the one after those that arrived.
    pub(super) fn settle_turns(&mut self, number: u64, last: Option<Verdict>) {
        let Some(it) = self.flights.get(&number).and_then(|flight| flight.turns.as_ref()) else { return };
        let verdicts = it.turns.verdicts_from(it.first, last);
        self.settle(number, verdicts);
    }

    /// Nothing more is sent, also of what is in the hands of senders and has not begun.
    pub(super) fn halt(&mut self) {
        self.is_halted = true;
        for it in self.flights.values().filter_map(|flight| flight.turns.as_ref()) {
            it.turns.stop();
        }
    }

    /// Whether the answer to this send is still waited for.
    pub(super) fn is_in_flight(&self, number: u64) -> bool {
        self.flights.contains_key(&number)
    }

    /// No sink got this send.
    pub(super) fn give_back(&mut self, number: u64) {
        let Some(flight) = self.end_flight(number) else { return };
        for message in &flight.messages {
            self.untried(message);
        }
        self.end_probe(&flight);
    }

    /// The sink has answered. What was cut off before has its outcome already.
    pub(super) fn settle(&mut self, number: u64, mut verdicts: Verdicts) {
        let Some(flight) = self.end_flight(number) else { return };
        if let Verdicts::Each(each) = &mut verdicts
            && !self.is_halted
            && each.iter().all(|it| *it == Verdict::NotTried)
        {
            // To send at once again what the sink did not even try would keep a core busy.
            *each = vec![Verdict::Unreachable { reason: NONE_TRIED.to_owned(), retry_after_ms: None }];
        }
        match verdicts {
            Verdicts::Delivered => {
                self.destination_answers(flight.is_probe);
                for message in &flight.messages {
                    self.delivered(message);
                }
            }
            Verdicts::Each(verdicts) => {
                let rest = std::iter::repeat(Verdict::NotTried);
                for (message, verdict) in flight.messages.iter().zip(verdicts.into_iter().chain(rest)) {
                    self.settle_one(message, verdict, flight.is_probe);
                }
            }
        }
        self.end_probe(&flight);
    }

    // --- Inside --------------------------------------------------------------

    fn end_flight(&mut self, number: u64) -> Option<Flight> {
        let flight = self.flights.remove(&number)?;
        for task in [flight.time_out, flight.turns.as_ref().and_then(|it| it.divide)].into_iter().flatten() {
            self.timer.cancel(task);
        }
        Some(flight)
    }

    fn end_probe(&mut self, flight: &Flight) {
        if flight.is_probe && self.outage.waits_for_probe() {
            self.outage.probe_came_back();
        }
        self.note_suspects();
    }

    fn settle_one(&mut self, message: &InFlight, verdict: Verdict, is_probe: bool) {
        match verdict {
            Verdict::Delivered => {
                self.destination_answers(is_probe);
                self.delivered(message);
            }
            Verdict::Refused(reason) => {
                self.destination_answers(is_probe);
                self.failed(message, &reason, None);
            }
            Verdict::Unanswered { reason, retry_after_ms } => {
                if self.outage.is_down() {
                    self.still_down(message, retry_after_ms);
                } else if self.outage.unanswered(message.slot, message.seq) {
                    self.goes_down(&reason, retry_after_ms);
                    self.untried(message);
                } else {
                    self.failed(message, &reason, retry_after_ms);
                }
            }
            Verdict::Unreachable { reason, retry_after_ms } => {
                if self.outage.is_down() {
                    self.still_down(message, retry_after_ms);
                } else {
                    self.goes_down(&reason, retry_after_ms);
                    self.untried(message);
                }
            }
            Verdict::NotTried => self.untried(message),
        }
    }

    fn destination_answers(&mut self, is_probe: bool) {
        if self.outage.is_down() && !is_probe {
            return; // it was sent before the outage began
        }
        if let Some(since_us) = self.outage.answered() {
            let after_ms = self.timer.clock().now_us().saturating_sub(since_us) / 1000;
            self.events.push(Event::Up { after_ms });
        }
    }

    fn still_down(&mut self, message: &InFlight, retry_after_ms: Option<u64>) {
        self.untried(message);
        if self.outage.waits_for_probe() {
            self.arm_probe(retry_after_ms);
        }
    }

    fn goes_down(&mut self, reason: &str, retry_after_ms: Option<u64>) {
        let now_us = self.timer.clock().now_us();
        for (slot, seq) in self.outage.begins(now_us, reason) {
            // Its attempt was part of the outage. It waits to be tried again, by the timer.
            if self.window.get(slot, seq).is_some_and(|entry| entry.state == State::Retrying) {
                let entry = self.window.entry_mut(slot);
                entry.attempts = entry.attempts.saturating_sub(1);
                let attempts = entry.attempts;
                self.keep_attempt(seq, attempts, None, reason);
            }
        }
        self.events.push(Event::Down { reason: reason.to_owned() });
        self.arm_probe(retry_after_ms);
    }

    fn arm_probe(&mut self, retry_after_ms: Option<u64>) {
        self.give_up_the_late();
        let after_ms = self.outage.next_probe_ms(retry_after_ms, &mut self.random);
        self.arm(Duration::from_millis(after_ms), Alarm::Probe);
    }

    /// The destination is down for longer than `give_up_after`: what has been due for so long is given up, of a lane its
    /// first message.
    fn give_up_the_late(&mut self) {
        let Some((limit, (since_us, reason))) = self.give_up_after.zip(self.outage.down()) else { return };
        let limit_us = i64::try_from(limit.as_micros()).unwrap_or(i64::MAX);
        let (timer_us, wall_us) = (self.timer.clock().now_us(), self.wall.now_us());
        let Some(clock) = self.clock.filter(|_| timer_us.saturating_sub(since_us) as i64 >= limit_us) else { return };
        let reason = format!("the destination was down for too long: {reason}");
        for offer in std::mem::take(&mut self.offered) {
            let Some(slot) = self.accept(offer) else { continue };
            let entry = self.window.entry(slot);
            if clock.late_us(entry.due_ms, timer_us, wall_us) >= limit_us {
                self.give_up(slot, &reason);
            } else {
                let seq = entry.seq;
                self.window.entry_mut(slot).state = State::Retrying;
                self.offered.push_back(Offer::Message(slot, seq));
            }
        }
    }

    fn delivered(&mut self, message: &InFlight) {
        let entry = self.window.entry(message.slot);
        let done = Done {
            seq: message.seq,
            due_ms: entry.due_ms,
            outcome: Outcome::Delivered,
            at_ms: message.at_ms,
            lateness_us: Some(message.late_us),
            attempts: entry.attempts + u32::from(!entry.is_noted),
            redelivered: entry.redelivered,
        };
        self.end(message.slot, done);
    }

    /// It was not this message's fault, or it was not tried: it goes out again, and nothing is counted.
    fn untried(&mut self, message: &InFlight) {
        self.comes_back(message);
        self.offered.push_back(Offer::Message(message.slot, message.seq));
    }

    fn comes_back(&mut self, message: &InFlight) {
        let entry = self.window.entry_mut(message.slot);
        entry.state = State::Retrying;
        if std::mem::take(&mut entry.is_noted) {
            entry.attempts -= 1;
            let attempts = entry.attempts;
            self.suspects_out.remove(&message.seq);
            self.keep_attempt(message.seq, attempts, None, CRASHED);
        }
    }

    /// An attempt of this message failed.
    fn failed(&mut self, message: &InFlight, reason: &str, retry_after_ms: Option<u64>) {
        let entry = self.window.entry_mut(message.slot);
        entry.attempts += u32::from(!entry.is_noted);
        entry.is_noted = false;
        self.suspects_out.remove(&message.seq);
        let entry = self.window.entry(message.slot);
        let (attempts, is_first) = (entry.attempts, entry.attempts == 1);
        if is_first {
            let body = entry.body.as_ref().expect("what waits has its body");
            let shortened = |name: &str| cut(name, LONGEST_NAME).to_owned();
            let (key, id) = (body.key().map(shortened), shortened(body.id()));
            self.events.push(Event::Failed { key, id, reason: reason.to_owned() });
        }
        if attempts >= self.retry.max_attempts {
            self.give_up(message.slot, reason);
            return;
        }
        self.window.entry_mut(message.slot).state = State::Retrying;
        let after_us = self.retry.delay_us(attempts, &mut self.random);
        let after = Duration::from_micros(after_us).max(Duration::from_millis(retry_after_ms.map_or(0, bounded)));
        let next_ms = self.wall.now_us().saturating_add(after.as_micros() as i64) / 1000;
        self.keep_attempt(message.seq, attempts, Some(next_ms), reason);
        self.arm(after, Alarm::Again(message.slot, message.seq));
    }

    fn give_up(&mut self, slot: Slot, reason: &str) {
        let entry = self.window.entry(slot);
        let body = entry.body.clone().expect("what waits has its body");
        let (seq, due_ms, attempts) = (entry.seq, entry.due_ms, entry.attempts);
        let done = Done {
            seq,
            due_ms,
            outcome: Outcome::Dead,
            at_ms: self.wall.now_us() / 1000,
            lateness_us: None,
            attempts,
            redelivered: entry.redelivered,
        };
        self.outcomes.dead.push(Dead { seq, due_ms, attempts, reason: reason.to_owned(), body });
        self.end(slot, done);
    }

    fn end(&mut self, slot: Slot, done: Done) {
        self.suspects_out.remove(&done.seq);
        self.outcomes.done.push(done);
        let lane = self.window.entry(slot).lane;
        self.window.end(slot, done.outcome);
        if let Some(lane) = lane {
            self.offer(lane);
        }
    }

    /// The next group of messages that a crashed process may have had in its hands: their attempts are on disk before they
    /// go out, so that a message that ends the process is not tried for ever.
    ///
    /// The more often the process ended, the smaller the group, so that others are not counted with the one that ends it.
    fn note_suspects(&mut self) {
        if !self.suspects_out.is_empty() || !self.outage.may_send() {
            return;
        }
        let mut room = if self.outage.is_down() { 1 } else { usize::MAX };
        while let Some((slot, seq)) = self.suspects.front().copied() {
            let Some(entry) = self.window.get(slot, seq).filter(|it| it.state == State::Retrying) else {
                self.suspects.pop_front();
                continue;
            };
            let attempts = entry.attempts;
            room = room.min(SUSPECTS[(attempts as usize).min(SUSPECTS.len() - 1)]);
            if self.suspects_out.len() >= room {
                break;
            }
            self.suspects.pop_front();
            if attempts >= self.retry.max_attempts {
                self.give_up(slot, CRASHED);
                continue;
            }
            let entry = self.window.entry_mut(slot);
            entry.attempts += 1;
            entry.is_noted = true;
            self.suspects_out.insert(seq);
            self.keep_attempt(seq, attempts + 1, None, CRASHED);
            self.outcomes.before_send.push(seq);
        }
    }

    fn keep_attempt(&mut self, seq: i64, attempts: u32, next_ms: Option<i64>, error: &str) {
        self.outcomes.attempts.push(Attempts { seq, attempts, next_ms, error: Some(error.to_owned()) });
    }

    /// Of messages that are sent one after another, this is about the first that has not arrived.
    fn cut_off(&mut self, number: u64) {
        let Some(flight) = self.flights.get_mut(&number) else { return };
        flight.time_out = None;
        let verdict = Verdict::Unanswered { reason: "no answer in time".to_owned(), retry_after_ms: None };
        let (messages, verdicts) = match &flight.turns {
            None => (flight.messages.len(), Verdicts::Each(vec![verdict; flight.messages.len()])),
            Some(it) => {
                it.turns.stop();
                (1, it.turns.verdicts_from(it.first, Some(verdict)))
            }
        };
        self.events.push(Event::CutOff { flight: number, messages });
        self.settle(number, verdicts);
    }

    /// What has arrived has its outcome, what has not begun goes out before all else, and the one in between has the whole
    /// time to itself. While none has begun, as the sink waits for something of its own, another would wait as long.
    fn divide(&mut self, number: u64) {
        let Some(mut flight) = self.flights.remove(&number) else { return };
        if let Some(it) = &mut flight.turns {
            if it.turns.has_begun() {
                let (begun, arrived) = (it.turns.stop(), it.turns.arrived());
                (it.first, it.divide) = (arrived, None);
                let rest = flight.messages.split_off(begun);
                let in_hand = flight.messages.split_off(arrived);
                for message in std::mem::replace(&mut flight.messages, in_hand) {
                    self.destination_answers(flight.is_probe);
                    self.delivered(&message);
                }
                for message in rest.iter().rev() {
                    self.comes_back(message);
                    self.offered.push_front(Offer::Message(message.slot, message.seq));
                }
                if let Some(before) = flight.time_out.take() {
                    self.timer.cancel(before);
                }
                flight.time_out = flight.limit.and_then(|after| self.arm(after, Alarm::CutOff(number)));
            } else {
                it.divide = self.arm(DIVIDE_AFTER, Alarm::Divide(number));
            }
        }
        self.flights.insert(number, flight);
    }

    fn place_one(&mut self, slot: Slot) {
        let clock = self.clock.expect("nothing is placed before the start");
        let entry = self.window.entry_mut(slot);
        entry.state = State::Waiting;
        let (due_ms, seq) = (entry.due_ms, entry.seq);
        if let Some(moment) = self.moments.get_mut(&due_ms) {
            moment.messages.push((slot, seq));
        } else if let Ok(task) = self.timer.add(When::AtUs(clock.instant_us(due_ms)), Alarm::Due(due_ms)) {
            self.moments.insert(due_ms, Moment { task, messages: vec![(slot, seq)] });
        }
    }

    /// A millisecond has come: what is due goes out, or its lane's first message does.
    fn release(&mut self, due_ms: i64) {
        let Some(moment) = self.moments.remove(&due_ms) else { return };
        for (slot, seq) in moment.messages {
            let Some(entry) = self.window.get(slot, seq) else { continue };
            if entry.state != State::Waiting {
                continue;
            }
            if let Some(lane) = entry.lane {
                let it = self.window.lane_mut(lane);
                it.due_until_ms = it.due_until_ms.max(due_ms);
                self.offer(lane);
            } else {
                self.window.entry_mut(slot).state = State::Ready;
                self.offered.push_back(Offer::Message(slot, seq));
            }
        }
    }

    fn offer(&mut self, lane: u32) {
        let it = self.window.lane(lane);
        if it.is_offered || !it.is_free() {
            return;
        }
        let Some((position, slot)) = it.first() else { return };
        if position.0 <= it.due_until_ms && self.window.entry(slot).state == State::Waiting {
            self.window.lane_mut(lane).is_offered = true;
            self.offered.push_back(Offer::Lane(lane));
        }
    }

    fn accept(&mut self, offer: Offer) -> Option<Slot> {
        match offer {
            Offer::Lane(lane) => {
                self.window.lane_mut(lane).is_offered = false;
                self.window.take(lane)
            }
            Offer::Message(slot, seq) => {
                let entry = self.window.get(slot, seq)?;
                matches!(entry.state, State::Ready | State::Retrying).then_some(slot)
            }
        }
    }

    /// It would be early: it waits for the timer again, and its lane for it where it was sent before.
    fn put_back(&mut self, slot: Slot, clock: &DueClock) {
        let entry = self.window.entry_mut(slot);
        let (seq, due_ms, was_sent) = (entry.seq, entry.due_ms, entry.was_sent);
        let was_noted = std::mem::take(&mut entry.is_noted);
        entry.attempts -= u32::from(was_noted);
        let attempts = entry.attempts;
        self.suspects_out.remove(&seq);
        if was_noted {
            self.keep_attempt(seq, attempts, None, CRASHED); // it was not sent
        }
        if was_sent {
            self.window.entry_mut(slot).state = State::Retrying;
            self.add(When::AtUs(clock.instant_us(due_ms)), Alarm::Again(slot, seq));
        } else {
            self.window.put_back(slot);
        }
    }

    /// The wall clock was stepped: all that waits is placed anew, and what would be early with it.
    fn place_again(&mut self, early: Vec<Slot>) {
        let Some(clock) = &mut self.clock else { return };
        clock.read_again(self.timer.clock(), &*self.wall);
        let clock = *clock;
        for slot in early {
            self.put_back(slot, &clock);
        }
        self.events.push(Event::ClockStepped);
        for lane in self.window.lanes_mut() {
            lane.due_until_ms = i64::MIN;
        }
        for (_, moment) in std::mem::take(&mut self.moments) {
            self.timer.cancel(moment.task);
        }
        let waiting: Vec<Slot> =
            self.window.slots().filter(|(_, entry)| entry.state == State::Waiting).map(|(slot, _)| slot).collect();
        for slot in waiting {
            self.place_one(slot);
        }
    }

    fn arm(&self, after: Duration, alarm: Alarm) -> Option<Handle> {
        self.add(after.into(), alarm)
    }

    fn add(&self, when: When, alarm: Alarm) -> Option<Handle> {
        self.timer.add(when, alarm).ok() // a closed timer takes nothing more: nothing is sent then
    }
}

/// The timer of a dispatcher.
pub(super) fn timer(clock: Clock) -> Result<Timer<Alarm>, Error> {
    Timer::new(&Config::default(), clock)
}
