//! The effect of a sink's answer on each message (rules D5, D6).

use super::{Dead, Dispatcher, Event, Flight, InFlight};
use crate::due::lanes::Slot;
use crate::due::measures::NO_ANSWER_IN_TIME;
use crate::due::table;
use crate::due::tallies::Tally;
use crate::due::window::State;
use crate::message::shares::{destination_in, tenant_in};
use crate::sinks::{Verdict, Verdicts};
use crate::store::{Done, Outcome};

/// The reason of a key that waits because the sink tried no message of the send.
const NONE_TRIED: &str = "the sink tried none of the messages it was given";

impl Dispatcher {
    /// Frees the place of a send that was cut off. Its call has returned.
    pub(crate) fn free_place(&mut self, number: u64) {
        self.leave_place(number, self.clocks.now_us());
        self.note_strikes();
    }

    /// Returns whether the send was slow.
    fn leave_place(&mut self, number: u64, now_us: u64) -> bool {
        let going_on = self.tenants.end_call(number, self.clocks.now_us());
        self.release_shares(going_on);
        let share = self.flights.shares.remove(&number);
        share.is_some_and(|share| self.to[share].places.leave(number, now_us))
    }

    /// Takes back a send that reached no sink.
    pub(crate) fn give_back(&mut self, number: u64) {
        self.leave_place(number, 0);
        let Some(flight) = self.end_flight(number) else { return };
        for message in &flight.messages {
            self.untried(message);
        }
        self.note_strikes();
    }

    /// Settles a send with the sink's answer, and frees its place. Messages that were cut off already have their
    /// result.
    pub(crate) fn settle(&mut self, number: u64, mut verdicts: Verdicts) {
        let now_us = self.clocks.now_us();
        let is_slow = self.leave_place(number, now_us);
        let Some(flight) = self.end_flight(number) else { return self.note_strikes() };
        let duration_us = now_us.saturating_sub(flight.began_us);
        self.measures.durations.add(duration_us as i64);
        if let Verdicts::Each(each) = &mut verdicts
            && !self.is_halted
            && !self.limit.is_paused
            && each.iter().all(|it| *it == Verdict::NotTried)
        {
            // If the messages were sent again at once, a sink that tries none would keep a core busy.
            *each = vec![Verdict::Unreachable { reason: NONE_TRIED.to_owned(), retry_after_ms: None }];
        }
        self.settle_messages(&flight, verdicts, is_slow);
        self.note_strikes();
    }

    /// Cuts off a send that took too long: its messages count as unanswered.
    /// [`Places::hangs`](crate::due::places::Places::hangs) decides whether the call keeps its place.
    pub(super) fn cut_off(&mut self, number: u64) {
        let Some(flight) = self.end_flight(number) else { return };
        let (share, messages) = (flight.share, flight.messages.len());
        self.measures.cut_off += 1;
        let slot = flight.messages[0].slot;
        let (destination, key, id) = self.shown_name(slot);
        let times = self.window.entry(slot).attempts.saturating_add(1);
        self.events.push(Event::CutOff { flight: number, destination, key, id, messages, times });
        let now_us = self.clocks.now_us();
        self.to[share].places.hangs(number, now_us);
        let duration_us = now_us.saturating_sub(flight.began_us);
        self.measures.durations.add(duration_us as i64);
        let verdict = Verdict::Unanswered { reason: NO_ANSWER_IN_TIME.to_owned(), retry_after_ms: None };
        self.settle_messages(&flight, Verdicts::Each(vec![verdict; messages]), false);
        self.note_strikes();
    }

