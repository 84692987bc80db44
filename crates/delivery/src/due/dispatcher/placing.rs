//! From the window to the timer and from the timer to what can be sent (rules D3, D4).

use super::{Alarm, CRASHED, Dispatcher, Event, Moment, Offer};
use crate::base::clock::DueClock;
use crate::due::lanes::Slot;
use crate::due::window::State;
use tickwheel::When;

impl Dispatcher {
    /// These are committed: they go on the timer.
    pub(crate) fn place(&mut self, slots: impl IntoIterator<Item = (Slot, i64)>) {
        for (slot, seq) in slots {
            if self.window.get(slot, seq).is_some_and(|entry| entry.state == State::Held) {
                self.place_one(slot);
            }
        }
    }

    /// Whether the wall clock was stepped; then all that waits was placed anew.
    pub(crate) fn follow_clock(&mut self) -> bool {
        let stepped = self.clock.is_some_and(|clock| clock.was_stepped(self.timer.clock(), &*self.wall));
        if stepped {
            self.place_again(Vec::new());
        }
        stepped
    }

    pub(super) fn place_one(&mut self, slot: Slot) {
        let clock = self.clock.expect("nothing is placed before the start");
        let entry = self.window.entry_mut(slot);
        entry.state = State::Waiting;
        let (due_ms, seq) = (entry.due_ms, entry.seq);
        if let Some(moment) = self.moments.get_mut(&due_ms) {
            moment.messages.push((slot, seq));
        } else if let Ok(task) = self.timer.add(When::AtUs(clock.instant_us(due_ms)), Alarm::Due(due_ms)) {
            self.moments.insert(due_ms, Moment { task, messages: vec![(slot, seq)] });
        }
    }

    /// A millisecond has come: what is due goes out, or its lane's first message does.
    pub(super) fn release(&mut self, due_ms: i64) {
        let Some(moment) = self.moments.remove(&due_ms) else { return };
        for (slot, seq) in moment.messages {
            let Some(entry) = self.window.get(slot, seq) else { continue };
            if entry.state != State::Waiting {
                continue;
            }
            if let Some(lane) = entry.lane {
                let it = self.window.lane_mut(lane);
                it.due_until_ms = it.due_until_ms.max(due_ms);
                self.offer(lane);
            } else {
                self.window.entry_mut(slot).state = State::Ready;
                self.offered.push_back(Offer::Message(slot, seq));
            }
        }
    }

    pub(super) fn offer(&mut self, lane: u32) {
        let it = self.window.lane(lane);
        if it.is_offered || !it.is_free() {
            return;
        }
        let Some((position, slot)) = it.first() else { return };
        if position.0 <= it.due_until_ms && self.window.entry(slot).state == State::Waiting {
            self.window.lane_mut(lane).is_offered = true;
            self.offered.push_back(Offer::Lane(lane));
        }
    }

    pub(super) fn accept(&mut self, offer: Offer) -> Option<Slot> {
        match offer {
            Offer::Lane(lane) => {
                self.window.lane_mut(lane).is_offered = false;
                self.window.take(lane)
            }
            Offer::Message(slot, seq) => {
                let entry = self.window.get(slot, seq)?;
                if !matches!(entry.state, State::Ready | State::Retrying) {
                    return None;
                }
                if self.window.is_paused(slot) {
                    self.leave_paused(slot);
                    return None;
                }
                Some(slot)
            }
        }
    }

    /// It would be early: it waits for the timer again, and its lane for it where it was sent before.
    pub(super) fn put_back(&mut self, slot: Slot, clock: &DueClock) {
        let entry = self.window.entry_mut(slot);
        let (seq, due_ms, was_sent) = (entry.seq, entry.due_ms, entry.was_sent);
        let was_noted = std::mem::take(&mut entry.is_noted);
        entry.attempts -= u32::from(was_noted);
        let attempts = entry.attempts;
        self.suspects_out.remove(&seq);
        if was_noted {
            self.keep_attempt(seq, attempts, None, CRASHED); // it was not sent
        }
        if was_sent {
            self.window.entry_mut(slot).state = State::Retrying;
            self.add(When::AtUs(clock.instant_us(due_ms)), Alarm::Again(slot, seq));
        } else {
            self.window.put_back(slot);
        }
    }

    /// The wall clock was stepped: all that waits is placed anew, and what would be early with it.
    pub(super) fn place_again(&mut self, early: Vec<Slot>) {
        let Some(clock) = &mut self.clock else { return };
        clock.read_again(self.timer.clock(), &*self.wall);
        let clock = *clock;
        for slot in early {
            self.put_back(slot, &clock);
        }
        self.events.push(Event::ClockStepped);
        for lane in self.window.lanes_mut() {
            lane.due_until_ms = i64::MIN;
        }
        for (_, moment) in std::mem::take(&mut self.moments) {
            self.timer.cancel(moment.task);
        }
        let waiting: Vec<Slot> =
            self.window.slots().filter(|(_, entry)| entry.state == State::Waiting).map(|(slot, _)| slot).collect();
        for slot in waiting {
            self.place_one(slot);
        }
    }
}
