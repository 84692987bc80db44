//! Chooses the next message to send: of a key not in doubt, of a key in doubt, or a try while the destination is down.

use std::time::Duration;

use super::{Dispatcher, Flight, InFlight, PASSED_AT_ONCE};
use crate::due::clocks::Alarm;
use crate::due::destination::Destination;
use crate::due::doubt::Key;
use crate::due::fair_queue::{FairQueue, Offer};
use crate::due::lanes::Slot;
use crate::due::places::PlaceLimits;
use crate::due::strikes::Line;
use crate::due::table::{self, Candidate, Startable, Taken, Turn};
use crate::due::window::State;
use crate::message::shares::tenant_in;
use crate::message::{Body, Message};
use crate::sinks::Delivery;
use crate::store::{CRASHED, Outcome};

/// The most messages of keys in doubt in one send, if the sink takes many.
const IN_DOUBT_AT_ONCE: usize = 16;

/// How many messages are searched for one that is small enough.
const SEARCHED: usize = 1_024;

impl Dispatcher {
    /// Whether [`Dispatcher::take`] would return a send now. Call [`Dispatcher::advance`] before. If a message only waits
    /// for a place, an alarm is set for the time when one becomes free.
    pub(crate) fn has_ready(&mut self) -> bool {
        let is_ready = self.may_send() && (self.next_share().is_some() || self.may_note_strikes());
        if !is_ready {
            for place in 0..self.turns.shares.len() {
                self.wake_for_place(self.turns.shares[place]);
            }
            if self.strikes.has_any() {
                for (line, ..) in self.strikes.fronts() {
                    if let Line::Fresh(share) = line {
                        self.wake_for_place(share);
                    }
                }
            }
        }
        is_ready
    }

    /// The share whose turn it is, of those that can send now. A share that only waits for a place has
    /// sends out, so there are no more such shares than places.
    fn next_share(&mut self) -> Option<u32> {
        let now_us = self.clocks.now_us();
        if let Some(alone) = &self.strikes.alone {
            let share = self.home_of(alone.slot);
            self.to[share].places.age(now_us);
            return self.next_from(share).map(|_| share);
        }
        if self.to.named > 0 && self.free_places() == 0 {
            return None;
        }
        for _ in 0..self.turns.shares.len() {
            let share = *self.turns.shares.front()?;
            if !self.to[share].queues.have_next() || !self.to[share].may_have_turn() {
                self.turns.shares.pop_front();
                self.to[share].has_turn = false;
                if self.window.is_half_full() && !self.to[share].may_have_turn() {
                    self.shares_at(share).into_iter().for_each(|share| self.look_if_held(share));
                }
                continue;
            }
            self.to[share].places.age(now_us);
            if self.next_alone().is_some() {
                return None; // a place may just have become free for it
            }
            if self.next_from(share).is_some() {
                return Some(share);
            }
            self.turns.shares.rotate_left(1);
        }
        None
    }

    /// Whether a due message only waits for a free place.
    pub(crate) fn waits_for_place(&self) -> bool {
        self.may_send() && self.turns.shares.iter().any(|share| self.share_waits_for_place(*share))
    }

    fn share_waits_for_place(&self, share: u32) -> bool {
        let to = &self.to[share];
        to.pace.may_send() && !to.is_paused && self.has_due(share) && self.next_from(share).is_none()
    }

    /// Whether a closing engine still has a message to send: it is due, and waits only for a commit, or for a place that
    /// becomes free. If all calls were cut off `hanging` ago, no place does. It looks at all shares in memory.
    pub(crate) fn has_more_to_send(&self, hanging: Duration) -> bool {
        let has_more = || self.to.homes().any(|share| self.share_has_more_to_send(share, hanging));
        self.is_open() && (has_more() || self.has_flights() && self.tenants.wait_for_calls())
    }

    fn share_has_more_to_send(&self, share: u32, hanging: Duration) -> bool {
        let Destination { places, outage, pace, is_paused, .. } = &self.to[share];
        let has_place =
            || self.next_from(share).is_some() || places.are_free() || !places.only_hang(hanging.as_micros() as u64);
        pace.may_send()
            && !is_paused
            && (self.has_due(share) || !outage.is_down() && self.has_struck_to_send(share))
            && has_place()
    }

    /// Whether a message is due, and is not one of those that wait for the end of an outage.
    fn has_due(&self, share: u32) -> bool {
        self.to[share].queues.have_next() && !self.to[share].outage.is_down()
    }

