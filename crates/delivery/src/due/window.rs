//! The waiting messages that are in memory (rules D4, D8): the next ones to be due, within bounds, in order per key.
//!
//! The store has all messages. The window has the messages before a `cursor`, and only the first few messages of each
//! key. The cursor is a position `(due_ms, seq)` in the order of delivery. The window has no lock, no clock and no
//! thread. The dispatcher's lock guards it, and the writer moves it on.
//!
//! - Each destination is a *share* (D23): it has its own cursor, and may have as much of the memory as is free. So none that
//!   can't be sent keeps others out. Share 0 has the messages that name no destination.
//! - A waiting message at or before the cursor is in memory. There are two exceptions. If a lane has a `more_from`, its
//!   messages from that position on are only in the store. A message without a key may be parked. No message that
//!   waits in memory is after the cursor. These rules keep each lane in order.
//! - There are bounds for messages and bytes, in total and for each lane. Reading ahead stops at four fifths of the
//!   bounds. The rest is for new messages that are due before the cursor, and for lanes that ran empty.
//! - If a lane has no room for such a new message, the lane's last messages go back to the store, and `more_from` is
//!   set. If the window has no room, the latest tenth of all messages goes back, and the cursor moves back too. Reading
//!   ahead finds the messages again.
//! - No waiting message of a paused key is in memory: see `held.rs`. If a key fails again and again, only the
//!   message that is being tried is in memory. If that message waits long for its next attempt, it
//!   leaves memory too: see `parking.rs`.
//! - A message is *near* if it came into memory when it was accepted. The store has no waiting row for it. If a near
//!   message goes back, the store has to write that row.
//!
//! Example: a lane holds at most two messages, and the cursor is (50, 9). Key k has (10, 1) and (20, 2) in memory and
//! (30, 3) in the store, so its `more_from` is (30, 3). A new message (15, 10) of k is accepted. (20, 2) goes back, and
//! `more_from` is now (20, 2).

mod entry;
mod held;
mod leaving;
mod parking;
mod share;

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::lanes::{Lane, Slot};
use crate::base::budget::Budget;
use crate::message::Body;
use crate::message::incoming::lane_in;
use crate::message::partition::Earliest;
use crate::store::{Outcome, Position, WaitingRow};

pub use entry::Bounds;
pub(crate) use entry::Look;
use entry::Share;
pub(crate) use entry::{Entry, Gone, State};
pub(crate) use parking::Parked;

/// The window is empty until it has a cursor. `is_global`: all messages are in one lane (`--order global`).
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(crate) struct Window {
    bounds: Bounds,
    is_global: bool,
    /// Share 0 is always there.
    shares: Vec<Share>,
    free_shares: Vec<u32>,
    /// How many of them are of destinations.
    homes: usize,
    /// The number of each share, by the number of its destination.
    share_numbers: FxHashMap<i64, u32>,
    /// The shares whose cursor has moved since the last group.
    moved: Vec<u32>,
    /// The shares in the states `Next` and `Behind`, and some that have left it.
    to_look_at: VecDeque<u32>,
    behind: VecDeque<u32>,
    /// A lane may run empty while the store has more of its messages.
    pub(crate) has_needy_lanes: bool,
    /// A message was not read, because there was no room.
    pub(crate) was_full: bool,
    entries: Vec<Option<Entry>>,
    free: Vec<Slot>,
    by_seq: FxHashMap<i64, Slot>,
    bytes: usize,
    /// The bound for bytes follows from it. It has the count of the window too.
    pub(crate) budget: Arc<Budget>,
    lanes: Vec<Lane>,
    free_lanes: Vec<u32>,
    lane_numbers: FxHashMap<i64, u32>,
    /// The numbers of all paused keys. The window may know nothing else of such a key.
    paused: FxHashSet<i64>,
    /// The numbers of all lanes whose key waits after a send that was not accepted.
    waiting: FxHashSet<i64>,
    /// The new `more_from` of each lane that changed since the last [`Window::take_changed_lanes`].
    changed: FxHashMap<i64, Option<Position>>,
    /// Messages in the state `Leaving`.
    leaving: Vec<Slot>,
    /// Messages with a row in the store that were sent, and then left memory since the last [`Window::take_uncovered`].
    sent_and_left: Vec<Position>,
    /// The cursor or a lane's `more_from` moved back. Messages on their way may now be after it.
    has_gone_back: bool,
    /// Messages that are marked, to be parked, with the number of their attempts. The first `sealed` of them may leave in
    /// the present transaction.
    parking: VecDeque<(Slot, i64, u32)>,
    sealed: usize,
    /// Near messages that left memory, and whose rows are not committed in the store.
    pub(crate) left_uncommitted: Earliest,
}

