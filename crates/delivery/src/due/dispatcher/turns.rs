//! A send that takes long: what has not begun goes to another sender, and at its time-out it is cut off (rule D6).

use std::sync::Arc;
use std::time::Duration;

use super::{Alarm, Dispatcher, Event, InTurn, Offer};
use crate::due::measures::NO_ANSWER_IN_TIME;
use crate::sinks::{Turns, Verdict, Verdicts};

/// Messages that are sent one after another wait for so long at most for one before them, if another sender is free.
const DIVIDE_AFTER: Duration = Duration::from_millis(2);

impl Dispatcher {
    /// The messages of this send go out one after another.
    pub(crate) fn in_turn(&mut self, number: u64) -> Arc<Turns> {
        let count = self.flights.get(&number).map_or(0, |flight| flight.messages.len());
        let turns = Arc::new(Turns::new(count));
        let divide = if count > 1 { self.arm(DIVIDE_AFTER, Alarm::Divide(number)) } else { None };
        if let Some(flight) = self.flights.get_mut(&number) {
            flight.turns = Some(InTurn { turns: turns.clone(), first: 0, divide });
        }
        turns
    }

    /// Nothing more is sent, also of what is in the hands of senders and has not begun.
    pub(crate) fn halt(&mut self) {
        self.is_halted = true;
        self.stop_turns();
    }

    /// What is in the hands of senders, and has not begun, comes back.
    pub(super) fn stop_turns(&mut self) {
        for it in self.flights.values().filter_map(|flight| flight.turns.as_ref()) {
            it.turns.stop();
        }
    }

    /// Of messages that are sent one after another, this is about the first that has not arrived.
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
        self.settle(number, verdicts);
    }

    /// What has arrived has its outcome, what has not begun goes out before all else, and the one in between has the whole
    /// time to itself. While none has begun, as the sink waits for something of its own, another would wait as long.
    pub(super) fn divide(&mut self, number: u64) {
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
}
