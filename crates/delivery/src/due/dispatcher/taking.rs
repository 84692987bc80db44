//! Chooses the next message to send: of a key not in doubt, of a key in doubt, or a try while the destination is down.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Alarm, Dispatcher, EXPIRED_AT_ONCE, Flight, InFlight, Offer};
use crate::due::doubt::Key;
use crate::due::lanes::Slot;
use crate::due::outage::Try;
use crate::due::window::{State, Window};
use crate::message::Body;
use crate::sinks::Delivery;
use crate::store::Outcome;
use tickwheel::When;

/// The most messages of keys in doubt in one send, if the sink takes many.
const IN_DOUBT_AT_ONCE: usize = 16;

/// How many messages are searched for one whose key was accepted lately, or for one that is small enough.
const SEARCHED: usize = 1_024;

/// The queue from which messages are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Fresh,
    InDoubt,
    Try(Try),
}

impl Dispatcher {
    /// Whether [`Dispatcher::take`] would return a send now. Call [`Dispatcher::advance`] before. If a message only waits
    /// for a place, an alarm is set for the time when one becomes free.
    pub(crate) fn has_ready(&mut self) -> bool {
        self.places.age(self.timer.clock().now_us());
        let is_ready = self.may_send() && (self.next_from().is_some() || self.may_note_suspects());
        if !is_ready {
            self.wake_for_place();
        }
        is_ready
    }

    /// Whether a due message only waits for a free place.
    pub(crate) fn waits_for_place(&self) -> bool {
        self.may_send() && self.has_due() && self.next_from().is_none()
    }

    /// Whether a closing engine still has a message to send: it is due, and waits only for a commit, or for a place that
    /// becomes free. If all calls were cut off `hanging` ago, no place does.
    pub(crate) fn has_more_to_send(&self, hanging: Duration) -> bool {
        let has_place = || self.next_from().is_some() || !self.places.only_hang(hanging.as_micros() as u64);
        self.is_open() && (self.has_due() || !self.outage.is_down() && self.has_suspects_to_send()) && has_place()
    }

    /// Whether a message is due, and is not one of those that wait for the end of an outage.
    fn has_due(&self) -> bool {
        (!self.fresh.is_empty() || !self.in_doubt.is_empty()) && !self.outage.is_down()
    }

    fn may_send(&self) -> bool {
        self.is_open() && !self.wants_limit
    }

    fn is_open(&self) -> bool {
        !self.is_halted && !self.is_paused && self.pace.may_send() && self.clock.is_some()
    }

    fn next_from(&self) -> Option<From> {
        if self.outage.is_down() {
            let may_try = |is_in_doubt| self.places.may_start(is_in_doubt) == Some(usize::MAX);
            let has_fresh = !self.fresh.is_empty() && may_try(false);
            let (has_likely, has_failed) = (!self.likely.is_empty(), !self.in_doubt.is_empty());
            let may_try_doubtful = may_try(true);
            let next = self.outage.next_try(has_fresh, has_likely && may_try_doubtful, has_failed && may_try_doubtful);
            return next.map(From::Try);
        }
        let may_start_fresh = self.next_that_fits(false).is_some();
        // Both kinds take turns.
        let is_turn_of_fresh = || may_start_fresh && (self.was_in_doubt || self.places.others_go_first());
        if self.next_that_fits(true).is_some() && !is_turn_of_fresh() {
            return Some(From::InDoubt);
        }
        may_start_fresh.then_some(From::Fresh)
    }

    /// The place in its queue of the first message that may start. While the limit for bytes is reached, large messages
    /// wait, and smaller ones pass them.
    fn next_that_fits(&self, is_in_doubt: bool) -> Option<usize> {
        let queue = if is_in_doubt { &self.in_doubt } else { &self.fresh };
        if queue.is_empty() {
            return None;
        }
        match self.places.may_start(is_in_doubt)? {
            usize::MAX => Some(0),
            most => queue.iter().take(SEARCHED).position(|offer| self.bytes_of(offer) <= most),
        }
    }

