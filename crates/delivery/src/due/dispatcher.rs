//! The way from the timer to the senders and back (rules D3, D4, D6). Due messages go out in order per key, one at a
//! time.
//!
//! ```text
//! place -> timer -> fresh, in_doubt -> take -> (the sink) -> settle -> outcomes
//!             ^                                                |
//!             +---------------- the key waits -----------------+
//! ```
//!
//! - One timer task stands for all messages that are due in the same millisecond, the smallest unit of a due time. A
//!   lane always sends its first message. The timer therefore need not keep order, and a message that was accepted late
//!   goes before the messages that are due after it.
//! - The clock is read again right before the send. If the wall clock was stepped back and a message would be early, it
//!   goes back on the timer, together with all other waiting messages.
//! - No message goes out if it is due after `sent_until_ms`, a limit on disk. After a crash, only messages that are due
//!   until the limit may have been sent.
//! - A message that was not accepted makes its key wait: [`doubt`](super::doubt). Keys in doubt have a separate queue
//!   and separate places: [`places`](super::places). If no message is accepted any more, the destination is down:
//!   [`outage`](super::outage).
//! - If there is a rate (D18), each message takes a token before it goes out. Without a token, all messages wait for an
//!   alarm.
//! - A lock guards the dispatcher. No sink is called under it.

mod again;
mod event;
mod failing;
mod parking;
mod pausing;
mod placing;
mod settle;
mod suspects;
mod taking;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use rustc_hash::FxHashMap;

use super::doubt::{Doubts, Key};
use super::lanes::Slot;
use super::measures::SendMeasures;
use super::outage::Outage;
use super::outcome_feed::{Ended, OutcomeFeeds};
use super::pace::Pace;
use super::places::{PlaceLimits, Places};
use super::retry::Retry;
use super::window::{Bounds, State, Window};
use crate::base::clock::{DueClock, WallTime};
use crate::message::Body;
use crate::store::{Attempts, Done, Outcome};
use tickwheel::{Clock, Config, Error, Handle, Released, Ticket, Timer, When};

pub use event::Event;

/// The most messages that expire under one hold of the lock.
const EXPIRED_AT_ONCE: usize = 1_000;

/// The alarms of the timer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Alarm {
    /// Messages are due in this millisecond.
    Due(i64),
    /// A message may be sent that would have been early before.
    Again(Slot, i64),
    /// A key has waited long enough.
    Waited(Key),
    /// A round of tries begins. The number is the start of the outage.
    Round(u64),
    /// One more new key may be tried. The number is the start of the outage.
    NewTry(u64),
    /// No send was accepted for a second, or some were.
    Quiet,
    /// Messages that wait for their next attempt should be read from the store.
    Tried,
    /// Messages of this send that a crashed process may have been sending do not hold up others any more.
    Suspected(u64),
    /// A send is not young any more. It may leave its ordinary place.
    Older,
    /// The rate allows more messages.
    Paced,
    /// A send takes too long.
    CutOff(u64),
}

/// An entry in a queue for sending.
#[derive(Clone, Copy, Debug)]
enum Offer {
    Lane(u32),
    /// A message without a key, or a message that is tried again.
    Message(Slot, i64),
}

/// The dispatcher's results for the writer.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) done: Vec<Done>,
    /// The dead and expired messages in `done`, in the same order.
    pub(crate) dead: Vec<Dead>,
    /// The messages in `done`, for the readers of outcomes.
    pub(crate) ended: Vec<Arc<Ended>>,
    /// Messages that were tried, or are about to be.
    pub(crate) attempts: Vec<Attempts>,
    /// Messages in `attempts` that go out once the attempt is on disk.
    pub(crate) before_send: Vec<i64>,
}

impl Outcomes {
    pub(crate) fn is_empty(&self) -> bool {
        self.done.is_empty() && self.attempts.is_empty()
    }

    /// Leaves `other` empty, with its memory: it has the results of the next send.
    pub(crate) fn append(&mut self, other: &mut Self) {
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

/// The facts about a message that is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakenBack {
    /// It does not go out. The fields say how often it was tried, and whether it may have arrived.
    Taken { attempts: u32, strikes: u32, redelivered: bool },
    /// It is being sent.
    Sending,
    /// It has its outcome, which may not be committed.
    Over(Outcome),
    /// It is not in memory.
    Absent,
}

/// The facts about a message that should be tried at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// It does not wait any more. `seq`: the number of the message, if it is known. `attempts`: how often it was sent, or
    /// 0 if it is only in the store.
    Tried { seq: Option<i64>, attempts: u32 },
    /// It is being sent.
    Sending,
    /// It has its outcome, which may not be committed.
    Over(Outcome),
    /// It waits, but not for its next attempt.
    Waiting,
    /// Memory has no such message.
    Absent,
}

/// A message in one call of a sink.
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
    /// The timer task for the end of the time that the send may take.
    time_out: Option<Handle>,
}

/// When parked messages are read.
#[derive(Debug, Default)]
struct Reading {
    /// The next time to read, and the alarm for it.
    next: Option<(i64, Option<Handle>)>,
    /// Messages to read at once, because their wait is over.
    wanted: Vec<i64>,
}

