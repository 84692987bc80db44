//! Messages that leave memory for the store, because memory has no room or no place for them (rules D4, D8).

use super::Window;
use super::entry::{Entry, Gone, Look, State};
use crate::due::lanes::Slot;
use crate::message::partition::Earliest;
use crate::store::{Position, WaitingRow};

impl Window {
    /// The message does not go out now. If it has no place in memory any more, it goes back to the store.
    pub(crate) fn put_back(&mut self, slot: Slot) {
        let (position, lane, size, share) = {
            let entry = self.entry(slot);
            (entry.position(), entry.lane, entry.size as usize, entry.share)
        };
        let mut has_place = self.is_read(share, position);
        if let Some(lane) = lane {
            let it = self.lane_mut(lane);
            it.none_in_flight();
            has_place &= it.more_from.is_none_or(|from| position < from);
            if has_place {
                it.insert(position, slot, size);
            }
        }
        if has_place {
            self.entry_mut(slot).state = State::Waiting;
        } else {
            self.leave_memory(slot);
        }
        if let Some(lane) = lane {
            self.look_after(lane); // it may be read again now
        }
    }

    /// Whether this message waited for its next attempt, certainly did not arrive, and another message of its lane is due
    /// before it, or may be in the store.
    pub(crate) fn is_behind(&self, slot: Slot) -> bool {
        let entry = self.entry(slot);
        let Some(lane) = entry.lane.map(|lane| self.lane(lane)).filter(|lane| lane.in_flight == Some(slot)) else {
            return false;
        };
        let is_first = |(position, other)| position < entry.position() && self.entry(other).state == State::Waiting;
        !entry.may_have_arrived()
            && (lane.first().is_some_and(is_first)
                || lane.more_from.is_some_and(|from| from < entry.position())
                || self.share(entry.share).cursor.is_some_and(|cursor| cursor < entry.position()))
    }

    /// Whether a message is going back to the store in the next transaction.
    pub(crate) fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// The messages that go back to the store in the next transaction.
    pub(super) fn leaving(&self) -> impl Iterator<Item = Slot> {
        let is_leaving =
            |slot: &Slot| self.entries[*slot as usize].as_ref().is_some_and(|entry| entry.state == State::Leaving);
        self.leaving.iter().copied().filter(is_leaving)
    }

    /// The messages that go back to the store in this transaction. The store has to write their rows.
    pub(crate) fn take_leaving(&mut self) -> Vec<Gone> {
        let mut gone = Vec::new();
        for slot in std::mem::take(&mut self.leaving) {
            if self.entries[slot as usize].as_ref().is_some_and(|entry| entry.state == State::Leaving) {
                gone.push(self.gone(slot));
                self.remove(slot);
            }
        }
        gone
    }

    /// The message stays in memory, and gets a row in the store in this transaction. The cursor may be before it.
    pub(crate) fn hold_near(&mut self, slot: Slot) {
        self.note_left(slot);
        self.entry_mut(slot).is_near = false;
        self.has_gone_back = true;
    }

    /// The rows of near messages that left memory are on disk now.
    pub(crate) fn rows_are_committed(&mut self) {
        self.left_uncommitted = Earliest::default();
    }

    fn note_left(&mut self, slot: Slot) {
        let entry = self.entries[slot as usize].as_ref().expect("the slot is taken");
        if entry.is_near {
            self.left_uncommitted.add(entry.partition, entry.due_ms);
        }
    }

    /// Sent messages whose positions must be stored, because the cursor and the lanes do not show after a crash that
    /// they were in memory. There are two kinds:
    ///
    /// - Messages with a row that were sent, and left memory since the last call.
    /// - Messages with a row that are being sent, or whose outcome is not committed, if the cursor or their lane has
    ///   moved back before them since the last call, or if they were near until then.
    pub(crate) fn take_uncovered(&mut self) -> Vec<Position> {
        let mut uncovered = std::mem::take(&mut self.sent_and_left);
        if !std::mem::take(&mut self.has_gone_back) {
            return uncovered;
        }
        let on_their_way = self
            .slots()
            .filter(|(_, it)| !matches!(it.state, State::Uncommitted | State::Waiting | State::Leaving) && !it.is_near)
            .filter(|(_, it)| {
                let more_from = it.lane.and_then(|lane| self.lane(lane).more_from);
                !self.is_read(it.share, it.position()) || more_from.is_some_and(|from| it.position() >= from)
            })
            .map(|(_, it)| it.position());
        uncovered.extend(on_their_way);
        uncovered
    }

    /// Sends the lane's last messages back until the new row fits. Only messages after the new row go back.
    pub(super) fn make_room_in(&mut self, lane: u32, row: WaitingRow, gone: &mut Vec<Gone>) {
        while !self.fits(lane, row.size)
            && let Some((position, slot)) = self.lane(lane).last()
            && position > (row.due_ms, row.seq)
        {
            self.leave(lane, Some(position));
            gone.push(self.send_back(slot));
        }
    }

