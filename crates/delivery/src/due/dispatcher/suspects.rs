//! Messages that a crashed process may have been sending. Their attempts are on disk before they go out (rules D5, D6).

use std::time::Duration;

use super::{Alarm, CRASHED, Dispatcher, Flight};
use crate::due::window::State;
use crate::store::{Attempts, Outcome};

/// How many suspects go out together, by the number of counted attempts.
const SUSPECTS: [usize; 3] = [256, 16, 1];

/// A suspect that is sent for longer does not keep the next ones back: it hangs, and has not ended the process.
const SUSPECTED: Duration = Duration::from_secs(1);

impl Dispatcher {
    /// Sends these messages, because their attempts are on disk.
    pub(crate) fn noted(&mut self, seqs: impl IntoIterator<Item = i64>) {
        for seq in seqs {
            if let Some(slot) = self.window.find(seq)
                && self.window.entry(slot).state == State::Retrying
            {
                self.offer_message(slot, seq);
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

    /// Whether the next suspects can be noted, as no group is out.
    pub(super) fn may_note_suspects(&self) -> bool {
        let [fresh, in_doubt] = &self.suspects;
        self.suspects_out.is_empty() && (!fresh.is_empty() || !in_doubt.is_empty() && self.has_place_for_suspect())
    }

    /// Whether a place is free for one more suspect of a key in doubt. One that only waited for a place would keep the
    /// next ones back.
    fn has_place_for_suspect(&self) -> bool {
        let is_sent =
            |seq: &i64| self.window.find(*seq).is_some_and(|slot| self.window.entry(slot).state == State::Sending);
        self.suspects_out.iter().filter(|seq| !is_sent(seq)).count() < self.places.free_in_doubt()
    }

    /// Forms the next group of messages that a crashed process may have been sending. Their attempts are on disk before
    /// they go out. A message that ends the process is therefore not tried for ever.
    ///
    /// The group is smaller if the process ended more often. Other messages then do not get attempts counted because of
    /// the bad one. Keys in doubt come after the others, as most of them hang or fail.
    pub(super) fn note_suspects(&mut self) {
        let mut room = if self.outage.is_down() { 1 } else { usize::MAX };
        loop {
            let is_in_doubt = self.suspects[0].is_empty();
            let Some((slot, seq)) = self.suspects[usize::from(is_in_doubt)].front().copied() else { break };
            let Some(entry) = self.window.get(slot, seq).filter(|it| it.state == State::Retrying) else {
                self.suspects[usize::from(is_in_doubt)].pop_front();
                continue;
            };
            let strikes = entry.strikes;
            if self.window.is_paused(slot) {
                self.suspects[usize::from(is_in_doubt)].pop_front();
                self.leave_paused(slot);
                continue;
            }
            if is_in_doubt && !self.has_place_for_suspect() {
                break;
            }
            room = room.min(SUSPECTS[(strikes as usize).min(SUSPECTS.len() - 1)]);
            if self.suspects_out.len() >= room {
                break;
            }
            self.suspects[usize::from(is_in_doubt)].pop_front();
            if strikes >= self.retry.max_attempts {
                self.give_up(slot, Outcome::Dead, CRASHED);
                continue;
            }
            self.window.entry_mut(slot).is_noted = true;
            self.suspects_out.insert(seq);
            let made = self.attempts_of(slot, None, CRASHED);
            let noted = Attempts { attempts: made.attempts.saturating_add(1), strikes: strikes + 1, ..made };
            self.outcomes.attempts.push(noted);
            self.outcomes.before_send.push(seq);
        }
    }
}