    /// Settles the messages of a send. Its place stays taken.
    fn settle_messages(&mut self, flight: &Flight, verdicts: Verdicts, is_slow: bool) {
        let share = flight.share;
        let count = flight.messages.len().max(1);
        let is_slow = is_slow && count == 1; // if there are many messages, it is not known which was slow
        let duration_us = self.clocks.now_us().saturating_sub(flight.began_us) / count as u64;
        let (each, rest) = match verdicts {
            Verdicts::Delivered => (Vec::new(), Verdict::Delivered),
            Verdicts::Each(each) => (each, Verdict::NotTried),
        };
        let settled = flight.messages.iter().zip(each.into_iter().chain(std::iter::repeat(rest)));
        // The order of the answers is not known. Accepted messages come first here, so the others count for an outage
        // that may begin.
        let mut others = Vec::new();
        for (message, verdict) in settled {
            if verdict != Verdict::Delivered {
                others.push((message, verdict));
                continue;
            }
            // Slow neighbours do not say what is usual, if spare places are there for them.
            if !self.to[share].places.has_spare() || !self.to[share].doubts.has(self.key_of(message.slot)) {
                self.to[share].places.note_duration(duration_us);
            }
            self.accepted(message.slot, is_slow, flight.began_us);
            self.delivered(message);
        }
        for (message, verdict) in others {
            self.settle_one(message, verdict, flight.began_us);
        }
    }

    fn end_flight(&mut self, number: u64) -> Option<Flight> {
        let flight = self.flights.open.remove(&number)?;
        self.to[flight.share].outage.try_ended(number);
        self.has_turn_again(flight.share);
        if let Some(task) = flight.time_out {
            self.clocks.cancel(task);
        }
        Some(flight)
    }

    fn settle_one(&mut self, message: &InFlight, verdict: Verdict, began_us: u64) {
        self.measures.ended(&verdict);
        match table::ending(verdict) {
            Some((ending, reason, retry_after_ms)) => {
                let now_us = self.clocks.now_us();
                if self.tally(message.slot, |it| it.fails(now_us, &reason)) {
                    self.fails_still(self.home_of(message.slot), &reason);
                }
                self.not_accepted(message, ending, &reason, retry_after_ms, began_us);
            }
            None => self.untried(message),
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
            attempts: entry.attempts.saturating_add(1),
            redelivered: entry.may_have_arrived(),
        };
        self.measures.arrived(done.redelivered);
        if self.tally(message.slot, |it| it.arrives(message.late_us)) {
            self.fails_no_more(self.home_of(message.slot));
        }
        self.end(message.slot, done);
    }

    /// Notes an answer in the counts of the tenant and of the destination that the message names. Returns whether it names a
    /// destination.
    fn tally(&mut self, slot: Slot, note: impl Fn(&mut Tally)) -> bool {
        let entry = self.window.entry(slot);
        let (Some(body), id) = (&entry.body, self.window.share(entry.share).id) else { return false };
        if let Some(name) = body.tenant().filter(|_| tenant_in(id) != 0) {
            note(self.tenants.tally_of(tenant_in(id), name));
        }
        let Some(name) = body.destination() else { return false };
        note(self.to.tallies.of(destination_in(id), name));
        true
    }

    /// The message was not tried. It goes out again at once, and no attempt is counted.
    pub(super) fn untried(&mut self, message: &InFlight) {
        self.window.entry_mut(message.slot).state = State::Retrying;
        self.unnote(message.seq);
        self.offer_message(message.slot, message.seq);
    }

    /// `outcome`: `Dead`, for this reason, or `Expired`.
    pub(super) fn give_up(&mut self, slot: Slot, outcome: Outcome, reason: &str) {
        self.key_goes_on(slot);
        let entry = self.window.entry(slot);
        let body = entry.body.clone().expect("what waits has its body");
        let (seq, due_ms, attempts) = (entry.seq, entry.due_ms, entry.attempts);
        let done = Done {
            seq,
            due_ms,
            outcome,
            at_ms: self.clocks.wall.now_us() / 1000,
            lateness_us: None,
            attempts,
            redelivered: entry.may_have_arrived(),
        };
        self.outcomes.dead.push(Dead { seq, due_ms, outcome, attempts, reason: reason.to_owned(), body });
        self.end(slot, done);
    }

    fn end(&mut self, slot: Slot, done: Done) {
        self.strikes.forget(done.seq);
        self.outcomes.done.push(done);
        let lane = self.window.entry(slot).lane;
        self.window.end(slot, done.outcome);
        if let Some(lane) = lane {
            self.offer(lane);
        }
    }
}
