//! What is in memory of all that waits (rules D4, D8): the messages that are due next, within bounds, in order per key.
//!
//! The store has everything; the window has what comes before its `cursor`, a position `(due_ms, seq)` in the order of
//! delivery, and of each key only the first few. Nothing here has a lock, a clock or a thread: the dispatcher's lock guards
//! it, and the writer moves it along.
//!
//! - All that waits at or before the cursor is in memory, except that of a lane with a `more_from`: from there on it is in
//!   the store alone. What waits in memory is at or before the cursor. So a lane is never out of order.
//! - Bounds: messages and bytes in all, and for each lane. Reading ahead stops at four fifths of them; the rest is for
//!   messages that come later and are due before the cursor, and for lanes that ran empty.
//! - Where a lane has no room for such a message, its last ones go back to the store (`more_from`). Where the window has
//!   none, the latest tenth goes back, and the cursor with it. Reading ahead finds them again.
//! - Of a paused key nothing that waits is in memory: `pausing.rs`.
//! - A message that came into memory when it was accepted is *near*: the store has no row of it that says that it waits.
//!   Where it goes back, the store is told to write that row.
//!
//! Example: at most two in a lane, cursor (50, 9). Key k has (10, 1) and (20, 2) in memory and (30, 3) in the store, so its
//! `more_from` is (30, 3). A new message (15, 10) of k comes in between, (20, 2) goes back, `more_from` is (20, 2).

mod entry;
mod leaving;
mod pausing;

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use super::lanes::{Lane, Slot};
use crate::message::Body;
use crate::message::earliest::Earliest;
use crate::store::{Outcome, Position, Waiting};

pub use entry::Bounds;
pub(crate) use entry::{Entry, Gone, State};

/// Empty until it has a cursor. `is_global`: all messages are one lane (`--order global`).
#[derive(Debug)]
pub(crate) struct Window {
    bounds: Bounds,
    is_global: bool,
    pub(crate) cursor: Option<Position>,
    /// Something was not read for want of room.
    pub(crate) was_full: bool,
    entries: Vec<Option<Entry>>,
    free: Vec<Slot>,
    by_seq: FxHashMap<i64, Slot>,
    bytes: usize,
    lanes: Vec<Lane>,
    free_lanes: Vec<u32>,
    lane_numbers: FxHashMap<i64, u32>,
    /// The numbers of lanes whose key is paused, also where nothing else is known of them.
    paused: FxHashSet<i64>,
    /// Lanes that may run empty though the store has more of them, by what the store has.
    needy: BTreeSet<(Position, u32)>,
    /// What is left of each lane in the store, where it changed since this was taken.
    changed: FxHashMap<i64, Option<Position>>,
    /// Messages in the state `Leaving`.
    leaving: Vec<Slot>,
    /// Messages that have a row in the store, were sent, and left memory since the last [`Window::take_uncovered`].
    sent_and_left: Vec<Position>,
    /// The cursor or a lane went back: messages on their way may be beyond it.
    has_gone_back: bool,
    /// Near messages that left memory, and whose rows in the store are not committed yet.
    pub(crate) left_uncommitted: Earliest,
}