    /// The bytes of the message. 0 if it has left.
    fn bytes_of(&self, offer: &Offer) -> usize {
        let entry = match *offer {
            Offer::Lane(lane) => self.window.lane(lane).first().map(|(_, slot)| self.window.entry(slot)),
            Offer::Message(slot, seq) => self.window.get(slot, seq),
        };
        entry.and_then(|entry| entry.body.as_ref()).map_or(0, Body::size)
    }

    fn pop(&mut self, from: From) -> Option<Offer> {
        match from {
            From::Fresh => self.fresh.remove(self.next_that_fits(false)?),
            From::InDoubt => self.in_doubt.remove(self.next_that_fits(true)?),
            From::Try(kind @ (Try::New | Try::OfRound)) => match self.newest_known() {
                Some(place) => self.fresh.swap_remove_back(place),
                None if kind == Try::New => self.fresh.pop_back(),
                None => self.fresh.swap_remove_back(self.random.usize(0..self.fresh.len().max(1))),
            },
            From::Try(Try::Likely) => {
                let place = self.random.usize(0..self.likely.len().max(1));
                self.likely.swap_remove_back(place)
            }
            From::Try(Try::Failed) => self.pop_failed(),
        }
    }

    /// Takes a message that was chosen and noted before, because others wait for it. If there is none, it takes a key in
    /// doubt at random, which may have to be one that failed only in this outage.
    fn pop_failed(&mut self) -> Option<Offer> {
        let prefers_new = self.outage.prefers_new();
        let first = self.random.usize(0..self.in_doubt.len().max(1));
        let next = || self.in_doubt.iter().skip(first).chain(self.in_doubt.iter().take(first)).take(SEARCHED);
        let is_new =
            |offer: &Offer| prefers_new && self.key_of_offer(*offer).is_some_and(|key| self.outage.is_new(key));
        let after =
            next().position(|offer| is_noted(&self.window, offer)).or_else(|| next().position(is_new)).unwrap_or(0);
        self.in_doubt.swap_remove_back((first + after) % self.in_doubt.len().max(1))
    }

    /// `None` if the message has gone.
    fn key_of_offer(&self, offer: Offer) -> Option<Key> {
        match offer {
            Offer::Lane(lane) => Some(Key::Lane(self.window.lane(lane).number)),
            Offer::Message(slot, seq) => self.window.get(slot, seq).map(|_| self.key_of(slot)),
        }
    }

    /// Puts this into the queue of its key.
    pub(super) fn push(&mut self, key: Key, offer: Offer) {
        self.queue_of(key).push_back(offer);
    }

    pub(super) fn queue_of(&mut self, key: Key) -> &mut VecDeque<Offer> {
        match self.doubts.get(key) {
            None => &mut self.fresh,
            Some(doubt) if self.outage.is_down() && (doubt.was_only_slow() || self.outage.is_likely(key)) => {
                &mut self.likely
            }
            Some(_) => &mut self.in_doubt,
        }
    }

    /// The destination went down, or is up again: likely keys have a queue of their own only while it is down.
    pub(super) fn sort_keys_in_doubt(&mut self) {
        if self.outage.is_down() {
            // A try takes the newest: those that are noted, and that others wait for, must not be the last.
            let noted = self.fresh.iter().take_while(|offer| is_noted(&self.window, offer)).count();
            self.fresh.rotate_left(noted);
        }
        let mut offers = std::mem::take(&mut self.likely);
        offers.append(&mut self.in_doubt);
        for offer in offers {
            if let Some(key) = self.key_of_offer(offer) {
                self.push(key, offer);
            }
        }
    }

    /// The place in `fresh` of the newest message whose key was accepted lately.
    fn newest_known(&self) -> Option<usize> {
        let is_known = |offer: &Offer| match self.key_of_offer(*offer) {
            Some(Key::Lane(number)) => self.outage.is_known(number),
            _ => false,
        };
        let place = self.fresh.iter().rev().take(SEARCHED).position(is_known)?;
        Some(self.fresh.len() - 1 - place)
    }

