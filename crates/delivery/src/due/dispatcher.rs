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

mod control;
mod disabling;
mod event;
mod failing;
mod parking;
mod placing;
mod settle;
mod strikes;
mod taking;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::clocks::{Alarm, Armed, Clocks};
use super::destination::{Destination, Destinations, Failing};
use super::doubt::{Doubt, Doubts, Key};
use super::lanes::Slot;
use super::measures::SendMeasures;
use super::outage::Outage;
use super::retry::Retry;
use super::strikes::Strikes;
use super::table::{self, Withdrawn};
use super::tallies::Tally;
use super::tenants::{TenantLimits, Tenants};
use super::window::{Bounds, State, Window};
use crate::base::clock::{DueClock, WallTime};
use crate::message::Body;
use crate::message::shares::destination_in;
use crate::sinks::Owner;
use crate::store::{Attempts, Done, Outcome, StoredDestination, StoredTenant};
use tickwheel::{Handle, Timer};

pub use event::Event;

/// The most messages that are taken and not sent under one hold of the lock: they expire, or wait for their notes.
const PASSED_AT_ONCE: usize = 1_000;
/// How many destinations are looked at, at once, whether they can leave memory.
const LOOKED_AT_ONCE: u32 = 32;

/// The dispatcher's results for the writer.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) done: Vec<Done>,
    /// The dead and expired messages in `done`, in the same order.
    pub(crate) dead: Vec<Dead>,
    /// Messages that were tried.
    pub(crate) attempts: Vec<Attempts>,
    /// Messages with strikes: each goes out once this is on disk, or does not any more.
    pub(crate) noted: Vec<(i64, bool)>,
    /// Destinations, by their numbers, that fail for long.
    pub(crate) failing: Vec<(i64, FailingNote)>,
}

impl Outcomes {
    pub(crate) fn is_empty(&self) -> bool {
        self.done.is_empty() && self.attempts.is_empty() && self.noted.is_empty() && self.failing.is_empty()
    }

    /// Leaves `other` empty, with its memory: it has the results of the next send.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.done.append(&mut other.done);
        self.dead.append(&mut other.dead);
        self.attempts.append(&mut other.attempts);
        self.noted.append(&mut other.noted);
        self.failing.append(&mut other.failing);
    }
}

/// A change of a destination that the store keeps.
#[derive(Clone, Debug)]
pub(crate) enum FailingNote {
    /// Since when it fails, if it does.
    Since(Option<i64>),
    /// It is paused, for this reason.
    Disabled(String),
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

/// The message is due, or may have been sent.
#[derive(Debug)]
pub(crate) struct TooLate;

/// The facts about a message that is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakenBack {
    /// It does not go out. The fields say how often it was tried, whether it may have arrived, and the number of its
    /// destination.
    Taken { attempts: u32, counted: u32, strikes: u32, redelivered: bool, share: i64 },
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
    /// Of the destination.
    share: u32,
    messages: Vec<InFlight>,
    /// The tenant of each message that has one.
    tenants: Vec<i64>,
    /// On the timer's clock.
    began_us: u64,
    /// The timer task for the end of the time that the send may take.
    time_out: Option<Handle>,
}

/// The sends without an answer, by their numbers.
#[derive(Default)]
struct Flights {
    open: FxHashMap<u64, Flight>,
    /// The share of the destination of each call that has not returned, cut off or not.
    shares: FxHashMap<u64, u32>,
    next: u64,
}

struct Moment {
    task: Handle,
    messages: Vec<(Slot, i64)>,
}

/// Messages that wait for their due time.
#[derive(Default)]
struct Moments {
    by_due: BTreeMap<i64, Moment>,
    /// Messages that were tried, and would be early since a step of the wall clock, by their numbers. Each waits for an
    /// alarm.
    early: FxHashMap<i64, (Slot, Option<Handle>)>,
}

/// A message that is due after `until_ms` waits for the writer.
#[derive(Debug)]
pub(crate) struct SendLimit {
    pub(crate) until_ms: i64,
    pub(crate) is_wanted: bool,
    /// Sending is paused: due messages wait until it is resumed.
    is_paused: bool,
}

