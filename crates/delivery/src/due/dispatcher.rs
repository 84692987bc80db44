//! From the timer to the senders and back (rules D3, D4, D6): what is due, in order per key, one of a key at a time.
//!
//! ```text
//! place -> timer -> offered -> take -> (the sink) -> settle -> outcomes
//!             ^        ^                                |
//!             |        +---- again, by back-off --------+
//!             +------ early, after a step of the clock --+
//! ```
//!
//! - One timer task stands for all that is due in a millisecond, the finest that a due time can be. A lane always
//!   sends its first message. So the timer need not keep order, and a message that was accepted late goes before the
//!   messages that are due after it.
//! - Right before the send the clock is read again. What would be early, as the wall clock was stepped back, goes back on
//!   the timer, and with it all that waits.
//! - No message goes out that is due after `sent_until_ms`, a mark that is on disk: after a crash, only what is due until
//!   then may have been sent.
//! - With a rate (D18), each message that goes out takes a token. Without one, all waits for an alarm on the timer.
//! - A lock guards all of this. No sink is called under it.

mod down;
mod event;
mod pausing;
mod placing;
mod settle;
mod suspects;
mod turns;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use rustc_hash::{FxHashMap, FxHashSet};

use super::lanes::Slot;
use super::measures::SendMeasures;
use super::outage::Outage;
use super::outcome_feed::{Ended, OutcomeFeeds};
use super::pace::Pace;
use super::retry::Retry;
use super::window::{Bounds, State, Window};
use crate::base::clock::{DueClock, WallTime};
use crate::message::Body;
use crate::sinks::{Delivery, Turns};
use crate::store::{Attempts, Done, Outcome};
use tickwheel::{Clock, Config, Error, Handle, Released, Timer, When};

pub use event::Event;

/// Why a message that a crashed process had in its hands counts as tried.
pub(crate) const CRASHED: &str = "the process ended while this was being sent";

/// Messages that expire under one hold of the lock.
const EXPIRED_AT_ONCE: usize = 1_000;

/// What the timer tells.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Alarm {
    /// This millisecond has come.
    Due(i64),
    /// A message may be tried again.
    Again(Slot, i64),
    /// The destination may be asked again whether it is up.
    Probe,
    /// The rate allows more.
    Paced,
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
pub(crate) struct Outcomes {
    pub(crate) done: Vec<Done>,
    /// Of the dead among them, in the same order.
    pub(crate) dead: Vec<Dead>,
    /// The same, for the readers of outcomes.
    pub(crate) ended: Vec<Arc<Ended>>,
    /// Messages that were tried.
    pub(crate) attempts: Vec<Attempts>,
    /// Those among them that go out once this is on disk.
    pub(crate) before_send: Vec<i64>,
}

impl Outcomes {
    pub(crate) fn is_empty(&self) -> bool {
        self.done.is_empty() && self.attempts.is_empty()
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.done.append(&mut other.done);
        self.dead.append(&mut other.dead);
        self.ended.append(&mut other.ended);
        self.attempts.append(&mut other.attempts);
        self.before_send.append(&mut other.before_send);
    }
}

/// A message that was given up, or has expired.
#[derive(Debug)]
pub(crate) struct Dead {
    pub(crate) seq: i64,
    pub(crate) due_ms: i64,
    pub(crate) outcome: Outcome,
    pub(crate) attempts: u32,
    pub(crate) reason: String,
    pub(crate) body: Body,
}