impl Window {
    pub(crate) fn new(bounds: Bounds, is_global: bool) -> Self {
        Self {
            bounds,
            is_global,
            cursor: None,
            was_full: false,
            entries: Vec::new(),
            free: Vec::new(),
            by_seq: FxHashMap::default(),
            bytes: 0,
            lanes: Vec::new(),
            free_lanes: Vec::new(),
            lane_numbers: FxHashMap::default(),
            paused: FxHashSet::default(),
            needy: BTreeSet::new(),
            changed: FxHashMap::default(),
            leaving: Vec::new(),
            sent_and_left: Vec::new(),
            has_gone_back: false,
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

    pub(crate) fn find(&self, seq: i64) -> Option<Slot> {
        self.by_seq.get(&seq).copied()
    }

    /// The message in this slot, if it is still that one.
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

    /// Those in at most so many slots from this one on; and the slot to go on with, if there are more.
    pub(crate) fn part(&self, from: usize, slots: usize) -> (impl Iterator<Item = &Entry>, Option<usize>) {
        let end = (from + slots).min(self.entries.len());
        let part = self.entries[from.min(end)..end].iter().flatten();
        (part, (end < self.entries.len()).then_some(end))
    }

    /// Lanes have numbers below this. One that is not used has no messages.
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

    /// Whether a lane may run empty though the store has more of it.
    pub(crate) fn has_needy_lanes(&self) -> bool {
        !self.needy.is_empty()
    }

    /// Whether less than four fifths are taken, with so many bytes more.
    pub(crate) fn has_room_ahead(&self, bytes: usize) -> bool {
        self.len() == 0
            || (self.len() < self.bounds.messages / 5 * 4 && self.bytes + bytes <= self.bounds.bytes / 5 * 4)
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.len() == 0 || (self.len() < self.bounds.messages && self.bytes + bytes <= self.bounds.bytes)
    }

    /// A message that was just accepted: its slot, if it comes into memory. What made room is added to `gone`.
    pub(crate) fn admit(&mut self, row: Waiting, partition: u8, body: Body, gone: &mut Vec<Gone>) -> Option<Slot> {
        let position = (row.due_ms, row.seq);
        if self.cursor.is_none_or(|cursor| position > cursor) {
            return None;
        }
        if let Some(lane) = self.known_lane(row.lane) {
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
        if !self.has_room(row.size as usize) {
            self.make_room(row, gone);
            if !self.has_room(row.size as usize) {
                self.set_back(position);
                return None;
            }
        }
        let slot = self.add(row, Some(body), true);
        self.entry_mut(slot).partition = partition;
        Some(slot)
    }

    /// Takes in from the store what comes next after the cursor; `is_all`: there is no more until `until_ms`.
    ///
    /// Nothing while a message goes back to the store: a cursor that passed it would leave it out for good.
    pub(crate) fn read_ahead(&mut self, rows: &[Waiting], until_ms: i64, is_all: bool) -> Vec<Slot> {
        let mut chosen = Vec::new();
        if self.has_leaving() {
            return chosen;
        }
        for row in rows {
            if !self.has_room_ahead(row.size as usize) {
                self.was_full = true;
                return chosen;
            }
            self.cursor = Some((row.due_ms, row.seq));
            if self.by_seq.contains_key(&row.seq) {
                continue;
            }
            if let Some(lane) = self.known_lane(row.lane) {
                if self.lane(lane).more_from.is_some() {
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
            self.cursor = Some((until_ms, i64::MAX));
        }
        chosen
    }

    /// The lanes to refill, at most some hundred, and from where; `None` if there are none, or there is no room.
    pub(crate) fn refill_from(&mut self) -> Option<(Vec<i64>, Position)> {
        let (start, _) = *self.needy.first()?;
        if !self.has_room(0) {
            self.was_full = true;
            return None;
        }
        Some((self.needy.iter().take(200).map(|(_, lane)| self.lane(*lane).number).collect(), start))
    }

    /// Takes in these rows of these lanes, which are all of them until `end`; nothing while a message goes back to the store.
    pub(crate) fn refill(&mut self, numbers: &[i64], rows: &[Waiting], end: Position) -> Vec<Slot> {
        if self.has_leaving() {
            return Vec::new();
        }
        let cursor = self.cursor.expect("what is refilled was left behind a cursor");
        let lanes: Vec<u32> = numbers.iter().filter_map(|number| self.lane_numbers.get(number).copied()).collect();
        let mut open: Vec<u32> = lanes.clone();
        open.retain(|lane| self.lane(*lane).more_from.is_some_and(|from| from <= end));
        let mut chosen = Vec::new();
        for row in rows {
            let position = (row.due_ms, row.seq);
            let Some(lane) = self.find_lane(row.lane).filter(|lane| open.contains(lane)) else { continue };
            let is_left = self.lane(lane).more_from.is_some_and(|from| position >= from);
            if !is_left || self.by_seq.contains_key(&row.seq) {
                continue;
            }
            let has_room = self.has_room(row.size as usize);
            if has_room && self.fits(lane, row.size) {
                chosen.push(self.add(*row, None, false));
            } else {
                self.was_full |= !has_room;
                self.leave(lane, Some(position));
                if has_room {
                    // It is as full as it can be, and is looked after again when a message leaves it.
                    self.needy.remove(&(position, lane));
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

    /// The lane's first message goes out, if it can.
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

    /// It has its outcome. It stays known until [`Window::forget`]; where it was not delivered, its lane waits for that.
    pub(crate) fn end(&mut self, slot: Slot, outcome: Outcome) {
        let entry = self.entry_mut(slot);
        let (position, lane, size, state) = (entry.position(), entry.lane, entry.size as usize, entry.state);
        entry.state = State::Over;
        entry.outcome = Some(outcome);
        entry.body = None;
        if let Some(lane) = lane {
            let it = self.lane_mut(lane);
            if it.in_flight == Some(slot) {
                it.in_flight = None;
            } else if state != State::Leaving {
                it.remove(position, size);
            }
            if outcome != Outcome::Delivered {
                it.uncommitted += 1;
            }
            self.look_after(lane);
        }
    }

    /// Its outcome is committed. The lane that may go on now, if it waited for that.
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

    /// Forgets a lane of which nothing is left.
    pub(crate) fn tidy(&mut self, lane: u32) {
        let it = self.lane(lane);
        if it.is_unused() && self.lane_numbers.get(&it.number) == Some(&lane) {
            let number = it.number;
            self.lane_numbers.remove(&number);
            self.free_lanes.push(lane);
        }
    }

    /// What is left of lanes in the store, by the number of the lane, where it changed since the last call.
    pub(crate) fn take_changed_lanes(&mut self) -> impl Iterator<Item = (i64, Option<Position>)> {
        std::mem::take(&mut self.changed).into_iter()
    }

    fn number(&self, lane: Option<i64>) -> Option<i64> {
        if self.is_global { Some(0) } else { lane }
    }

    fn find_lane(&self, lane: Option<i64>) -> Option<u32> {
        self.lane_numbers.get(&self.number(lane)?).copied()
    }

    /// The same; of a paused one, which nothing else may be known of, it is made.
    fn known_lane(&mut self, lane: Option<i64>) -> Option<u32> {
        let number = self.number(lane)?;
        if self.paused.contains(&number) { Some(self.open_lane(number)) } else { self.find_lane(lane) }
    }

    fn fits(&self, lane: u32, size: u32) -> bool {
        let it = self.lane(lane);
        if it.is_paused {
            return false;
        }
        self.is_global
            || it.len() == 0
            || (it.len() < self.bounds.lane_messages && it.size + size as usize <= self.bounds.lane_bytes)
    }

    fn add(&mut self, row: Waiting, body: Option<Body>, is_near: bool) -> Slot {
        let lane = self.number(row.lane).map(|number| self.open_lane(number));
        let entry = Entry {
            seq: row.seq,
            due_ms: row.due_ms,
            lane,
            size: row.size,
            attempts: row.attempts,
            state: State::Held,
            is_near,
            partition: 0,
            redelivered: row.redelivered,
            is_noted: false,
            was_sent: false,
            is_unanswered: false,
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
        if let Some(lane) = lane {
            self.lane_mut(lane).insert((row.due_ms, row.seq), slot, row.size as usize);
        }
        slot
    }

    fn open_lane(&mut self, number: i64) -> u32 {
        if let Some(lane) = self.lane_numbers.get(&number) {
            return *lane;
        }
        let mut new = Lane::new(number, self.is_global);
        new.is_paused = self.paused.contains(&number);
        let lane = if let Some(lane) = self.free_lanes.pop() {
            self.lanes[lane as usize] = new;
            lane
        } else {
            self.lanes.push(new);
            self.lanes.len() as u32 - 1
        };
        self.lane_numbers.insert(number, lane);
        lane
    }

    fn remove(&mut self, slot: Slot) {
        let entry = self.entries[slot as usize].take().expect("the slot is taken");
        self.free.push(slot);
        self.by_seq.remove(&entry.seq);
        self.bytes -= entry.size as usize;
        if let Some(lane) = entry.lane {
            self.tidy(lane);
        }
    }
}

#[cfg(test)]
mod tests;