/// Which messages are next.
#[derive(Debug)]
struct Turns {
    /// The shares of the destinations with messages in their queues, the next one first. One without is found out when its turn comes.
    shares: VecDeque<u32>,
    /// Those with keys that are tried at once, because they failed together.
    to_wake: VecDeque<u32>,
    /// How many messages a send may have, as asked for by the last [`Dispatcher::take`]: what [`Dispatcher::has_ready`]
    /// goes by.
    most_in_send: usize,
    /// `take` has reached its limit of messages that are not sent, and there may be more of them.
    has_more_to_pass: bool,
}

/// The dispatcher: see the text of the module.
pub(crate) struct Dispatcher {
    pub(crate) window: Window,
    /// By share.
    pub(crate) to: Destinations,
    pub(crate) limit: SendLimit,
    /// The number of each message that left memory and for which its lane waits, and the lane.
    parked_lanes: FxHashMap<i64, Key>,
    /// A message that left memory may be tried again, so the loader should read.
    pub(crate) wants_load: bool,
    pub(crate) outcomes: Outcomes,
    pub(crate) events: Vec<Event>,
    pub(crate) is_halted: bool,
    /// Of all sends.
    pub(crate) measures: SendMeasures,
    /// By the timer's clock: until then an earlier owner of the store may send; 0: there is none.
    pub(crate) others_until_us: u64,
    clocks: Clocks,
    moments: Moments,
    turns: Turns,
    flights: Flights,
    strikes: Strikes,
    tenants: Tenants,
    /// This process, if the store is replicated.
    pub(crate) owner: Option<Arc<Owner>>,
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher")
            .field("queues", &self.to.iter().map(|it| &it.queues).collect::<Vec<_>>())
            .field("limit", &self.limit)
            .field("moments", &self.moments.by_due.keys().collect::<Vec<_>>())
            .field("flights", &self.flights.open.len())
            .finish_non_exhaustive()
    }
}

impl Dispatcher {
    pub(crate) fn new(
        timer: Arc<Timer<Armed>>,
        wall: Arc<dyn WallTime>,
        bounds: Bounds,
        is_global: bool,
        retry: Retry,
        unanswered_for: Duration,
        seed: u64,
    ) -> Self {
        let clocks = Clocks::new(timer, wall);
        Self {
            window: Window::new(bounds, is_global),
            to: Destinations::new(Destination::new(retry, unanswered_for, seed)),
            limit: SendLimit { until_ms: i64::MIN, is_wanted: false, is_paused: false },
            parked_lanes: FxHashMap::default(),
            wants_load: false,
            outcomes: Outcomes::default(),
            events: Vec::new(),
            is_halted: false,
            measures: SendMeasures { changed_us: Some(clocks.now_us()), ..SendMeasures::default() },
            others_until_us: 0,
            clocks,
            moments: Moments::default(),
            turns: Turns {
                shares: VecDeque::new(),
                to_wake: VecDeque::new(),
                most_in_send: 1,
                has_more_to_pass: false,
            },
            flights: Flights::default(),
            strikes: Strikes::default(),
            tenants: Tenants::default(),
            owner: None,
        }
    }

    // --- For the writer ------------------------------------------------------

    /// Takes the place of the sender of the same store as it was before the store was opened anew. That one has no send in
    /// flight, and the writer has its outcomes. Sends that were cut off keep their places.
    pub(crate) fn take_over(&mut self, before: &mut Self) {
        std::mem::swap(&mut self.clocks, &mut before.clocks);
        self.clocks.forget_alarms();
        self.window.take_over(&before.window);
        self.is_halted = before.is_halted;
        self.others_until_us = before.others_until_us;
        self.flights.next = before.flights.next;
        self.flights.shares = std::mem::take(&mut before.flights.shares);
        self.flights.shares.retain(|_, share| *share == 0); // the others are opened anew, with all places free
        self.events.append(&mut before.events);
        std::mem::swap(&mut self.measures, &mut before.measures);
        self.to.tallies.take_over(&mut before.to.tallies);
        self.to[0].take_over(&mut before.to[0]);
        self.tenants.take_over(&mut before.tenants, self.clocks.now_us());
    }