/// What is known of a message that is to be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakenBack {
    /// It does not go out. How often it was tried, without what may be part of an outage; and whether it may have arrived.
    Taken { attempts: u32, redelivered: bool },
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
    /// On the timer's clock.
    began_us: u64,
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
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(crate) struct Dispatcher {
    pub(crate) window: Window,
    /// A message due after this waits for the writer.
    pub(crate) sent_until_ms: i64,
    pub(crate) wants_mark: bool,
    pub(crate) outcomes: Outcomes,
    pub(crate) events: Vec<Event>,
    pub(crate) is_halted: bool,
    pub(crate) pace: Pace,
    pub(crate) measures: SendMeasures,
    /// Who reads outcomes.
    pub(crate) feeds: Arc<OutcomeFeeds>,
    /// Until it is resumed, what is due waits.
    is_paused: bool,
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
    /// `take` has ended as many expired ones as it may at once, and there may be more.
    has_more_expired: bool,
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
    pub(crate) fn new(
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
            pace: Pace::default(),
            measures: SendMeasures { changed_us: timer.clock().now_us(), ..SendMeasures::default() },
            feeds: Arc::default(),
            is_paused: false,
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
            has_more_expired: false,
        }
    }

    // --- For the writer ------------------------------------------------------

    /// From now on messages are due, by this clock.
    pub(crate) fn start(&mut self, clock: DueClock) {
        self.clock = Some(clock);
    }

    /// The latest due time that is at most so far ahead; `None` before the start.
    pub(crate) fn due_within(&self, ms: f64) -> Option<i64> {
        Some(self.clock?.due_within(ms, self.timer.clock().now_us(), self.wall.now_us()))
    }

    /// The due time of the first message on the timer.
    pub(crate) fn first_due_ms(&self) -> Option<i64> {
        self.moments.first_key_value().map(|(due_ms, _)| *due_ms)
    }

    /// Keeps a message from going out, if that is certain. Its lane goes on once that outcome is committed.
    pub(crate) fn take_back(&mut self, seq: i64, outcome: Outcome) -> TakenBack {
        let Some(slot) = self.window.find(seq) else { return TakenBack::Absent };
        let entry = self.window.entry(slot);
        match entry.state {
            State::Over => TakenBack::Over(entry.outcome.expect("it is over")),
            State::Sending => TakenBack::Sending,
            State::Held | State::Waiting | State::Ready | State::Retrying | State::Leaving => {
                let attempts = entry.attempts - u32::from(entry.is_noted); // that one was not made
                let redelivered = entry.redelivered || entry.was_sent;
                let attempts = attempts.saturating_sub(self.outage.forget(slot, seq));
                self.suspects_out.remove(&seq);
                self.outcomes.attempts.retain(|it| it.seq != seq);
                self.outcomes.before_send.retain(|noted| *noted != seq);
                self.window.end(slot, outcome);
                TakenBack::Taken { attempts, redelivered }
            }
        }
    }

    /// Where a message in memory stands, and how often it was tried.
    pub(crate) fn state_of(&self, seq: i64) -> Option<(State, Option<Outcome>, u32)> {
        let entry = self.window.entry(self.window.find(seq)?);
        Some((entry.state, entry.outcome, entry.attempts))
    }

    /// These outcomes are committed.
    pub(crate) fn forget(&mut self, seqs: impl IntoIterator<Item = i64>) {
        for seq in seqs {
            if let Some(lane) = self.window.forget(seq) {
                self.offer(lane);
            }
        }
    }

    /// Since when the destination is down, on the timer's clock, and why.
    pub(crate) fn down(&self) -> Option<(u64, &str)> {
        self.outage.down()
    }

    /// Whether [`Dispatcher::take`] would give something now; after [`Dispatcher::advance`].
    pub(crate) fn has_ready(&self) -> bool {
        let has_some = !self.offered.is_empty() || (self.suspects_out.is_empty() && !self.suspects.is_empty());
        let may_send = !self.is_halted && !self.is_paused && self.pace.may_send() && self.outage.may_send();
        may_send && has_some && !self.wants_mark
    }

    #[cfg(all(test, feature = "http"))]
    pub(crate) fn probes(&self) -> u32 {
        self.outage.probes()
    }

    /// How many messages are left to a send.
    #[cfg(test)]
    pub(crate) fn left_of(&self, number: u64) -> Option<usize> {
        self.flights.get(&number).map(|flight| flight.messages.len())
    }

    /// Whether all that is due can be on its way.
    #[cfg(test)]
    pub(crate) fn has_room_and_no_suspects(&self) -> bool {
        !self.window.was_full && self.suspects_out.is_empty() && self.suspects.is_empty()
    }

    // --- For the senders -----------------------------------------------------

    /// Takes from the timer what has come.
    pub(crate) fn advance(&mut self) {
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
                Alarm::Paced => self.pace.goes_on(),
                Alarm::CutOff(flight) => self.cut_off(flight),
                Alarm::Divide(flight) => self.divide(flight),
            }
        }
        self.timer.finish(claimed);
        self.released = released;
    }

    /// The next to be sent, at most so many messages and bytes, with the number of the send.
    pub(crate) fn take(
        &mut self,
        most: usize,
        most_bytes: usize,
        time_out: Option<Duration>,
    ) -> Option<(u64, Vec<Delivery>)> {
        let clock = self.clock.filter(|_| self.has_ready())?;
        let is_probe = self.outage.is_down();
        let (timer_us, wall_us) = (self.timer.clock().now_us(), self.wall.now_us());
        let tokens = self.pace.tokens(timer_us);
        if tokens == 0 {
            self.wait_for_tokens();
            return None;
        }
        let most = if is_probe { 1 } else { most.min(tokens) };
        let mut flight =
            Flight { messages: Vec::new(), began_us: timer_us, is_probe, limit: time_out, time_out: None, turns: None };
        let mut deliveries = Vec::new();
        let mut early = Vec::new();
        let (mut bytes, mut expired) = (0, 0);
        while deliveries.len() < most && bytes < most_bytes {
            let Some(offer) = self.offered.pop_front() else { break };
            let Some(slot) = self.accept(offer) else { continue };
            let entry = self.window.entry(slot);
            let late_us = clock.late_us(entry.due_ms, timer_us, wall_us);
            if late_us < 0 {
                early.push(slot);
                continue;
            }
            if entry.body.as_ref().and_then(Body::expires_ms).is_some_and(|ms| wall_us.div_euclid(1_000) > ms) {
                self.give_up(slot, Outcome::Expired, "");
                expired += 1;
                self.has_more_expired = expired == EXPIRED_AT_ONCE;
                if self.has_more_expired {
                    break;
                }
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
                redelivered: entry.may_have_arrived(),
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
        self.pace.spend(deliveries.len());
        if deliveries.len() == tokens && !self.offered.is_empty() {
            self.wait_for_tokens();
        }
        let number = self.next_flight;
        self.next_flight += 1;
        flight.time_out = time_out.and_then(|after| self.arm(after, Alarm::CutOff(number)));
        self.flights.insert(number, flight);
        Some((number, deliveries))
    }

    /// Whether the last `take` has ended as many as it may at once, and is to be called again; once.
    pub(crate) fn take_more_expired(&mut self) -> bool {
        std::mem::take(&mut self.has_more_expired)
    }

    /// Whether the answer to this send is still waited for.
    pub(crate) fn is_in_flight(&self, number: u64) -> bool {
        self.flights.contains_key(&number)
    }

    // --- Inside --------------------------------------------------------------

    fn wait_for_tokens(&mut self) {
        let wait_us = self.pace.wait_us();
        self.arm(Duration::from_micros(wait_us), Alarm::Paced);
    }

    fn arm(&self, after: Duration, alarm: Alarm) -> Option<Handle> {
        self.add(after.into(), alarm)
    }

    fn add(&self, when: When, alarm: Alarm) -> Option<Handle> {
        self.timer.add(when, alarm).ok() // a closed timer takes nothing more: nothing is sent then
    }
}

/// The timer of a dispatcher.
pub(crate) fn timer(clock: Clock) -> Result<Timer<Alarm>, Error> {
    Timer::new(&Config::default(), clock)
}
