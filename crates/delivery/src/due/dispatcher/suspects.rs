//! Messages that a crashed process may have been sending. Their attempts are on disk before they go out (rules D5, D6).

use std::time::Duration;

use super::{Alarm, Dispatcher, Flight, Offer};
use crate::due::lanes::Slot;
use crate::due::window::State;
use crate::message::Body;
use crate::store::{Attempts, CRASHED, Outcome};

/// How many suspects are out together at most, by the counted attempts of the one with the most.
const SUSPECTS: [usize; 3] = [256, 16, 1];

/// So many may wait for their commit and a place, where fewer are sent at a time: each commit is for several.
const LEAST_WAITING: usize = 16;

/// A suspect that is sent for longer does not keep the next ones back: it hangs, and has not ended the process.
const SUSPECTED: Duration = Duration::from_secs(1);

impl Dispatcher {
    /// Sends these messages next, because their attempts are on disk: a crash counts them, so they do not wait.
    pub(crate) fn noted(&mut self, seqs: impl DoubleEndedIterator<Item = i64>) {
        for seq in seqs.rev() {
            if let Some(slot) = self.window.find(seq)
                && self.window.entry(slot).state == State::Retrying
            {
                let (key, offer, is_down) = (self.key_of(slot), Offer::Message(slot, seq), self.outage.is_down());
                let queue = self.queue_of(key);
                if is_down { queue.push_back(offer) } else { queue.push_front(offer) } // a try takes the newest
            }
        }
    }

    /// If this send has suspects, others go out after [`SUSPECTED`] at the latest.
    pub(super) fn expect_suspects(&self, number: u64, flight: &Flight) {
        if flight.messages.iter().any(|message| self.suspects_out.contains_key(&message.seq)) {
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

    /// Whether suspects wait to be noted, for their commit, or for a place.
    pub(super) fn has_suspects_to_send(&self) -> bool {
        let waits = |seq: &i64| self.window.find(*seq).is_some_and(|it| self.window.entry(it).state != State::Sending);
        self.suspects.iter().any(|it| !it.is_empty()) || self.suspects_out.keys().any(waits)
    }

    /// Takes back the notes of those that were not sent. They are noted again when it is their turn.
    pub(super) fn unnote_waiting(&mut self) {
        let found: Vec<_> = self.suspects_out.keys().filter_map(|seq| self.window.find(*seq)).collect();
        for slot in found {
            if self.window.entry(slot).state == State::Retrying {
                self.unnote(slot, true);
            }
        }
    }

    /// The attempts to note for a suspect, without the next one. It keeps its place in its key after a restart, and waits no
    /// more.
    pub(crate) fn attempts_of_noted(&self, slot: Slot) -> Attempts {
        let (made, now_ms) = (self.attempts_of(slot, CRASHED), self.steady_ms());
        let next_ms = self.window.entry(slot).lane.and(made.next_ms).map(|it| it.min(now_ms));
        let error = made.error.filter(|_| made.attempts > 0);
        Attempts { next_ms, error, ..made }
    }

    /// The counted attempts of a suspect. `None`: it is none any more.
    fn suspected(&self, slot: Slot, seq: i64) -> Option<u32> {
        self.window.get(slot, seq).filter(|it| it.state == State::Retrying).map(|it| it.strikes)
    }

    /// Whether one more suspect may go out. Few wait, as a crash would count an attempt of each: as many as are sent at a
    /// time, and no more than the rate has tokens for.
    fn has_room_for_suspect(&mut self, is_in_doubt: bool, strikes: u32) -> bool {
        let most_strikes = self.suspects_out.values().copied().max().unwrap_or(0).max(strikes);
        let most = if self.outage.is_down() { 1 } else { SUSPECTS[(most_strikes as usize).min(SUSPECTS.len() - 1)] };
        if self.suspects_out.len() >= most {
            return false;
        }
        let tokens = self.pace.tokens(self.timer.clock().now_us()).max(1);
        let may_wait = if is_in_doubt {
            self.places.free_in_doubt()
        } else {
            self.places.limits().young.saturating_mul(self.most_in_send).max(LEAST_WAITING)
        };
        self.suspects_waiting(is_in_doubt) < may_wait.min(tokens)
    }

    /// How many wait for their commit or a place, of keys in doubt or of others. While the limit for bytes is reached,
    /// large ones do not count: small ones pass them.
    fn suspects_waiting(&self, is_in_doubt: bool) -> usize {
        let most_bytes = self.places.may_start(is_in_doubt).unwrap_or(usize::MAX);
        let waits = |seq: &&i64| {
            self.window.find(**seq).is_some_and(|slot| {
                let entry = self.window.entry(slot);
                entry.state != State::Sending
                    && self.doubts.has(self.key_of(slot)) == is_in_doubt
                    && entry.body.as_ref().map_or(0, Body::size) <= most_bytes
            })
        };
        self.suspects_out.keys().filter(waits).count()
    }

    /// Notes the next messages that a crashed process may have been sending. Their attempts are on disk before they go
    /// out. A message that ends the process is therefore not tried for ever.
    ///
    /// Fewer are out together if one of them has counted attempts, as after more crashes. Other messages then do not get
    /// attempts counted because of the bad one. Keys in doubt come after the others, as most of them hang or fail.
    pub(super) fn note_suspects(&mut self) {
        if self.is_paused {
            return; // it may last for days, and a crash would count an attempt of each
        }
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
            self.suspects_out.insert(seq, strikes);
            let made = self.attempts_of_noted(slot);
            let noted = Attempts { strikes: strikes + 1, ..made.and_one_more() };
            self.outcomes.attempts.push(noted);
            self.outcomes.before_send.push(seq);
        }
    }
}