    fn may_send(&self) -> bool {
        self.is_open() && !self.limit.is_wanted
    }

    fn is_open(&self) -> bool {
        !self.is_halted && !self.limit.is_paused && self.clocks.due.is_some()
    }

    fn next_from(&self, share: u32) -> Option<Turn> {
        let may_send = self.to[share].pace.may_send() && !self.to[share].is_paused;
        if may_send { table::turn(self.startable(share)) } else { None }
    }

    fn startable(&self, share: u32) -> Startable {
        let Destination { queues, places, outage, .. } = &self.to[share];
        if let Some(alone) = &self.strikes.alone {
            let may_start = self.home_of(alone.slot) == share
                && self.free_of_tenant(alone.slot) > 0
                && places.may_start(self.is_in_doubt(alone.slot)).is_some();
            return Startable::Alone(alone.is_ready && may_start);
        }
        if self.is_held_back() || !self.has_part_of_places(share) {
            return Startable::Alone(false);
        }
        if outage.is_down() {
            let may_try = |is_in_doubt| places.may_start(is_in_doubt) == Some(usize::MAX);
            let has_fresh = queues.fresh.has_next() && may_try(false);
            let has_in_doubt = queues.in_doubt.has_next() && may_try(true);
            return Startable::Down(outage.next_try(has_fresh, has_in_doubt));
        }
        let in_doubt = self.next_that_fits(share, true).is_some();
        Startable::Up {
            fresh: self.next_that_fits(share, false).is_some(),
            in_doubt,
            fresh_first: queues.was_in_doubt || in_doubt && places.others_go_first(),
        }
    }

    /// Whether the share may have one more of the places of the process. Among others it may have as many as are free, as it
    /// may of the memory: `Window::has_room`.
    fn has_part_of_places(&self, share: u32) -> bool {
        self.to.named == 0 || self.to[share].places.taken() < self.free_places()
    }

    /// The places of the process that are free.
    fn free_places(&self) -> usize {
        let PlaceLimits { young, spare, .. } = self.to[0].places.limits();
        young.saturating_add(spare).saturating_sub(self.flights.shares.len())
    }

    /// The share may send again: its messages have their turn.
    pub(super) fn has_turn_again(&mut self, share: u32) {
        let to = &mut self.to[share];
        if to.queues.have_next() && !std::mem::replace(&mut to.has_turn, true) {
            self.turns.shares.push_back(share);
        }
        if !to.is_paused && to.pace.may_send() {
            for share in std::mem::take(&mut to.held) {
                self.wants_load |= self.window.let_go(share);
            }
        }
    }