    /// Whether messages are due by the clock.
    pub(crate) fn is_started(&self) -> bool {
        self.clocks.due.is_some()
    }

    /// Whether a send has no answer, and was not cut off.
    pub(crate) fn has_flights(&self) -> bool {
        !self.flights.open.is_empty()
    }

    /// Sets the limits of each tenant that has none of its own.
    pub(crate) fn limit_tenants(&mut self, limits: TenantLimits) {
        self.tenants.set_usual(limits);
    }

    /// How many tenants are in memory that are busy.
    #[cfg(test)]
    pub(crate) fn busy_tenants(&self) -> usize {
        self.tenants.len()
    }

    /// Starts the clock: from now on messages are due.
    pub(crate) fn start(&mut self, clock: DueClock) {
        self.clocks.due = Some(clock);
    }

    /// The latest due time within `ms` milliseconds from now. `None` before the start.
    pub(crate) fn due_within(&self, ms: f64) -> Option<i64> {
        Some(self.clocks.due?.due_within(ms, self.clocks.now_us(), self.clocks.wall.now_us()))
    }

    /// The first due time on the timer.
    pub(crate) fn first_due_ms(&self) -> Option<i64> {
        self.moments.by_due.first_key_value().map(|(due_ms, _)| *due_ms)
    }

    /// Keeps a message from going out, if this is still possible. Its lane goes on once the outcome is committed. If it is
    /// absent and has attempts in the store, [`Dispatcher::take_back_parked`] comes next.
    pub(crate) fn take_back(&mut self, seq: i64, outcome: Outcome) -> TakenBack {
        let Some(slot) = self.window.find(seq) else { return TakenBack::Absent };
        let entry = self.window.entry(slot);
        match table::taken_back(entry.state) {
            Withdrawn::Over => TakenBack::Over(entry.outcome.expect("it is over")),
            Withdrawn::Sending => TakenBack::Sending,
            Withdrawn::InTime if self.others_may_send(outcome) && (entry.may_have_arrived() || entry.was_sent) => {
                TakenBack::Sending
            }
            Withdrawn::InTime => {
                let (attempts, counted, strikes) = (entry.attempts, entry.counted, entry.strikes);
                let redelivered = entry.may_have_arrived() || entry.was_sent;
                let share = self.window.share(entry.share).id;
                self.strikes.forget(seq);
                self.outcomes.attempts.retain(|it| it.seq != seq);
                self.forget_doubt(slot);
                self.window.end(slot, outcome);
                TakenBack::Taken { attempts, counted, strikes, redelivered, share }
            }
        }
    }

    /// Whether an earlier owner of the store may still send what it began, so that this outcome, which a caller asks for, would be no
    /// definite answer.
    pub(crate) fn others_may_send(&self, outcome: Outcome) -> bool {
        self.others_until_us > 0
            && matches!(outcome, Outcome::Cancelled | Outcome::Moved)
            && self.clocks.now_us() < self.others_until_us
    }

    /// Takes a message out of memory, to be admitted anew at another place. `Err`: it is due, or may have been sent.
    pub(crate) fn take_out(&mut self, seq: i64) -> Result<Option<Body>, TooLate> {
        let Some(slot) = self.window.find(seq) else { return Ok(None) };
        let entry = self.window.entry(slot);
        let is_waiting = matches!(entry.state, State::Uncommitted | State::Waiting | State::Leaving);
        if !is_waiting || entry.attempts > 0 || entry.may_have_arrived() || entry.was_sent {
            return Err(TooLate);
        }
        let body = entry.body.clone();
        self.window.end(slot, Outcome::Moved);
        self.forget([seq]);
        Ok(body)
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
        self.to[0].outage.down()
    }

