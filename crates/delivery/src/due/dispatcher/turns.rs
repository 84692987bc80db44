//! A send that takes long (rule D6): messages that have not begun go to another sender. At its time-out, the send is
//! cut off.

use std::sync::Arc;
use std::time::Duration;

use super::{Alarm, Dispatcher, Event, InTurn, Offer};
use crate::due::measures::NO_ANSWER_IN_TIME;
use crate::sinks::{Turns, Verdict, Verdicts};

/// If messages are sent one after another, the rest goes to another sender after this time.
const DIVIDE_AFTER: Duration = Duration::from_millis(2);

impl Dispatcher {
    /// Prepares this send for a sink that sends its messages one after another.
    pub(crate) fn in_turn(&mut self, number: u64) -> Arc<Turns> {
        let count = self.flights.get(&number).map_or(0, |flight| flight.messages.len());
        let turns = Arc::new(Turns::new(count));
        let divide = if count > 1 { self.arm(DIVIDE_AFTER, Alarm::Divide(number)) } else { None };
        if let Some(flight) = self.flights.get_mut(&number) {
            flight.turns = Some(InTurn { turns: turns.clone(), first: 0, divide });
        }
        turns
    }

    /// Stops all sending. Messages that a sender has, and that have not begun, are not sent either.
    pub(crate) fn halt(&mut self) {
        self.is_halted = true;
        self.stop_turns();
    }

    /// Takes back the messages that senders have and that have not begun.
    pub(super) fn stop_turns(&mut self) {
        for it in self.flights.values().filter_map(|flight| flight.turns.as_ref()) {
            it.turns.stop();
        }
    }

    /// Cuts off a send that took too long. If its messages are sent one after another, only the first that has not
    /// arrived counts as unanswered. [`Places::hangs`](crate::due::places::Places::hangs) decides whether the call
    /// keeps its place.
    pub(super) fn cut_off(&mut self, number: u64) {
        let Some(flight) = self.flights.get_mut(&number) else { return };
        flight.time_out = None;
        let verdict = Verdict::Unanswered { reason: NO_ANSWER_IN_TIME.to_owned(), retry_after_ms: None };
        let (messages, verdicts) = match &flight.turns {
            None => (flight.messages.len(), Verdicts::Each(vec![verdict; flight.messages.len()])),
            Some(it) => {
                it.turns.stop();
                (1, it.turns.verdicts_from(it.first, Some(verdict)))
            }
        };
        self.measures.cut_off += 1;
        self.events.push(Event::CutOff { flight: number, messages });
        self.places.hangs(number);
        let Some(flight) = self.end_flight(number) else { return };
        let duration_us = self.timer.clock().now_us().saturating_sub(flight.began_us);
        self.measures.durations.add(duration_us as i64);
        self.settle_messages(&flight, verdicts, false);
        self.note_suspects();
    }

    /// Divides a send. Messages that have arrived get their outcome. Messages that have not begun go out before all
    /// others. The message in between gets the whole time-out for itself. If no message has begun, the sink is waiting
    /// for some resource, and another sender would wait as long.
    pub(super) fn divide(&mut self, number: u64) {
        let Some(mut flight) = self.flights.remove(&number) else { return };
        if let Some(it) = &mut flight.turns {
            if it.turns.has_begun() {
                let (begun, arrived) = (it.turns.stop(), it.turns.arrived());
                (it.first, it.divide) = (arrived, None);
                let rest = flight.messages.split_off(begun);
                let in_hand = flight.messages.split_off(arrived);
                for message in std::mem::replace(&mut flight.messages, in_hand) {
                    self.accepted(message.slot, false, flight.began_us);
                    self.delivered(&message);
                }
                for message in rest.iter().rev() {
                    self.comes_back(message);
                    self.fresh.push_front(Offer::Message(message.slot, message.seq));
                }
                flight.began_us = self.timer.clock().now_us();
                self.places.begin_anew(number, flight.began_us);
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
}