    /// The first message that may start. While the limit for bytes is reached, large messages
    /// wait, and smaller ones pass them.
    fn next_that_fits(&self, share: u32, is_in_doubt: bool) -> Option<(u32, usize)> {
        let queue = self.to[share].queues.of(is_in_doubt);
        if !queue.has_next() {
            return None;
        }
        match self.to[share].places.may_start(is_in_doubt)? {
            usize::MAX => queue.find(1, |_| true),
            most => queue.find(SEARCHED, |offer| self.bytes_of(offer) <= most),
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

    fn pop(&mut self, share: u32, from: Turn) -> Option<Offer> {
        let is_in_doubt = match from {
            Turn::Fresh => false,
            Turn::InDoubt => true,
            Turn::Try(is_in_doubt) => is_in_doubt,
            Turn::Alone => {
                let alone = self.strikes.alone.as_mut()?;
                return std::mem::take(&mut alone.is_ready).then_some(Offer::Message(alone.slot, alone.seq));
            }
        };
        loop {
            let place = match from {
                Turn::Try(_) => self.to[share].queues.of(is_in_doubt).find(1, |_| true)?,
                _ => self.next_that_fits(share, is_in_doubt)?,
            };
            let tenant = self.tenant_at(place.0);
            if tenant == 0 || self.tenant_may_send(tenant, place.0) {
                let weight = if tenant == 0 { 1 } else { self.tenants.limits(tenant).weight };
                return self.to[share].queues.of_mut(is_in_doubt).remove(place, weight);
            }
            self.to[share].queues.of_mut(is_in_doubt).hold(place.0);
        }
    }

    /// The number of the tenant of this message; 0: it names none.
    pub(super) fn tenant_of(&self, slot: Slot) -> i64 {
        self.tenant_at(self.window.entry(slot).share)
    }

    pub(super) fn tenant_at(&self, share: u32) -> i64 {
        tenant_in(self.window.share(share).id)
    }

    /// Whether the tenant of the share may send now.
    pub(super) fn tenant_is_free(&self, share: u32) -> bool {
        self.tenants.free(self.tenant_at(share), self.clocks.now_us()) > 0
    }

    /// Whether the tenant of the share may send one more message. If not, the share is to be held back.
    pub(super) fn tenant_may_send(&mut self, tenant: i64, share: u32) -> bool {
        let may_send = self.tenants.may_send(tenant, share, self.clocks.now_us());
        if let Err(Some(wait_us)) = may_send {
            self.clocks.arm(Duration::from_micros(wait_us), Alarm::TenantPaced(tenant));
        }
        if may_send.is_err() {
            self.look_if_held(share);
        }
        may_send.is_ok()
    }

    /// Puts this into the queue of its key.
    pub(super) fn push(&mut self, key: Key, offer: Offer) {
        self.queue_of(key).push_back(key.share(), offer);
    }

    pub(super) fn queue_of(&mut self, key: Key) -> &mut FairQueue {
        let home = self.to.home(key.share());
        let to = &mut self.to[home];
        if !std::mem::replace(&mut to.has_turn, true) {
            self.turns.shares.push_back(home);
        }
        let is_in_doubt = to.doubts.has(key);
        to.queues.of_mut(is_in_doubt)
    }

    /// Takes the next messages to send, within these limits. Also returns the number of the send.
    pub(crate) fn take(
        &mut self,
        most: usize,
        most_bytes: usize,
        time_out: Option<Duration>,
    ) -> Option<(u64, Vec<Delivery>)> {
        let timer_us = self.clocks.now_us();
        self.turns.most_in_send = most;
        if !self.has_ready() || most == 0 {
            return None;
        }
        self.note_strikes(); // before others take the place and the token
        let (share, tokens, from, mut flight, deliveries) = loop {
            let next = if self.may_send() { self.next_share() } else { None };
            let Some((share, from)) = next.and_then(|share| Some((share, self.next_from(share)?))) else {
                self.note_strikes();
                return None;
            };
            let tokens = self.to[share].pace.tokens(timer_us);
            if tokens == 0 {
                self.wait_for_tokens(share);
                continue;
            }
            let most = match from {
                Turn::Fresh => most,
                Turn::InDoubt => most.min(IN_DOUBT_AT_ONCE),
                Turn::Try(_) | Turn::Alone => 1,
            };
            if let Some((flight, deliveries)) = self.fill(share, from, most.min(tokens), most_bytes) {
                break (share, tokens, from, flight, deliveries);
            }
            if self.turns.has_more_to_pass {
                self.note_strikes();
                return None; // other threads wait for the lock
            }
        };
        if self.turns.shares.front() == Some(&share) {
            self.turns.shares.rotate_left(1);
        }
        let is_in_doubt = match from {
            Turn::Fresh | Turn::Try(false) => false,
            Turn::InDoubt | Turn::Try(true) => true,
            Turn::Alone => self.is_in_doubt(flight.messages[0].slot),
        };
        let has_struck = self.has_struck_waiting(share);
        let to = &mut self.to[share];
        to.pace.spend(deliveries.len(), timer_us);
        if from == Turn::Fresh && to.queues.in_doubt.has_next() && to.places.others_go_first() {
            to.places.pass_over();
        }
        to.queues.was_in_doubt = is_in_doubt;
        if deliveries.len() == tokens && (!to.queues.are_empty() || has_struck) {
            self.wait_for_tokens(share);
        }
        let number = self.flights.next;
        self.flights.next += 1;
        if self.to[share].outage.is_down() {
            self.to[share].outage.use_try(is_in_doubt, number);
        }
        let bytes = deliveries.iter().map(|it| it.body.size()).sum();
        self.to[share].places.take(number, timer_us, bytes, is_in_doubt);
        self.flights.shares.insert(number, share);
        self.tenants.begin_call(number, std::mem::take(&mut flight.tenants));
        let time_out = time_out.map(|usual| self.to[share].time_out.unwrap_or(usual));
        let time_out = time_out.and_then(|after| self.clocks.arm(after, Alarm::CutOff(number)));
        if self.strikes.has_any() {
            self.noted_are_sent(&flight);
        }
        self.flights.open.insert(number, Flight { time_out, ..flight });
        self.note_strikes();
        Some((number, deliveries))
    }

    fn fill(&mut self, share: u32, from: Turn, most: usize, most_bytes: usize) -> Option<(Flight, Vec<Delivery>)> {
        let clock = self.clocks.due?;
        let (timer_us, wall_us) = (self.clocks.now_us(), self.clocks.wall.now_us());
        let mut flight =
            Flight { share, messages: Vec::new(), tenants: Vec::new(), began_us: timer_us, time_out: None };
        let mut deliveries = Vec::new();
        let mut early = Vec::new();
        let (mut bytes, mut passed) = (0, 0);
        while deliveries.len() < most && bytes < most_bytes {
            let Some(offer) = self.pop(share, from) else { break };
            let Some(slot) = self.accept(offer) else { continue };
            let entry = self.window.entry(slot);
            let late_us = clock.late_us(entry.due_ms, timer_us, wall_us);
            let is_offered_alone = matches!(offer, Offer::Message(..));
            let candidate = Candidate {
                is_key_paused: is_offered_alone && self.window.is_paused(slot),
                is_behind: is_offered_alone && self.window.is_behind(slot),
                is_early: late_us < 0,
                is_expired: entry
                    .body
                    .as_ref()
                    .and_then(Body::expires_ms)
                    .is_some_and(|ms| wall_us.div_euclid(1_000) > ms),
                is_past_limit: entry.due_ms > self.limit.until_ms,
                strikes: entry.strikes,
                is_noted: entry.strikes > 0 && self.strikes.is_noted(entry.seq),
            };
            let taken = table::taken(candidate);
            match taken {
                Taken::Send => {}
                Taken::LeavePaused => self.leave_paused(slot),
                Taken::GoBehind => self.goes_behind(slot),
                Taken::WaitForDue => early.push(slot),
                Taken::Expire => self.give_up(slot, Outcome::Expired, ""),
                Taken::WaitForLimit => {
                    self.push_back_in_front(from, slot);
                    self.limit.is_wanted = true;
                    break;
                }
                Taken::GiveUp => self.give_up(slot, Outcome::Dead, CRASHED),
                Taken::WaitForNote => self.wait_for_note(slot),
            }
            if taken != Taken::Send {
                passed += 1;
                self.turns.has_more_to_pass = passed == PASSED_AT_ONCE;
                if self.turns.has_more_to_pass {
                    break;
                }
                continue;
            }
            let tenant = self.tenant_of(slot);
            if tenant != 0 {
                self.tenants.sends(tenant, timer_us);
                flight.tenants.push(tenant);
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
                message: Message::from_parts(body, entry.due_ms, None),
                delivered_at_ms: at_ms,
                lateness_us: late_us,
                attempt: entry.attempts.saturating_add(1),
                redelivered: entry.may_have_arrived(),
                to: self.to[share].named.clone(),
                owner: self.owner.clone(),
            });
        }
        if !early.is_empty() {
            self.place_again(early);
        }
        (!deliveries.is_empty()).then_some((flight, deliveries))
    }

    fn push_back_in_front(&mut self, from: Turn, slot: Slot) {
        let entry = self.window.entry_mut(slot);
        entry.state = State::Retrying;
        let (offer, share) = (Offer::Message(slot, entry.seq), entry.share);
        match from {
            Turn::Fresh | Turn::Try(false) => self.to[share].queues.fresh.push_front(share, offer),
            Turn::InDoubt | Turn::Try(true) => self.to[share].queues.in_doubt.push_front(share, offer),
            Turn::Alone => {
                if let Some(alone) = &mut self.strikes.alone {
                    alone.is_ready = true;
                }
            }
        }
    }

    /// Sets an alarm that wakes a sender when a long send leaves its ordinary place.
    fn wake_for_place(&mut self, share: u32) {
        let has_struck = || self.may_send() && self.strikes.has(Line::Fresh(share));
        let waits = self.may_send() && self.share_waits_for_place(share);
        if self.to[share].places.is_older_armed || !(waits || has_struck()) {
            return;
        }
        if let Some(at_us) = self.to[share].places.next_free_us() {
            self.to[share].places.is_older_armed = self.clocks.arm_at(at_us, Alarm::Older(share)).is_some();
        }
    }

    pub(super) fn is_of(&self, share: u32, slot: Slot, seq: i64) -> bool {
        self.window.get(slot, seq).is_some_and(|entry| self.to.home(entry.share) == share)
    }
}