struct Moment {
    task: Handle,
    messages: Vec<(Slot, i64)>,
}

/// The dispatcher: see the text of the module.
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(crate) struct Dispatcher {
    pub(crate) window: Window,
    /// A message that is due after this time waits for the writer.
    pub(crate) sent_until_ms: i64,
    pub(crate) wants_limit: bool,
    /// A message that left memory may be tried again, so the loader should read.
    pub(crate) wants_load: bool,
    pub(crate) outcomes: Outcomes,
    pub(crate) events: Vec<Event>,
    pub(crate) is_halted: bool,
    pub(crate) pace: Pace,
    pub(crate) measures: SendMeasures,
    /// The readers of outcomes.
    pub(crate) feeds: Arc<OutcomeFeeds>,
    /// Sending is paused: due messages wait until it is resumed.
    is_paused: bool,
    timer: Arc<Timer<Alarm>>,
    wall: Arc<dyn WallTime>,
    clock: Option<DueClock>,
    /// The start of the process on the timer's clock and on the wall clock. See [`Dispatcher::steady_us`].
    began: (u64, i64),
    retry: Retry,
    /// A message is given up after it was due this long while its key had no success. The time of outages does not
    /// count.
    unanswered_for: Duration,
    random: Rng,
    pub(crate) places: Places,
    doubts: Doubts,
    outage: Outage,
    /// The destination was down when the last process ended.
    pub(crate) was_down: bool,
    /// An alarm is set for the time when the destination may be down.
    is_quiet_armed: bool,
    /// Keys that failed together. They are tried at once.
    to_wake: Vec<Key>,
    /// The number of each message that left memory while its lane waits for it, and the number of the lane.
    parked_lanes: FxHashMap<i64, i64>,
    reading: Reading,
    moments: BTreeMap<i64, Moment>,
    /// Messages and lanes to send, of keys that are not in doubt.
    fresh: VecDeque<Offer>,
    /// Messages and lanes to send, of keys in doubt.
    in_doubt: VecDeque<Offer>,
    /// While the destination is down: those of keys in doubt that are likely to show that it is back.
    likely: VecDeque<Offer>,
    /// The last send was of a key in doubt. If both kinds share places or the rate, the other kind comes next.
    was_in_doubt: bool,
    /// An alarm is set for the time when a send stops being young.
    is_older_armed: bool,
    flights: FxHashMap<u64, Flight>,
    next_flight: u64,
    /// Messages that were tried, and would be early since a step of the wall clock, by their numbers. Each waits for an
    /// alarm.
    early: FxHashMap<i64, (Slot, Option<Handle>)>,
    /// Messages that a crashed process may have been sending: of keys that are not in doubt, and of keys in doubt.
    suspects: [VecDeque<(Slot, i64)>; 2],
    /// Those that go out now, with their counted attempts before. The attempt of each is noted, and has no answer.
    suspects_out: FxHashMap<i64, u32>,
    /// How many messages a send may have, as asked for by the last [`Dispatcher::take`]: what [`Dispatcher::has_ready`]
    /// goes by.
    most_in_send: usize,
    released: Vec<Ticket>,
    /// `take` has reached its limit of expired messages, and there may be more of them.
    has_more_expired: bool,
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher")
            .field("fresh", &self.fresh)
            .field("in_doubt", &self.in_doubt)
            .field("doubts", &self.doubts)
            .field("sent_until_ms", &self.sent_until_ms)
            .field("wants_limit", &self.wants_limit)
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
        unanswered_for: Duration,
        seed: u64,
    ) -> Self {
        Self {
            window: Window::new(bounds, is_global),
            sent_until_ms: i64::MIN,
            wants_limit: false,
            wants_load: false,
            outcomes: Outcomes::default(),
            events: Vec::new(),
            is_halted: false,
            pace: Pace::default(),
            measures: SendMeasures { changed_us: timer.clock().now_us(), ..SendMeasures::default() },
            feeds: Arc::default(),
            is_paused: false,
            began: (timer.clock().now_us(), wall.now_us()),
            timer,
            wall,
            clock: None,
            retry,
            unanswered_for,
            random: Rng::with_seed(seed),
            places: Places::new(PlaceLimits::NONE),
            doubts: Doubts::default(),
            outage: Outage::default(),
            was_down: false,
            is_quiet_armed: false,
            to_wake: Vec::new(),
            parked_lanes: FxHashMap::default(),
            reading: Reading::default(),
            moments: BTreeMap::new(),
            fresh: VecDeque::new(),
            in_doubt: VecDeque::new(),
            likely: VecDeque::new(),
            was_in_doubt: false,
            is_older_armed: false,
            flights: FxHashMap::default(),
            next_flight: 0,
            early: FxHashMap::default(),
            suspects: <[VecDeque<_>; 2]>::default(),
            suspects_out: FxHashMap::default(),
            most_in_send: 1,
            released: Vec::new(),
            has_more_expired: false,
        }
    }

    // --- For the writer ------------------------------------------------------

    /// Starts the clock: from now on messages are due.
    pub(crate) fn start(&mut self, clock: DueClock) {
        self.clock = Some(clock);
    }

    /// The latest due time within `ms` milliseconds from now. `None` before the start.
    pub(crate) fn due_within(&self, ms: f64) -> Option<i64> {
        Some(self.clock?.due_within(ms, self.timer.clock().now_us(), self.wall.now_us()))
    }

    /// The first due time on the timer.
    pub(crate) fn first_due_ms(&self) -> Option<i64> {
        self.moments.first_key_value().map(|(due_ms, _)| *due_ms)
    }

    /// Keeps a message from going out, if this is still possible. Its lane goes on once the outcome is committed.
    pub(crate) fn take_back(&mut self, seq: i64, outcome: Outcome) -> TakenBack {
        let Some(slot) = self.window.find(seq) else {
            self.take_back_parked(seq);
            return TakenBack::Absent;
        };
        let entry = self.window.entry(slot);
        match entry.state {
            State::Over => TakenBack::Over(entry.outcome.expect("it is over")),
            State::Sending => TakenBack::Sending,
            State::Uncommitted | State::Waiting | State::Ready | State::Retrying | State::Parked | State::Leaving => {
                let (attempts, strikes) = (entry.attempts, entry.strikes);
                let redelivered = entry.may_have_arrived() || entry.was_sent;
                self.suspects_out.remove(&seq);
                self.outcomes.attempts.retain(|it| it.seq != seq);
                self.outcomes.before_send.retain(|noted| *noted != seq);
                self.forget_doubt(slot);
                self.window.end(slot, outcome);
                TakenBack::Taken { attempts, strikes, redelivered }
            }
        }
    }

    /// The state and outcome of a message in memory, and how often it was tried.
    pub(crate) fn state_of(&self, seq: i64) -> Option<(State, Option<Outcome>, u32)> {
        let entry = self.window.entry(self.window.find(seq)?);
        Some((entry.state, entry.outcome, entry.attempts))
    }

    /// Forgets these messages, because their outcomes are committed.
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

    /// Whether this message, or its key, waits after a send that was not accepted.
    #[cfg(test)]
    pub(crate) fn waits(&self, key: Option<&str>, id: &str) -> bool {
        let lane = if self.window.is_global() { Some(0) } else { crate::message::incoming::lane_of(key) };
        let is_it =
            |entry: &super::window::Entry| entry.body.as_ref().is_some_and(|it| (it.key(), it.id()) == (key, id));
        let key = match lane {
            Some(lane) => Some(Key::Lane(lane)),
            None => self.window.slots().find(|(_, entry)| is_it(entry)).map(|(_, entry)| Key::Message(entry.seq)),
        };
        key.and_then(|key| self.doubts.get(key)).is_some_and(super::doubt::Doubt::waits)
    }

    /// Whether all due messages can be on their way.
    #[cfg(test)]
    pub(crate) fn has_room_and_no_suspects(&self) -> bool {
        !self.window.was_full && self.suspects_out.is_empty() && self.suspects.iter().all(VecDeque::is_empty)
    }

    // --- For the senders -----------------------------------------------------

    /// Handles all alarms whose time has come.
    pub(crate) fn advance(&mut self) {
        let mut released = std::mem::take(&mut self.released);
        self.timer.advance(&mut |batch: Released| released.extend(batch.tickets));
        for ticket in released.drain(..) {
            let Some(alarm) = self.timer.claim(ticket).map(|claimed| claimed.task) else { continue };
            match alarm {
                Alarm::Due(due_ms) => self.release(due_ms),
                Alarm::Again(slot, seq) => {
                    self.early.remove(&seq);
                    self.offer_message(slot, seq);
                }
                Alarm::Waited(key) => self.has_waited(key),
                Alarm::Round(since_us) => self.begin_round(since_us),
                Alarm::NewTry(since_us) => self.add_new_try(since_us),
                Alarm::Quiet => {
                    self.is_quiet_armed = false;
                    self.look_for_outage();
                }
                Alarm::Tried => self.read_tried(),
                Alarm::Suspected(flight) => self.suspected_long(flight),
                Alarm::Older => self.is_older_armed = false,
                Alarm::Paced => self.pace.goes_on(),
                Alarm::CutOff(flight) => self.cut_off(flight),
            }
        }
        self.released = released;
        self.wake_some();
    }

    /// Whether the last `take` reached its limit of expired messages. If so, call `take` again. The answer is given
    /// only once.
    pub(crate) fn take_more_expired(&mut self) -> bool {
        std::mem::take(&mut self.has_more_expired)
    }

    /// Whether this send has no answer, and was not cut off.
    pub(crate) fn is_in_flight(&self, number: u64) -> bool {
        self.flights.contains_key(&number)
    }

    /// Stops all sending.
    pub(crate) fn halt(&mut self) {
        self.is_halted = true;
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
        self.timer.add(when, alarm).ok() // a closed timer takes no task: no message is sent then
    }
}

pub(crate) fn timer(clock: Clock) -> Result<Timer<Alarm>, Error> {
    Timer::new(&Config::default(), clock)
}
