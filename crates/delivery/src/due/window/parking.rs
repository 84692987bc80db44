//! Messages that leave memory while they wait for their next attempt (D6, D8). Dead customers therefore do not fill it.
//!
//! A message is *parked* in two steps. First it is only marked: it stays in memory, and can go out at any time. It
//! leaves with the writer's next group, which also stores its attempts. Then:
//!
//! - A message without a key is found again by the time of its next attempt, as the store has it. The loader has read
//!   all such messages of a share up to the position `tried_through`. A message that waits for a later time is not read ahead.
//! - All messages of a lane are in the store then. When its key has waited, the parked message is read first. It keeps
//!   its place before messages that came meanwhile, as a message that waits in memory does (D4). See `is_behind`.

use super::Window;
use super::entry::{Entry, Gone, State};
use crate::due::lanes::Slot;
use crate::store::WaitingRow;

/// A message that left memory until its next attempt.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) seq: i64,
    pub(crate) next_ms: i64,
    pub(crate) share: u32,
    /// The number of its lane.
    pub(crate) lane: Option<i64>,
    /// For a near message: the store has to write its row.
    pub(crate) gone: Option<Gone>,
}

impl Window {
    /// Whether more than half of the memory is used.
    pub(crate) fn is_half_full(&self) -> bool {
        self.len() > self.bounds.messages / 2 || self.bytes > self.budget.most_in_window() / 2
    }

    /// Marks a message that waits until its `next_ms`.
    pub(crate) fn park(&mut self, slot: Slot) {
        let entry = self.entry_mut(slot);
        entry.state = State::Parked;
        let (seq, lane, attempts) = (entry.seq, entry.lane, entry.attempts);
        self.parking.push_back((slot, seq, attempts));
        if let Some(lane) = lane {
            self.clear_away(lane);
        }
    }

    /// The message goes out earlier, or is still in memory when its wait is over.
    pub(crate) fn unpark(&mut self, slot: Slot) {
        let entry = self.entry_mut(slot);
        if entry.state == State::Parked {
            entry.state = State::Retrying;
        }
    }

    /// The next group stores the attempts of all messages that are marked now.
    pub(crate) fn seal_parking(&mut self) {
        self.sealed = self.parking.len();
    }

    /// Takes out the marked messages whose attempts are stored in this transaction. The store has to write the rows of
    /// near messages.
    pub(crate) fn take_parked(&mut self) -> Vec<Parked> {
        let mut taken = Vec::new();
        for (slot, seq, attempts) in self.parking.drain(..std::mem::take(&mut self.sealed)).collect::<Vec<_>>() {
            // If it was marked again meanwhile, a later group has its attempts.
            let is_same = |entry: &&Entry| entry.state == State::Parked && entry.attempts == attempts;
            let Some(entry) = self.get(slot, seq).filter(is_same) else { continue };
            let (position, lane, is_near, share) = (entry.position(), entry.lane, entry.is_near, entry.share);
            let next_ms = entry.next_ms.expect("it waits until then");
            let is_found_again = match lane.map(|lane| self.lane(lane)) {
                // No message behind it is in memory: one that is not committed may be.
                Some(it) => it.len() == 0 && self.is_read(share, position),
                // If not, its wait is nearly over.
                None => (next_ms, seq) > self.share(share).tried_through,
            };
            if !is_found_again {
                self.unpark(slot);
                continue;
            }
            let number = lane.map(|lane| self.lane(lane).number);
            if let Some(lane) = lane {
                let it = self.lane_mut(lane);
                it.none_in_flight();
                it.is_away = true;
                let from = it.more_from.map_or(position, |from| from.min(position));
                self.leave(lane, Some(from));
            }
            let gone = is_near.then(|| self.gone(slot));
            self.remove(slot);
            taken.push(Parked { seq, next_ms, share, lane: number, gone });
        }
        taken
    }

    /// Whether a message of the share waits in the store for a later attempt, so that it need not be in memory.
    pub(super) fn is_parked(&self, share: u32, row: &WaitingRow) -> bool {
        self.number(row.lane).is_none()
            && row.next_ms.is_some_and(|next_ms| (next_ms, row.seq) > self.share(share).tried_through)
            && !self.by_seq.contains_key(&row.seq)
    }

    /// Takes in messages of the share whose next attempt is soon, in the order of its time, at most `left`. `is_all`: these
    /// are all messages until `until_ms`. Returns also whether there was room for all of them.
    pub(crate) fn read_tried(
        &mut self,
        share: u32,
        rows: &[WaitingRow],
        until_ms: i64,
        is_all: bool,
        mut left: usize,
    ) -> (Vec<Slot>, bool) {
        let mut chosen = Vec::new();
        for row in rows {
            if !self.has_room(share, row.size as usize) || left == 0 {
                self.was_full |= left > 0;
                return (chosen, false);
            }
            left -= 1;
            self.share_mut(share).tried_through = (row.next_ms.expect("they are found by it"), row.seq);
            if self.number(row.lane).is_none() && self.has_read(row) && !self.by_seq.contains_key(&row.seq) {
                chosen.push(self.add(*row, None, false));
            }
        }
        if is_all {
            self.share_mut(share).tried_through = (until_ms, i64::MAX);
        }
        (chosen, true)
    }

    /// Takes in a parked message whose wait is over. `None` if it is in memory, will be read ahead, or comes in the order
    /// of its lane.
    pub(crate) fn come_in(&mut self, row: &WaitingRow) -> Option<Slot> {
        let position = (row.due_ms, row.seq);
        if self.by_seq.contains_key(&row.seq) {
            return None;
        }
        if self.number(row.lane).is_none() {
            return self.has_read(row).then(|| self.add(*row, None, false));
        }
        // If the key was paused, the lane is refilled in its order. After a restart, and if the cursor went back, the
        // message may be after the cursor.
        let lane = self.known_lane(row)?;
        let it = self.lane(lane);
        let waits_for_it = it.is_away && !it.is_paused && it.in_flight.is_none();
        let is_first = it.more_from == Some(position) && self.has_read(row);
        let is_left = it.more_from.map_or_else(|| !self.has_read(row), |from| from <= position);
        if !waits_for_it || !is_left {
            return None;
        }
        if !is_first && !row.is_unanswered && !row.redelivered {
            return None; // it certainly did not arrive, so it keeps no place
        }
        let slot = self.add(*row, None, false);
        self.entry_mut(slot).was_sent = row.is_unanswered || row.redelivered;
        let it = self.lane_mut(lane);
        it.remove(position, row.size as usize);
        it.in_flight = Some(slot);
        // After a crash it must count as a message that was in memory.
        if is_first {
            self.leave(lane, Some((row.due_ms, row.seq.saturating_add(1))));
        } else {
            self.sent_and_left.push(position);
        }
        Some(slot)
    }

    fn has_read(&self, row: &WaitingRow) -> bool {
        let share = self.share_numbers.get(&row.share);
        share.is_some_and(|share| self.is_read(*share, (row.due_ms, row.seq)))
    }
}