    /// Takes the next messages to send, within these limits. Also returns the number of the send.
    pub(crate) fn take(
        &mut self,
        most: usize,
        most_bytes: usize,
        time_out: Option<Duration>,
    ) -> Option<(u64, Vec<Delivery>)> {
        let timer_us = self.timer.clock().now_us();
        self.most_in_send = most;
        if !self.has_ready() || most == 0 {
            return None;
        }
        let tokens = self.pace.tokens(timer_us);
        if tokens == 0 {
            self.wait_for_tokens();
            return None;
        }
        let (from, flight, deliveries) = loop {
            let Some(from) = self.next_from().filter(|_| self.may_send()) else {
                self.note_suspects();
                return None;
            };
            let most = match from {
                From::Fresh => most,
                From::InDoubt => most.min(IN_DOUBT_AT_ONCE),
                From::Try(_) => 1,
            };
            if let Some((flight, deliveries)) = self.fill(from, most.min(tokens), most_bytes) {
                break (from, flight, deliveries);
            }
            if self.has_more_expired {
                self.note_suspects();
                return None; // other threads wait for the lock
            }
        };
        self.pace.spend(deliveries.len());
        let is_waiting = !self.fresh.is_empty() || !self.in_doubt.is_empty() || !self.likely.is_empty();
        if deliveries.len() == tokens && is_waiting {
            self.wait_for_tokens();
        }
        let is_in_doubt = matches!(from, From::InDoubt | From::Try(Try::Likely | Try::Failed));
        if from == From::Fresh && !self.in_doubt.is_empty() && self.places.others_go_first() {
            self.places.pass_over();
        }
        if let From::Try(it) = from {
            self.outage.use_try(it);
        }
        self.was_in_doubt = is_in_doubt;
        let number = self.next_flight;
        self.next_flight += 1;
        let bytes = deliveries.iter().map(|it| it.body.size()).sum();
        self.places.take(number, timer_us, bytes, is_in_doubt);
        self.expect_suspects(number, &flight);
        self.note_suspects();
        let time_out = time_out.and_then(|after| self.arm(after, Alarm::CutOff(number)));
        self.flights.insert(number, Flight { time_out, ..flight });
        Some((number, deliveries))
    }

    fn fill(&mut self, from: From, most: usize, most_bytes: usize) -> Option<(Flight, Vec<Delivery>)> {
        let clock = self.clock?;
        let (timer_us, wall_us) = (self.timer.clock().now_us(), self.wall.now_us());
        let mut flight = Flight { messages: Vec::new(), began_us: timer_us, time_out: None };
        let mut deliveries = Vec::new();
        let mut early = Vec::new();
        let (mut bytes, mut expired) = (0, 0);
        while deliveries.len() < most && bytes < most_bytes {
            let Some(offer) = self.pop(from) else { break };
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
                self.push_back_in_front(from, slot);
                self.wants_limit = true;
                break;
            }
            if entry.redelivered && !entry.is_noted {
                self.suspects[usize::from(self.doubts.has(self.key_of(slot)))].push_back((slot, entry.seq));
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
                attempt: entry.attempts.saturating_add(1),
                redelivered: entry.may_have_arrived(),
            });
        }
        if !early.is_empty() {
            self.place_again(early);
        }
        (!deliveries.is_empty()).then_some((flight, deliveries))
    }

    fn push_back_in_front(&mut self, from: From, slot: Slot) {
        let entry = self.window.entry_mut(slot);
        entry.state = State::Retrying;
        let offer = Offer::Message(slot, entry.seq);
        match from {
            From::InDoubt | From::Try(Try::Failed) => self.in_doubt.push_front(offer),
            From::Try(Try::Likely) => self.likely.push_front(offer),
            From::Fresh | From::Try(_) => self.fresh.push_front(offer),
        }
    }

    /// Sets an alarm that wakes a sender when a long send leaves its ordinary place.
    fn wake_for_place(&mut self) {
        let has_suspect = || self.may_send() && !self.suspects[0].is_empty();
        if self.is_older_armed || !(self.waits_for_place() || has_suspect()) {
            return;
        }
        if let Some(at_us) = self.places.next_free_us() {
            self.is_older_armed = self.add(When::AtUs(at_us), Alarm::Older).is_some();
        }
    }
}

/// Whether the attempt of this message is noted before it is sent.
fn is_noted(window: &Window, offer: &Offer) -> bool {
    match *offer {
        Offer::Message(slot, seq) => window.get(slot, seq).is_some_and(|entry| entry.is_noted),
        Offer::Lane(_) => false,
    }
}
