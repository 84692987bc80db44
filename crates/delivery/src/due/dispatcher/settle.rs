//! What the answer of a sink, or none, means for each message (rules D5, D6).

use std::sync::Arc;
use std::time::Duration;

use super::{Alarm, CRASHED, Dead, Dispatcher, Event, Flight, InFlight, Offer};
use crate::base::display::{self, cut};
use crate::due::lanes::Slot;
use crate::due::outage::bounded;
use crate::due::outcome_feed::Ended;
use crate::due::window::State;
use crate::sinks::{Verdict, Verdicts};
use crate::store::{Attempts, Done, Outcome};

/// Why a destination is down whose sink answered that it tried none of a send.
const NONE_TRIED: &str = "the sink tried none of the messages it was given";

/// How many characters of a name are told.
const LONGEST_NAME: usize = 200;

impl Dispatcher {
    /// The sink has ended its turns; `last`: what became of the one after those that arrived.
    pub(crate) fn settle_turns(&mut self, number: u64, last: Option<Verdict>) {
        let Some(it) = self.flights.get(&number).and_then(|flight| flight.turns.as_ref()) else { return };
        let verdicts = it.turns.verdicts_from(it.first, last);
        self.settle(number, verdicts);
    }

    /// No sink got this send.
    pub(crate) fn give_back(&mut self, number: u64) {
        let Some(flight) = self.end_flight(number) else { return };
        for message in &flight.messages {
            self.untried(message);
        }
        self.end_probe(&flight);
    }

    /// The sink has answered. What was cut off before has its outcome already.
    pub(crate) fn settle(&mut self, number: u64, mut verdicts: Verdicts) {
        let Some(flight) = self.end_flight(number) else { return };
        self.measures.durations.add(self.timer.clock().now_us().saturating_sub(flight.began_us) as i64);
        if let Verdicts::Each(each) = &mut verdicts
            && !self.is_halted
            && !self.is_paused
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
                let verdicts = verdicts.into_iter().chain(std::iter::repeat(Verdict::NotTried));
                let settled = flight.messages.iter().zip(verdicts);
                // Which came first is not known. Behind the answers, what has none counts for the outage that it may begin.
                let (answered, rest): (Vec<_>, Vec<_>) =
                    settled.partition(|(_, it)| matches!(it, Verdict::Delivered | Verdict::Refused(_)));
                for (message, verdict) in answered.into_iter().chain(rest) {
                    self.settle_one(message, verdict, flight.is_probe);
                }
            }
        }
        self.end_probe(&flight);
    }

    pub(super) fn end_flight(&mut self, number: u64) -> Option<Flight> {
        let flight = self.flights.remove(&number)?;
        for task in [flight.time_out, flight.turns.as_ref().and_then(|it| it.divide)].into_iter().flatten() {
            self.timer.cancel(task);
        }
        Some(flight)
    }

    pub(super) fn end_probe(&mut self, flight: &Flight) {
        if flight.is_probe && self.outage.waits_for_probe() {
            self.outage.probe_came_back();
        }
        self.note_suspects();
    }

    pub(super) fn settle_one(&mut self, message: &InFlight, verdict: Verdict, is_probe: bool) {
        self.measures.ended(&verdict);
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
                self.window.entry_mut(message.slot).is_unanswered = true;
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

    pub(super) fn delivered(&mut self, message: &InFlight) {
        let entry = self.window.entry(message.slot);
        let done = Done {
            seq: message.seq,
            due_ms: entry.due_ms,
            outcome: Outcome::Delivered,
            at_ms: message.at_ms,
            lateness_us: Some(message.late_us),
            attempts: entry.attempts + u32::from(!entry.is_noted),
            redelivered: entry.may_have_arrived(),
        };
        self.measures.arrived(done.redelivered);
        self.end(message.slot, done, None);
    }

    /// It was not this message's fault, or it was not tried: it goes out again, and nothing is counted.
    pub(super) fn untried(&mut self, message: &InFlight) {
        self.comes_back(message);
        self.offered.push_back(Offer::Message(message.slot, message.seq));
    }

    pub(super) fn comes_back(&mut self, message: &InFlight) {
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
    pub(super) fn failed(&mut self, message: &InFlight, reason: &str, retry_after_ms: Option<u64>) {
        let reason = display::reason(reason);
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
            self.give_up(message.slot, Outcome::Dead, reason);
            return;
        }
        self.window.entry_mut(message.slot).state = State::Retrying;
        let after_us = self.retry.delay_us(attempts, &mut self.random);
        let after = Duration::from_micros(after_us).max(Duration::from_millis(retry_after_ms.map_or(0, bounded)));
        let next_ms = self.wall.now_us().saturating_add(after.as_micros() as i64) / 1000;
        self.keep_attempt(message.seq, attempts, Some(next_ms), reason);
        self.arm(after, Alarm::Again(message.slot, message.seq));
    }

    /// `outcome`: `Dead`, for this reason, or `Expired`.
    pub(super) fn give_up(&mut self, slot: Slot, outcome: Outcome, reason: &str) {
        let entry = self.window.entry(slot);
        let body = entry.body.clone().expect("what waits has its body");
        let attempts = entry.attempts - u32::from(outcome == Outcome::Expired && entry.is_noted); // that one is not made
        let (seq, due_ms) = (entry.seq, entry.due_ms);
        let done = Done {
            seq,
            due_ms,
            outcome,
            at_ms: self.wall.now_us() / 1000,
            lateness_us: None,
            attempts,
            redelivered: entry.may_have_arrived(),
        };
        self.outcomes.dead.push(Dead { seq, due_ms, outcome, attempts, reason: reason.to_owned(), body });
        self.end(slot, done, Some(reason));
    }

    /// `reason`: why it did not arrive.
    pub(super) fn end(&mut self, slot: Slot, done: Done, reason: Option<&str>) {
        self.suspects_out.remove(&done.seq);
        if self.feeds.has_any()
            && let Some(body) = &self.window.entry(slot).body
        {
            self.outcomes.ended.push(Arc::new(Ended::of(&done, body, reason)));
        }
        self.outcomes.done.push(done);
        let lane = self.window.entry(slot).lane;
        self.window.end(slot, done.outcome);
        if let Some(lane) = lane {
            self.offer(lane);
        }
    }

    pub(super) fn keep_attempt(&mut self, seq: i64, attempts: u32, next_ms: Option<i64>, error: &str) {
        self.outcomes.attempts.push(Attempts { seq, attempts, next_ms, error: Some(error.to_owned()) });
    }
}
