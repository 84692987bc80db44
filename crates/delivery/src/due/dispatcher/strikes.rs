//! Messages with two strikes or more are noted on disk, and then sent (rule D6). See `due/strikes.rs`.

use super::{Dispatcher, Flight};
use crate::due::clocks::Alarm;
use crate::due::destination::Destination;
use crate::due::fair_queue::Offer;
use crate::due::lanes::Slot;
use crate::due::strikes::{GROUP, IN_GROUP, LONG_US, Line};
use crate::due::window::State;

/// The next step before a message with strikes can be sent.
enum Note {
    /// The first of these was taken back, its key is paused, or its tenant may send nothing: it waits in its queue.
    Gone(Line, Slot, i64),
    /// A message goes alone next: others that are noted and not sent wait for their next note.
    TakeBack,
    Alone(Slot, i64),
    Group(Line, i64),
}

impl Dispatcher {
    /// The notes of these messages are on disk, or taken back. The noted ones are sent next: a crash gives each a strike.
    pub(crate) fn are_noted(&mut self, notes: &[(i64, bool)]) {
        for (seq, _) in notes.iter().rev().filter(|(_, is_noted)| *is_noted) {
            if let Some(slot) = self.window.find(*seq)
                && self.window.entry(slot).state == State::Retrying
                && self.strikes.is_on_disk(*seq)
            {
                let key = self.key_of(slot);
                self.queue_of(key).push_front(key.share(), Offer::Message(slot, *seq));
            }
        }
    }

    /// The message is due, and has strikes: it waits for its note.
    pub(super) fn wait_for_note(&mut self, slot: Slot) {
        let entry = self.window.entry_mut(slot);
        entry.state = State::Retrying;
        let (seq, strikes) = (entry.seq, entry.strikes);
        let (share, is_in_doubt) = (self.home_of(slot), self.is_in_doubt(slot));
        self.strikes.wait(share, slot, seq, strikes, is_in_doubt);
    }

    /// Whether a message with strikes waits for its note, its commit or a place.
    pub(super) fn has_struck_to_send(&self, share: u32) -> bool {
        self.has_struck_waiting(share) || self.unsent(|it, slot| it.home_of(slot) == share) > 0
    }

    /// Whether a message with strikes waits for its note.
    pub(super) fn has_struck_waiting(&self, share: u32) -> bool {
        self.strikes.has(Line::Fresh(share))
            || self.strikes.has(Line::InDoubt(share))
            || self.strikes.find_alone(|slot, seq| self.is_of(share, slot, seq)).is_some()
    }

    fn is_unsent(&self, seq: i64) -> bool {
        self.window.find(seq).is_some_and(|slot| self.window.entry(slot).state == State::Retrying)
    }

    /// Whether nothing may start: a message that goes alone is out, or is next.
    pub(super) fn is_held_back(&self) -> bool {
        self.strikes.alone.is_some() || self.next_alone().is_some()
    }

    /// The message that goes alone next: there is a place for it, and a try if the destination is down.
    pub(super) fn next_alone(&self) -> Option<(Slot, i64)> {
        if !self.strikes.has(Line::Alone) || !self.strikes.may_go_alone(self.clocks.now_us()) {
            return None;
        }
        self.strikes.find_alone(|slot, seq| {
            self.waits_for_note(slot, seq) && {
                let Destination { places, outage, pace, is_paused, .. } = &self.to[self.home_of(slot)];
                let may_try = !outage.is_down() || outage.next_try(true, true).is_some();
                may_try
                    && self.free_of_tenant(slot) > 0
                    && !is_paused
                    && pace.may_send()
                    && places.may_start(self.is_in_doubt(slot)).is_some()
            }
        })
    }

    fn waits_for_note(&self, slot: Slot, seq: i64) -> bool {
        let entry = self.window.get(slot, seq).filter(|it| it.state == State::Retrying && it.strikes >= IN_GROUP);
        entry.is_some() && !self.strikes.is_noted(seq) && !self.window.is_paused(slot)
    }

    /// `None`: nothing is to be noted now. A pause may last for days, and a crash would give a strike to each.
    fn next_note(&mut self) -> Option<Note> {
        if self.limit.is_paused || !self.strikes.has_any() || self.strikes.alone.is_some() {
            return None;
        }
        let fronts = self.strikes.fronts();
        for (line, slot, seq) in &fronts {
            if !self.waits_for_note(*slot, *seq) || self.free_of_tenant(*slot) == 0 {
                return Some(Note::Gone(*line, *slot, *seq));
            }
        }
        if let Some((slot, seq)) = self.next_alone() {
            if self.strikes.noted().any(|seq| self.is_unsent(seq)) {
                return Some(Note::TakeBack);
            }
            return self.youngest_us().is_none().then_some(Note::Alone(slot, seq));
        }
        let young = self.strikes.young(self.clocks.now_us());
        fronts.into_iter().find_map(|(line, slot, seq)| {
            let tenant = self.tenant_of(slot);
            let has_room = self.has_room_for(line, young)
                && (tenant == 0 || self.unsent(|it, slot| it.tenant_of(slot) == tenant) < self.free_of_tenant(slot));
            has_room.then_some(Note::Group(line, seq))
        })
    }

    /// How many messages of its tenant may go out now.
    pub(super) fn free_of_tenant(&self, slot: Slot) -> usize {
        match self.tenant_of(slot) {
            0 => usize::MAX,
            tenant => self.tenants.free(tenant, self.clocks.now_us()),
        }
    }