    /// Sends back the latest tenth of the share's messages, or more if the new row needs it. Only messages after the new
    /// row go back. The cursor moves back too.
    pub(super) fn make_room(&mut self, share: u32, row: WaitingRow, gone: &mut Vec<Gone>) {
        let most = self.share(share).own.0;
        let mut movable: Vec<(Position, Slot)> = self
            .slots()
            .filter(|(_, it)| {
                it.share == share
                    && matches!(it.state, State::Uncommitted | State::Waiting)
                    && it.position() > (row.due_ms, row.seq)
            })
            .map(|(slot, it)| (it.position(), slot))
            .collect();
        movable.sort_unstable();
        let mut first_gone = None;
        let mut count = 0;
        while let Some((position, slot)) = movable.pop() {
            if count * 10 >= most && self.has_room_for_new(share, row.size as usize) {
                break;
            }
            gone.push(self.send_back(slot));
            count += 1;
            first_gone = Some(position);
        }
        if let Some(position) = first_gone {
            self.set_back(share, position);
        }
    }

    /// Moves the share's cursor back to before this position. None of its messages that waits in memory is at or after
    /// the position.
    pub(super) fn set_back(&mut self, share: u32, position: Position) {
        let cursor = (position.0, position.1 - 1);
        self.move_cursor(share, cursor);
        self.look_at(share);
        self.was_full = true;
        self.has_gone_back = true;
        for lane in 0..self.lanes.len() as u32 {
            let it = self.lane(lane);
            if it.share == share && it.more_from.is_some_and(|from| from > cursor) {
                self.leave(lane, None); // reading ahead finds it again
                self.tidy(lane);
            }
        }
    }

    /// The message is in the order of no lane. If it is near, the next transaction writes its row.
    pub(super) fn leave_memory(&mut self, slot: Slot) {
        if self.entry(slot).is_near {
            self.entry_mut(slot).state = State::Leaving;
            self.leaving.push(slot);
        } else {
            self.remove(slot);
        }
    }

    /// All that waits of these shares goes to the store until [`Window::let_go`]. What is sent, or tried again, stays.
    pub(crate) fn hold(&mut self, shares: &[u32]) {
        if shares.is_empty() {
            return;
        }
        for share in shares {
            self.share_mut(*share).look = Look::Held;
            self.move_cursor(*share, (i64::MIN, 0));
            self.has_gone_back = true;
        }
        let waits = |slot, it: &Entry| {
            shares.contains(&it.share)
                && matches!(it.state, State::Uncommitted | State::Waiting | State::Ready)
                && it.lane.is_none_or(|lane| self.lane(lane).in_flight != Some(slot))
        };
        let waiting: Vec<Slot> = self.slots().filter(|(slot, it)| waits(*slot, it)).map(|it| it.0).collect();
        for slot in waiting {
            let it = self.entry_mut(slot);
            let (position, lane, size) = (it.position(), it.lane.take(), it.size as usize);
            self.leave_memory(slot);
            if let Some(lane) = lane {
                self.lane_mut(lane).remove(position, size);
                self.look_after(lane);
                self.tidy(lane);
            }
        }
    }

    pub(super) fn gone(&mut self, slot: Slot) -> Gone {
        self.note_left(slot);
        let entry = self.entry(slot);
        Gone {
            due_ms: entry.due_ms,
            seq: entry.seq,
            size: entry.size,
            redelivered: entry.redelivered,
            was_near: entry.is_near,
            body: entry.body.clone(),
        }
    }

    pub(super) fn send_back(&mut self, slot: Slot) -> Gone {
        let gone = self.gone(slot);
        if let Some(lane) = self.entry(slot).lane {
            self.lane_mut(lane).remove((gone.due_ms, gone.seq), gone.size as usize);
        }
        self.remove(slot);
        gone
    }

    /// From this position on, the lane's messages are only in the store. `None`: all of them are in memory.
    pub(super) fn leave(&mut self, lane: u32, from: Option<Position>) {
        let share = self.lane(lane).share;
        if let Some(old) = self.lane(lane).more_from {
            self.share_mut(share).needy.remove(&(old, lane));
        }
        let it = self.lane_mut(lane);
        let goes_back = from.is_some_and(|from| it.more_from.is_none_or(|old| from < old));
        it.more_from = from;
        let number = it.number;
        self.changed.insert(number, from);
        self.has_gone_back |= goes_back;
        self.look_after(lane);
    }

    pub(super) fn look_after(&mut self, lane: u32) {
        let it = &self.lanes[lane as usize];
        let Some(from) = it.more_from else { return };
        let share = it.share;
        if it.len() > self.bounds.lane_messages / 2 || it.is_paused || it.is_away {
            self.share_mut(share).needy.remove(&(from, lane));
        } else if self.share_mut(share).needy.insert((from, lane)) {
            self.has_needy_lanes |= self.is_read(share, from);
            self.look_at(share);
        }
    }
}