    /// Whether this message, or its key, waits after a send that was not accepted. `id`: of its destination.
    #[cfg(test)]
    pub(crate) fn waits(&self, share_id: i64, key: Option<&str>, id: &str) -> bool {
        use crate::message::incoming::{lane_in, lane_of};

        let Some(share) = self.window.share_numbered(share_id) else { return false };
        let lane = lane_of(key).map(|number| lane_in(share_id, number));
        let lane = if self.window.is_global() { Some(0) } else { lane };
        let is_it =
            |entry: &super::window::Entry| entry.body.as_ref().is_some_and(|it| (it.key(), it.id()) == (key, id));
        let key = match lane {
            Some(lane) => Some(Key::Lane(share, lane)),
            None => self.window.slots().find(|(_, entry)| is_it(entry)).map(|(_, it)| Key::Message(share, it.seq)),
        };
        key.and_then(|key| self.to[share].doubts.get(key)).is_some_and(super::doubt::Doubt::waits)
    }

    #[cfg(test)]
    pub(crate) fn is_any_down(&self) -> bool {
        self.to.iter().any(|it| it.outage.is_down())
    }

    /// Whether all due messages can be on their way.
    #[cfg(test)]
    pub(crate) fn has_room_and_no_strikes(&self) -> bool {
        !self.window.was_full && !self.strikes.has_any()
    }

    // --- For the senders -----------------------------------------------------

    /// Handles all alarms whose time has come.
    pub(crate) fn advance(&mut self) {
        self.clocks.release();
        while let Some(alarm) = self.clocks.next_released() {
            match alarm {
                Alarm::Due(due_ms) => self.release(due_ms),
                Alarm::Again(slot, seq) => {
                    self.moments.early.remove(&seq);
                    self.offer_message(slot, seq);
                }
                Alarm::Waited(key) => self.has_waited(key),
                Alarm::Round(share, since_us) => self.begin_round(share, since_us),
                Alarm::Quiet(share) => {
                    self.to[share].outage.is_quiet_armed = false;
                    self.look_for_outage(share);
                }
                Alarm::Tried(share) => self.read_tried(share),
                Alarm::Alone => self.end_alone(),
                Alarm::Older(share) => self.to[share].places.is_older_armed = false,
                Alarm::Paced(share) => {
                    self.to[share].pace.goes_on();
                    self.has_turn_again(share);
                }
                Alarm::TenantPaced(tenant) => {
                    let shares = self.tenants.goes_on(tenant, self.clocks.now_us());
                    self.release_shares(shares);
                }
                Alarm::CutOff(flight) => self.cut_off(flight),
            }
        }
        self.wake_some();
    }

    /// Whether the last `take` reached its limit of messages that are not sent. If so, call `take` again. The answer is given
    /// only once.
    pub(crate) fn has_more_to_pass(&mut self) -> bool {
        std::mem::take(&mut self.turns.has_more_to_pass)
    }

    /// Whether this send has no answer, and was not cut off.
    pub(crate) fn is_in_flight(&self, number: u64) -> bool {
        self.flights.open.contains_key(&number)
    }

    /// Stops all sending.
    pub(crate) fn halt(&mut self) {
        self.is_halted = true;
    }

    // --- Inside --------------------------------------------------------------

    /// The share of the destination of this message.
    pub(super) fn home_of(&self, slot: Slot) -> u32 {
        self.to.home(self.window.entry(slot).share)
    }

