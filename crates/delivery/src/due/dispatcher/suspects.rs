//! Messages that a crashed process may have been sending. Their attempts are on disk before they go out (rules D5, D6).

use std::time::Duration;

use super::{Alarm, CRASHED, Dispatcher, Flight, Offer};
use crate::due::lanes::Slot;
use crate::due::window::State;
use crate::store::{Attempts, Outcome};

/// How many suspects are out together at most, by the number of counted attempts.
const SUSPECTS: [usize; 3] = [256, 16, 1];

/// A suspect that is sent for longer does not keep the next ones back: it hangs, and has not ended the process.
const SUSPECTED: Duration = Duration::from_secs(1);

impl Dispatcher {
    /// Sends these messages next, because their attempts are on disk: a crash counts them, so they do not wait.
    pub(crate) fn noted(&mut self, seqs: impl DoubleEndedIterator<Item = i64>) {
        for seq in seqs.rev() {
            if let Some(slot) = self.window.find(seq)
                && self.window.entry(slot).state == State::Retrying
            {
                self.queue_of(self.key_of(slot)).push_front(Offer::Message(slot, seq));
            }
        }
    }

    /// If this send has suspects, others go out after [`SUSPECTED`] at the latest.
    pub(super) fn expect_suspects(&self, number: u64, flight: &Flight) {
        if flight.messages.iter().any(|message| self.suspects_out.contains(&message.seq)) {
            self.arm(SUSPECTED, Alarm::Suspected(number));
        }
    }

    pub(super) fn suspected_long(&mut self, number: u64) {
        let Some(flight) = self.flights.get(&number) else { return };
        for message in &flight.messages {
            self.suspects_out.remove(&message.seq);
        }
        self.note_suspects();
    }

    /// Whether [`Dispatcher::note_suspects`] would find one.
    pub(super) fn may_note_suspects(&mut self) -> bool {
        let is_in_doubt = self.suspects[0].is_empty();
        let Some(&(slot, seq)) = self.suspects[usize::from(is_in_doubt)].front() else { return false };
        let Some(strikes) = self.suspected(slot, seq) else { return true };
        self.window.is_paused(slot) || self.has_room_for_suspect(is_in_doubt, strikes)
    }

    /// The counted attempts of a suspect. `None`: it is none any more.
    fn suspected(&self, slot: Slot, seq: i64) -> Option<u32> {
        self.window.get(slot, seq).filter(|it| it.state == State::Retrying).map(|it| it.strikes)
    }

    /// Whether one more suspect may go out. Those that wait do not get more than the places and the rate can send now:
    /// a crash would count an attempt of each.
    fn has_room_for_suspect(&mut self, is_in_doubt: bool, strikes: u32) -> bool {
        if self.suspects_out.is_empty() {
            self.suspects_most = usize::MAX;
        }
        let most = if self.outage.is_down() { 1 } else { most_of(strikes).min(self.suspects_most) };
        let waiting = |seq: &&i64| {
            self.window.find(**seq).is_some_and(|slot| {
                self.window.entry(slot).state != State::Sending && self.doubts.has(self.key_of(slot)) == is_in_doubt
            })
        };
        let waiting = self.suspects_out.iter().filter(waiting).count();
        let tokens = self.pace.tokens(self.timer.clock().now_us()).max(1);
        let in_send = if is_in_doubt { 1 } else { self.most_in_send };
        let can_go = self.places.free_places(is_in_doubt).saturating_mul(in_send).min(tokens);
        self.suspects_out.len() < most && waiting < can_go
    }

    /// Notes the next messages that a crashed process may have been sending. Their attempts are on disk before they go
    /// out. A message that ends the process is therefore not tried for ever.
    ///
    /// Fewer are out together if the process ended more often. Other messages then do not get attempts counted because
    /// of the bad one. Keys in doubt come after the others, as most of them hang or fail.
    pub(super) fn note_suspects(&mut self) {
        loop {
            let is_in_doubt = self.suspects[0].is_empty();
            let Some(&(slot, seq)) = self.suspects[usize::from(is_in_doubt)].front() else { break };
            let strikes = self.suspected(slot, seq);
            let is_paused = strikes.is_some() && self.window.is_paused(slot);
            if strikes.is_some_and(|it| !is_paused && !self.has_room_for_suspect(is_in_doubt, it)) {
                break;
            }
            self.suspects[usize::from(is_in_doubt)].pop_front();
            let Some(strikes) = strikes else { continue };
            if is_paused {
                self.leave_paused(slot);
                continue;
            }
            if strikes >= self.retry.max_attempts {
                self.give_up(slot, Outcome::Dead, CRASHED);
                continue;
            }
            self.window.entry_mut(slot).is_noted = true;
            self.suspects_out.insert(seq);
            self.suspects_most = self.suspects_most.min(most_of(strikes));
            let made = self.attempts_of(slot, None, CRASHED);
            let noted = Attempts { attempts: made.attempts.saturating_add(1), strikes: strikes + 1, ..made };
            self.outcomes.attempts.push(noted);
            self.outcomes.before_send.push(seq);
        }
    }
}

fn most_of(strikes: u32) -> usize {
    SUSPECTS[(strikes as usize).min(SUSPECTS.len() - 1)]
}