impl Window {
    pub(crate) fn new(bounds: Bounds, is_global: bool) -> Self {
        Self {
            bounds,
            budget: Arc::new(Budget::new(bounds.bytes)),
            is_global,
            shares: vec![Share { shares: 1, ..Share::new(0) }],
            homes: 1,
            free_shares: Vec::new(),
            moved: Vec::new(),
            to_look_at: VecDeque::new(),
            behind: VecDeque::new(),
            has_needy_lanes: false,
            share_numbers: FxHashMap::from_iter([(0, 0)]),
            was_full: false,
            entries: Vec::new(),
            free: Vec::new(),
            by_seq: FxHashMap::default(),
            bytes: 0,
            lanes: Vec::new(),
            free_lanes: Vec::new(),
            lane_numbers: FxHashMap::default(),
            paused: FxHashSet::default(),
            waiting: FxHashSet::default(),
            changed: FxHashMap::default(),
            leaving: Vec::new(),
            sent_and_left: Vec::new(),
            has_gone_back: false,
            parking: VecDeque::new(),
            sealed: 0,
            left_uncommitted: Earliest::default(),
        }
    }

    pub(crate) fn is_global(&self) -> bool {
        self.is_global
    }

    pub(crate) fn len(&self) -> usize {
        self.by_seq.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the place of a window that is dropped.
    pub(crate) fn take_over(&mut self, before: &Self) {
        self.budget = before.budget.clone();
        self.budget.set_window(self.bytes, 0);
    }

    pub(crate) fn find(&self, seq: i64) -> Option<Slot> {
        self.by_seq.get(&seq).copied()
    }

    /// The message in this slot, if the slot still has this message.
    pub(crate) fn get(&self, slot: Slot, seq: i64) -> Option<&Entry> {
        self.entries.get(slot as usize)?.as_ref().filter(|entry| entry.seq == seq)
    }

    pub(crate) fn entry(&self, slot: Slot) -> &Entry {
        self.entries[slot as usize].as_ref().expect("the slot is taken")
    }

    pub(crate) fn entry_mut(&mut self, slot: Slot) -> &mut Entry {
        self.entries[slot as usize].as_mut().expect("the slot is taken")
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = (Slot, &Entry)> {
        self.entries.iter().enumerate().filter_map(|(slot, entry)| Some((slot as Slot, entry.as_ref()?)))
    }

    /// The messages in the next `slots` slots, from slot `from` on. Also returns the slot to continue with, if there
    /// are more.
    pub(crate) fn part(&self, from: usize, slots: usize) -> (impl Iterator<Item = &Entry>, Option<usize>) {
        let end = (from + slots).min(self.entries.len());
        let part = self.entries[from.min(end)..end].iter().flatten();
        (part, (end < self.entries.len()).then_some(end))
    }

    /// All lane numbers in the window are below this number. An unused number has no messages.
    pub(crate) fn lane_places(&self) -> u32 {
        self.lanes.len() as u32
    }

    pub(crate) fn lane(&self, lane: u32) -> &Lane {
        &self.lanes[lane as usize]
    }

    pub(crate) fn lane_mut(&mut self, lane: u32) -> &mut Lane {
        &mut self.lanes[lane as usize]
    }

    pub(crate) fn lanes_mut(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.lanes.iter_mut()
    }

    pub(crate) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// The lane with this number, if the window knows it.
    pub(crate) fn lane_numbered(&self, number: i64) -> Option<u32> {
        self.lane_numbers.get(&number).copied()
    }

    /// Takes in a message that was just accepted, or let go by an event. Returns its slot if it comes into memory. Messages that left memory
    /// to make room are added to `gone`.
    pub(crate) fn admit(
        &mut self,
        row: WaitingRow,
        partition: u8,
        body: Option<Body>,
        gone: &mut Vec<Gone>,
    ) -> Option<Slot> {
        let position = (row.due_ms, row.seq);
        let share = self.open_share(row.share);
        if !self.is_read(share, position) {
            return None;
        }
        if let Some(lane) = self.known_lane(&row) {
            let more_from = self.lane(lane).more_from;
            if more_from.is_some_and(|from| position >= from) {
                return None;
            }
            if !self.fits(lane, row.size) {
                self.make_room_in(lane, row, gone);
                if !self.fits(lane, row.size) {
                    self.leave(lane, Some(position));
                    return None;
                }
            }
        }
        if !self.has_room_for_new(share, row.size as usize) {
            self.make_room(share, row, gone);
            if !self.has_room_for_new(share, row.size as usize) {
                self.set_back(share, position);
                return None;
            }
        }
        let slot = self.add(row, body, true);
        self.entry_mut(slot).partition = partition;
        Some(slot)
    }

    /// Takes in the next messages after the share's cursor from the store. `is_all`: these are all until `until_ms`.
    ///
    /// Does nothing while a message after the cursor is going back to the store. If the cursor passed such a message, the
    /// message would never be read again. One before the cursor does not matter: its lane is refilled. So keys that fail
    /// all the time do not keep others from being read.
    pub(crate) fn read_ahead(&mut self, share: u32, rows: &[WaitingRow], until_ms: i64, is_all: bool) -> Vec<Slot> {
        let mut chosen = Vec::new();
        let is_after = |slot: &Slot| {
            let entry = self.entry(*slot);
            entry.share == share && !self.is_read(share, entry.position())
        };
        if self.leaving().any(|slot| is_after(&slot)) {
            return chosen;
        }
        for row in rows {
            if !self.has_room_ahead(share, row.size as usize) {
                self.was_full = true;
                return chosen;
            }
            self.move_cursor(share, (row.due_ms, row.seq));
            if self.by_seq.contains_key(&row.seq) || self.is_parked(share, row) {
                continue;
            }
            if let Some(lane) = self.known_lane(row) {
                if self.lane(lane).more_from.is_some_and(|from| from <= (row.due_ms, row.seq)) {
                    continue;
                }
                if !self.fits(lane, row.size) {
                    self.leave(lane, Some((row.due_ms, row.seq)));
                    continue;
                }
            }
            chosen.push(self.add(*row, None, false));
        }
        if is_all {
            self.move_cursor(share, (until_ms, i64::MAX));
        }
        chosen
    }

    /// The lanes of the share to refill, at most 200, and the position to read from. `None` if no lane needs it, or there
    /// is no room.
    pub(crate) fn refill_from(&mut self, share: u32) -> Option<(Vec<i64>, Position)> {
        let (start, _) = self.share(share).needy_lanes().next()?;
        if !self.has_room(share, 0) {
            self.was_full = true;
            return None;
        }
        let lanes = self.share(share).needy_lanes().take(200);
        Some((lanes.map(|(_, lane)| self.lane(lane).number).collect(), start))
    }

    /// Takes in these rows. They are all rows of these lanes of the share from `start` to `end`. Does nothing for a lane
    /// whose messages are going back to the store, or went back while the rows were read.
    pub(crate) fn refill(
        &mut self,
        share: u32,
        numbers: &[i64],
        rows: &[WaitingRow],
        start: Position,
        end: Position,
    ) -> Vec<Slot> {
        let leaving: FxHashSet<u32> = self.leaving().filter_map(|slot| self.entry(slot).lane).collect();
        let cursor = self.share(share).cursor.expect("what is refilled was left behind a cursor");
        let lanes: Vec<u32> = numbers.iter().filter_map(|number| self.lane_numbers.get(number).copied()).collect();
        let mut open: Vec<u32> = lanes.clone();
        open.retain(|lane| {
            let it = self.lane(*lane);
            !leaving.contains(lane)
                && !it.is_away
                && !it.is_paused
                && it.more_from.is_some_and(|from| start <= from && from <= end)
        });
        let mut chosen = Vec::new();
        for row in rows {
            let position = (row.due_ms, row.seq);
            let Some(lane) = self.find_lane(row.lane).filter(|lane| open.contains(lane)) else { continue };
            let is_left = self.lane(lane).more_from.is_some_and(|from| position >= from);
            if !is_left || self.by_seq.contains_key(&row.seq) {
                continue;
            }
            let has_room = self.has_room(share, row.size as usize);
            if has_room && self.fits(lane, row.size) {
                chosen.push(self.add(*row, None, false));
            } else {
                self.was_full |= !has_room;
                self.leave(lane, Some(position));
                if has_room {
                    // The lane is full. It becomes needy again when a message leaves it.
                    self.share_mut(share).needy.remove(&(position, lane));
                }
                open.retain(|other| *other != lane);
            }
        }
        for lane in open {
            self.leave(lane, (end < cursor).then_some((end.0, end.1.saturating_add(1))));
        }
        for lane in lanes {
            self.tidy(lane);
        }
        chosen
    }

    /// Takes the lane's first message to send it, if it can go out.
    pub(crate) fn take(&mut self, lane: u32) -> Option<Slot> {
        let it = self.lane(lane);
        let first = it.first().filter(|(_, slot)| it.is_free() && self.entry(*slot).state == State::Waiting);
        let Some((position, slot)) = first else {
            self.tidy(lane);
            return None;
        };
        let size = self.entry(slot).size as usize;
        let it = self.lane_mut(lane);
        it.remove(position, size);
        it.in_flight = Some(slot);
        self.look_after(lane);
        Some(slot)
    }

    /// The message has its outcome. It stays known until [`Window::forget`]. If it was not delivered, its lane waits
    /// until then.
    pub(crate) fn end(&mut self, slot: Slot, outcome: Outcome) {
        let entry = self.entry_mut(slot);
        let (position, lane, size, state) = (entry.position(), entry.lane, entry.size as usize, entry.state);
        entry.state = State::Over;
        entry.outcome = Some(outcome);
        entry.body = None;
        if let Some(lane) = lane {
            let it = self.lane_mut(lane);
            if it.in_flight == Some(slot) {
                it.none_in_flight();
            } else if state != State::Leaving {
                it.remove(position, size);
            }
            if outcome != Outcome::Delivered {
                it.uncommitted += 1;
            }
            self.look_after(lane);
        }
    }

    /// The message's outcome is committed. Returns the lane, if the lane waited for this commit and can go on.
    pub(crate) fn forget(&mut self, seq: i64) -> Option<u32> {
        let slot = self.find(seq)?;
        let entry = self.entry(slot);
        let (lane, was_delivered) = (entry.lane, entry.outcome == Some(Outcome::Delivered));
        let mut goes_on = None;
        if let Some(lane) = lane.filter(|_| !was_delivered) {
            let it = self.lane_mut(lane);
            it.uncommitted -= 1;
            goes_on = (it.uncommitted == 0 && it.len() > 0).then_some(lane);
        }
        self.remove(slot);
        goes_on
    }

    /// Forgets a lane that is not used any more.
    pub(crate) fn tidy(&mut self, lane: u32) {
        let it = self.lane(lane);
        if it.is_unused() && self.lane_numbers.get(&it.number) == Some(&lane) {
            let (number, share) = (it.number, it.share);
            self.share_mut(share).lanes -= 1;
            self.lane_numbers.remove(&number);
            self.free_lanes.push(lane);
        }
    }

    /// The new `more_from` of each lane that changed since the last call, by lane number.
    pub(crate) fn take_changed_lanes(&mut self) -> impl Iterator<Item = (i64, Option<Position>)> {
        std::mem::take(&mut self.changed).into_iter()
    }

    pub(crate) fn number(&self, lane: Option<i64>) -> Option<i64> {
        if self.is_global { Some(0) } else { lane }
    }

    fn find_lane(&self, lane: Option<i64>) -> Option<u32> {
        self.lane_numbers.get(&self.number(lane)?).copied()
    }

    /// The lane of a message, if the window knows it. A paused lane is created if it is not known.
    fn known_lane(&mut self, row: &WaitingRow) -> Option<u32> {
        let number = self.number(row.lane)?;
        if self.paused.contains(&lane_in(row.share, number)) {
            let share = self.open_share(row.share);
            Some(self.open_lane(share, number))
        } else {
            self.find_lane(row.lane)
        }
    }

    fn fits(&self, lane: u32, size: u32) -> bool {
        let it = self.lane(lane);
        if it.is_paused || it.is_away {
            return false;
        }
        self.is_global
            || it.len() == 0
            || (it.len() < self.bounds.lane_messages && it.size + size as usize <= self.bounds.lane_bytes)
    }

    fn add(&mut self, row: WaitingRow, body: Option<Body>, is_near: bool) -> Slot {
        let share = self.open_share(row.share);
        let lane = self.number(row.lane).map(|number| self.open_lane(share, number));
        let entry = Entry {
            seq: row.seq,
            due_ms: row.due_ms,
            lane,
            share,
            size: row.size,
            attempts: row.attempts,
            counted: row.counted,
            waited_us: row.waited_ms.max(0) as u64 * 1_000,
            waited_from_us: 0,
            tried_ms: row.tried_ms,
            next_ms: row.next_ms,
            state: State::Uncommitted,
            is_near,
            partition: 0,
            redelivered: row.redelivered,
            was_sent: false,
            is_unanswered: row.is_unanswered,
            strikes: row.strikes,
            outcome: None,
            body,
        };
        let slot = if let Some(slot) = self.free.pop() {
            self.entries[slot as usize] = Some(entry);
            slot
        } else {
            self.entries.push(Some(entry));
            self.entries.len() as Slot - 1
        };
        self.by_seq.insert(row.seq, slot);
        self.bytes += row.size as usize;
        self.budget.set_window(self.bytes, 0);
        self.count_in(share, |(messages, bytes)| (messages + 1, bytes + row.size as usize));
        if let Some(lane) = lane {
            self.lane_mut(lane).insert((row.due_ms, row.seq), slot, row.size as usize);
        }
        slot
    }

    fn open_lane(&mut self, share: u32, number: i64) -> u32 {
        if let Some(lane) = self.lane_numbers.get(&number) {
            return *lane;
        }
        let mut new = Lane::new(number, share, self.is_global);
        new.is_paused = !self.paused.is_empty() && self.paused.contains(&lane_in(self.share(share).id, number));
        new.is_waiting = !self.waiting.is_empty() && self.waiting.contains(&number);
        let lane = if let Some(lane) = self.free_lanes.pop() {
            self.lanes[lane as usize] = new;
            lane
        } else {
            self.lanes.push(new);
            self.lanes.len() as u32 - 1
        };
        self.lane_numbers.insert(number, lane);
        self.share_mut(share).lanes += 1;
        lane
    }

    fn remove(&mut self, slot: Slot) {
        let entry = self.entries[slot as usize].take().expect("the slot is taken");
        self.free.push(slot);
        self.by_seq.remove(&entry.seq);
        self.bytes -= entry.size as usize;
        self.budget.set_window(self.bytes, entry.size as usize);
        self.count_in(entry.share, |(messages, bytes)| (messages - 1, bytes - entry.size as usize));
        if let Some(lane) = entry.lane {
            self.tidy(lane);
        }
    }
}

#[cfg(test)]
mod tests;