    /// The share with this number in the store. `stored`: its destination, as the store has it.
    pub(crate) fn open_share<'a>(&mut self, id: i64, stored: impl FnOnce() -> Option<&'a StoredDestination>) -> u32 {
        if let Some(share) = self.window.share_numbered(id) {
            return share;
        }
        let of = destination_in(id);
        if id != of {
            let home = self.open_share(of, stored);
            let share = self.window.open_share(id);
            self.to.put_tenant(share, home);
            return share;
        }
        let share = self.window.open_share(id);
        self.to.put(share, self.to[0].like(id));
        if let Some(stored) = stored() {
            self.set_share(share, stored);
        }
        share
    }

    /// Named destinations with nothing to do leave memory, if there are more than `most`: some with each call. Returns their
    /// numbers. A destination that comes back begins anew: none of its messages is before its cursor.
    pub(crate) fn forget_idle(&mut self, most: usize) -> Vec<i64> {
        let mut left = Vec::new();
        self.tenants.forget_idle(self.clocks.now_us());
        for _ in 0..LOOKED_AT_ONCE.min(self.to.count()) {
            if self.window.named_shares() <= most {
                break;
            }
            let share = self.to.look_at_next();
            if self.window.is_idle(share) && self.is_idle(share) {
                left.push(self.window.close_share(share));
                self.to.remove(share);
            }
        }
        left
    }

    fn is_idle(&mut self, share: u32) -> bool {
        let now_us = self.clocks.now_us();
        self.to.work(share).is_idle()
            && if self.to.home(share) == share {
                self.to[share].is_idle(now_us)
            } else {
                let waits = |key: Key, doubt: &Doubt| key.share() == share && (doubt.waits() || doubt.parked.is_some());
                !self.to[share].queues.have_some_of(share) && !self.to[share].doubts.any(waits)
            }
    }

    /// The destination has these settings from now on, if it is in memory.
    pub(crate) fn set_destination(&mut self, stored: &StoredDestination) {
        if let Some(share) = self.window.share_numbered(stored.share) {
            self.set_share(share, stored);
        }
    }

    /// The tenant may do this from now on.
    pub(crate) fn set_tenant(&mut self, stored: &StoredTenant) {
        let going_on = self.tenants.set(stored, self.clocks.now_us());
        if stored.paused_ms.is_some() && self.strikes.has_any() {
            self.unnote_waiting(|it, slot| it.tenant_of(slot) == stored.number);
        }
        self.release_shares(going_on);
    }

    /// The counts of tenants with an answer.
    pub(crate) fn tenant_tallies(&self) -> impl Iterator<Item = &Tally> {
        self.tenants.tallies.all()
    }

    /// Whether the tenant is paused, and how many of its messages are in calls that have not returned.
    pub(crate) fn tenant_state(&self, tenant: i64) -> (bool, usize) {
        self.tenants.state(tenant)
    }

    /// The destination was removed, and has no message any more.
    pub(crate) fn forget_destination(&mut self, id: i64) {
        self.to.tallies.forget(id);
        let Some(share) = self.window.share_numbered(id) else { return };
        let Destination { doubts, outage, to_wake, is_paused, .. } = &mut self.to[share];
        for alarm in doubts.take_alarms() {
            self.clocks.cancel(alarm);
        }
        (*doubts, *outage, *is_paused) = (Doubts::default(), Outage::default(), false);
        to_wake.clear();
        for share in self.shares_at(share) {
            self.to.work_mut(share).wanted.clear();
            self.offer_again(share);
        }
        self.has_turn_again(share);
    }

    fn set_share(&mut self, share: u32, stored: &StoredDestination) {
        let (usual, now_us) = (self.to[0].usual(), self.clocks.now_us());
        self.to[share].name = Some(stored.name.clone());
        self.to[share].is_paused = stored.paused_ms.is_some();
        self.to[share].failing = stored.failing_ms.map(|since_ms| Failing { since_ms, is_noted: true });
        // A version that can't read them sends nothing there.
        match serde_json::from_str(&stored.settings) {
            Ok(settings) => self.to[share].set(settings, &usual, now_us),
            Err(_) => self.to[share].is_paused = true,
        }
        if self.to[share].is_paused && self.strikes.has_any() {
            self.unnote_waiting(|it, slot| it.home_of(slot) == share);
        }
        self.tally_state(share);
        self.has_turn_again(share);
    }

    /// The tenants of these shares may send again.
    fn release_shares(&mut self, shares: Vec<u32>) {
        for share in shares {
            self.to[share].queues.release(share);
            self.wants_load |= self.window.let_go(share);
            self.has_turn_again(self.to.home(share));
        }
    }

    fn wait_for_tokens(&mut self, share: u32) {
        let wait_us = self.to[share].pace.wait_us(self.clocks.now_us());
        self.clocks.arm(Duration::from_micros(wait_us), Alarm::Paced(share));
    }
}