    /// How many messages are noted and not sent, of those for which this holds.
    fn unsent(&self, holds: impl Fn(&Self, Slot) -> bool) -> usize {
        let is_one = |seq: &i64| self.is_unsent(*seq) && self.window.find(*seq).is_some_and(|slot| holds(self, slot));
        self.strikes.noted().filter(is_one).count()
    }

    /// Whether [`Dispatcher::note_strikes`] would do anything.
    pub(super) fn may_note_strikes(&mut self) -> bool {
        self.next_note().is_some()
    }

    /// Notes the messages with strikes that go out next.
    pub(super) fn note_strikes(&mut self) {
        while let Some(note) = self.next_note() {
            match note {
                Note::Gone(line, slot, seq) => {
                    self.strikes.pop(line);
                    let is_open = self.window.get(slot, seq).is_some_and(|it| it.state == State::Retrying);
                    if is_open && !self.strikes.is_noted(seq) {
                        if self.window.is_paused(slot) {
                            self.leave_paused(slot);
                        } else {
                            self.offer_message(slot, seq);
                        }
                    }
                }
                Note::TakeBack => self.unnote_waiting(|_, _| true),
                Note::Alone(slot, seq) => {
                    self.outcomes.noted.push((seq, true));
                    let (strikes, now_us) = (self.window.entry(slot).strikes, self.clocks.now_us());
                    let until_us = self.strikes.note_alone(slot, seq, strikes, now_us);
                    self.clocks.arm_at(until_us, Alarm::Alone);
                }
                Note::Group(line, seq) => {
                    self.strikes.note(line, seq);
                    self.outcomes.noted.push((seq, true));
                }
            }
        }
        // A message goes alone once no other send is out but those that hang.
        if self.strikes.alone.is_none()
            && self.next_alone().is_some()
            && let Some(until_us) = self.youngest_us()
        {
            self.clocks.arm_at(until_us, Alarm::Alone);
        }
    }

    /// When the youngest send will be out for long. `None`: all are.
    fn youngest_us(&self) -> Option<u64> {
        let now_us = self.clocks.now_us();
        let until_us = self.flights.open.values().map(|flight| flight.began_us.saturating_add(LONG_US)).max();
        until_us.filter(|until_us| *until_us > now_us)
    }

    /// The time of an alarm has come: a message that is alone may have held the others back long enough.
    pub(super) fn end_alone(&mut self) {
        let now_us = self.clocks.now_us();
        let Some(alone) = self.strikes.alone.as_mut().filter(|it| it.until_us <= now_us) else { return };
        let (slot, seq, hold_us) = (alone.slot, alone.seq, alone.hold_us);
        if self.window.entry(slot).state == State::Retrying && !alone.is_ready {
            alone.until_us = now_us.saturating_add(hold_us); // its note is not on disk
            let until_us = alone.until_us;
            self.clocks.arm_at(until_us, Alarm::Alone);
            return;
        }
        self.unnote_unsent(slot, seq);
        let rests_until_us = self.strikes.rest(hold_us, now_us);
        self.clocks.arm_at(rests_until_us, Alarm::Alone);
    }

    /// The messages of a send that are noted are out.
    pub(super) fn noted_are_sent(&mut self, flight: &Flight) {
        for message in &flight.messages {
            if let Some(until_us) = self.strikes.sent(message.seq, flight.began_us) {
                self.clocks.arm_at(until_us, Alarm::Alone);
            }
        }
    }

    /// Takes back the note of a message. Returns whether it has to wait for its next note: it is in no queue for sending.
    pub(super) fn unnote(&mut self, seq: i64) -> bool {
        let was_offered = self.strikes.forget(seq);
        if was_offered.is_some() {
            self.outcomes.noted.push((seq, false));
        }
        was_offered == Some(false)
    }

    fn unnote_unsent(&mut self, slot: Slot, seq: i64) {
        let waits = self.unnote(seq);
        let entry = self.window.entry(slot);
        if waits && entry.state == State::Retrying {
            let (share, strikes) = (self.home_of(slot), entry.strikes);
            self.strikes.wait(share, slot, seq, strikes, self.is_in_doubt(slot));
        }
    }

    /// Takes back the notes of all messages that were not sent, and for which this holds.
    pub(super) fn unnote_waiting(&mut self, holds: impl Fn(&Self, Slot) -> bool) {
        let unsent: Vec<i64> = self.strikes.noted().filter(|seq| self.is_unsent(*seq)).collect();
        for seq in unsent {
            if let Some(slot) = self.window.find(seq)
                && holds(self, slot)
            {
                self.unnote_unsent(slot, seq);
            }
        }
    }

    /// Whether one more message of a line may be noted: few are out, and a place and a token are free for it.
    fn has_room_for(&mut self, line: Line, young: usize) -> bool {
        let (share, is_in_doubt) = match line {
            Line::Alone => return false,
            Line::Fresh(share) => (share, false),
            Line::InDoubt(share) => (share, true),
        };
        let most = if self.to[share].outage.is_down() { 1 } else { GROUP };
        if young >= most || self.to[share].is_paused {
            return false;
        }
        let unsent = self.unsent(|it, slot| it.home_of(slot) == share && it.is_in_doubt(slot) == is_in_doubt);
        let free = self.to[share].places.free(is_in_doubt).saturating_mul(self.turns.most_in_send);
        unsent < free.min(self.to[share].pace.tokens(self.clocks.now_us()))
    }
}
