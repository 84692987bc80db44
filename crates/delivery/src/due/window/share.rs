//! The part of the window that each destination, and each tenant there, has for itself (rules D23, D24): how far the store was read, and how much is in
//! memory.
//!
//! - A share comes into memory when a message of it is due within the horizon, or is tried again. It leaves
//!   when it has nothing to do: see [`Dispatcher::forget_idle`](crate::due::dispatcher::Dispatcher::forget_idle).
//! - No work is done for all shares, but for those that have something to do. [`Window::look_at`] makes the loader look for
//!   messages of one.

use rustc_hash::FxHashSet;

use super::Window;
use super::entry::{Look, Share};
use crate::message::shares::destination_in;
use crate::store::Position;

/// How many shares a load looks at: of those that have something new, and of those for which there was no room.
const LOOKED_AT: (usize, usize) = (128, 32);

/// The fewest rows that are read of a share at a time.
const LEAST_READ: usize = 32;

impl Window {
    pub(crate) fn share(&self, share: u32) -> &Share {
        &self.shares[share as usize]
    }

    pub(crate) fn share_mut(&mut self, share: u32) -> &mut Share {
        &mut self.shares[share as usize]
    }

    /// The share of the destination with this number. A new one is read from the start.
    pub(crate) fn open_share(&mut self, id: i64) -> u32 {
        if let Some(share) = self.share_numbered(id) {
            return share;
        }
        let home = Some(destination_in(id)).filter(|of| *of != id).map(|of| self.open_share(of));
        let cursor = self.shares[0].cursor.map(|_| (i64::MIN, 0));
        let new = Share { cursor, ..Share::new(id) };
        let share = if let Some(share) = self.free_shares.pop() {
            self.shares[share as usize] = new;
            share
        } else {
            self.shares.push(new);
            self.shares.len() as u32 - 1
        };
        self.share_numbers.insert(id, share);
        self.homes += usize::from(home.is_none());
        let home = home.unwrap_or(share);
        self.share_mut(share).home = home;
        self.share_mut(home).shares += 1;
        share
    }

    /// The share of this destination, if it is in memory.
    pub(crate) fn share_numbered(&self, id: i64) -> Option<u32> {
        if id == 0 { Some(0) } else { self.share_numbers.get(&id).copied() }
    }

    /// How far memory has the messages of this destination, or looks for them. `None`: it is not in memory.
    pub(crate) fn has_through(&self, id: i64) -> Option<Position> {
        let it = self.share(self.share_numbered(id)?);
        if it.look == Look::Not { it.cursor } else { Some((i64::MAX, i64::MAX)) }
    }

    /// How many named destinations are in memory.
    pub(crate) fn named_shares(&self) -> usize {
        self.share_numbers.len() - 1
    }

    /// Whether the share is of a named destination in memory, has no message there, and the loader looks for none.
    pub(crate) fn is_idle(&self, share: u32) -> bool {
        let it = self.share(share);
        share != 0
            && self.share_numbers.get(&it.id) == Some(&share)
            && it.own.0 == 0
            && it.lanes == 0
            && it.look == Look::Not
    }

    /// The share leaves memory. Returns the number of its destination.
    pub(crate) fn close_share(&mut self, share: u32) -> i64 {
        let Share { id, home, .. } = std::mem::replace(self.share_mut(share), Share::new(0));
        self.share_numbers.remove(&id);
        self.homes -= usize::from(home == share);
        self.share_mut(home).shares -= usize::from(home != share);
        self.free_shares.push(share);
        id
    }

    /// The shares in memory of the destination with this number. It looks at all.
    pub(crate) fn shares_of(&self, destination: i64) -> FxHashSet<u32> {
        let of_it = self.share_numbers.iter().filter(|(id, _)| destination_in(**id) == destination);
        of_it.map(|(_, share)| *share).collect()
    }

    /// Whether messages of the destination with this number are in memory.
    pub(crate) fn has_some_of(&self, destination: i64) -> bool {
        self.shares_of(destination).into_iter().any(|share| self.share(share).own.0 > 0)
    }

    /// From now on messages are read.
    pub(crate) fn start(&mut self) {
        for share in &mut self.shares {
            share.cursor.get_or_insert((i64::MIN, 0));
        }
    }

    pub(super) fn move_cursor(&mut self, share: u32, to: Position) {
        let it = self.share_mut(share);
        it.cursor = Some(to);
        if !std::mem::replace(&mut it.has_moved, true) {
            self.moved.push(share);
        }
    }

    /// The store has no message of the share that is due until then and not in memory, as long as the loader has not to look
    /// for some.
    pub(crate) fn none_is_due(&mut self, share: u32, until_ms: i64) {
        let it = self.share(share);
        let is_ahead = it.cursor.is_some_and(|cursor| cursor < (until_ms, i64::MAX));
        if it.look == Look::Not && is_ahead {
            self.move_cursor(share, (until_ms, i64::MAX));
            if self.share(share).has_needy_lanes() {
                self.look_at(share);
            }
        }
    }

    /// Where each share is read to that has moved since the last call.
    pub(crate) fn take_moved_cursors(&mut self) -> Vec<(i64, Position)> {
        let moved = std::mem::take(&mut self.moved).into_iter().filter_map(|share| {
            let it = self.share_mut(share);
            std::mem::take(&mut it.has_moved).then_some((it.id, it.cursor?))
        });
        moved.collect()
    }

    /// Whether all that is due until then was read, but for named destinations that the loader does not look at.
    pub(crate) fn have_all_read(&self, until_ms: i64) -> bool {
        let has_read = self.share(0).cursor.is_some_and(|(due_ms, _)| due_ms >= until_ms);
        has_read && self.shares.iter().all(|it| it.look == Look::Not)
    }

    /// The loader has to look for messages of the share. It always looks at share 0.
    pub(crate) fn look_at(&mut self, share: u32) {
        if share != 0 && !matches!(self.share(share).look, Look::Next | Look::Held) {
            self.share_mut(share).look = Look::Next;
            self.to_look_at.push_back(share);
        }
    }

    /// The loader looks for messages of the share again, if it was held. Returns whether it was.
    pub(crate) fn let_go(&mut self, share: u32) -> bool {
        let was_held = self.share(share).look == Look::Held;
        if was_held {
            self.share_mut(share).look = Look::Not;
            self.look_at(share);
        }
        was_held
    }

    /// The shares to look at with this load.
    pub(crate) fn take_looks(&mut self) -> Vec<u32> {
        self.was_full = false;
        let mut taken = vec![0];
        for (look, most) in [(Look::Next, LOOKED_AT.0), (Look::Behind, LOOKED_AT.1)] {
            let mut left = most;
            while left > 0 {
                let line = if look == Look::Next { &mut self.to_look_at } else { &mut self.behind };
                let Some(share) = line.pop_front() else { break };
                if self.share(share).look == look {
                    self.share_mut(share).look = Look::Not;
                    taken.push(share);
                    left -= 1;
                }
            }
        }
        self.was_full |= !self.behind.is_empty();
        taken
    }

    /// The loader has looked at the share, and says when to look again. Returns whether memory has all that there is. If
    /// something has happened meanwhile, it looks with its next load.
    pub(crate) fn was_looked_at(&mut self, share: u32, again: Look) -> bool {
        if share == 0 || self.share(share).look == Look::Next {
            return false;
        }
        match again {
            Look::Next => self.look_at(share),
            Look::Behind => self.behind.push_back(share),
            Look::Not | Look::Held => {}
        }
        self.share_mut(share).look = again;
        again == Look::Not
    }

    /// What the loader does with its share is no reason to look again.
    pub(crate) fn while_looking<T>(&mut self, share: u32, change: impl FnOnce(&mut Self) -> T) -> T {
        let look = self.share(share).look;
        let changed = change(self);
        self.share_mut(share).look = look;
        changed
    }

    /// Whether a load should follow at once.
    pub(crate) fn has_more_to_look_at(&mut self) -> bool {
        while self.to_look_at.front().is_some_and(|share| self.share(*share).look != Look::Next) {
            self.to_look_at.pop_front();
        }
        !self.to_look_at.is_empty()
    }

    /// Whether messages of the share up to there were read into memory.
    pub(crate) fn is_read(&self, share: u32, position: Position) -> bool {
        self.share(share).cursor.is_some_and(|cursor| position <= cursor)
    }

    /// Whether less than four fifths of the bounds are used, if so many bytes are added, and the share has a part left. One
    /// among others that has nothing in memory may use the last fifth too.
    pub(crate) fn has_room_ahead(&self, share: u32, bytes: usize) -> bool {
        let is_first = self.share_numbers.len() > 1 && self.share(share).own.0 == 0;
        self.has_room_within(share, bytes, |most| if is_first { most } else { most / 5 * 4 })
    }

    /// Whether there is room for a message that was just accepted. While others wait to be read, there is no more than for
    /// them: else those with new messages would have all the room.
    pub(super) fn has_room_for_new(&self, share: u32, bytes: usize) -> bool {
        if self.behind.is_empty() { self.has_room(share, bytes) } else { self.has_room_ahead(share, bytes) }
    }

    /// How many messages each share may read now, if those that wait to be read share what is free.
    pub(crate) fn free_among_waiting(&self) -> usize {
        (self.bounds.messages.saturating_sub(self.len()) / (self.behind.len() + 1)).max(LEAST_READ)
    }

    pub(crate) fn has_room(&self, share: u32, bytes: usize) -> bool {
        self.has_room_within(share, bytes, |most| most)
    }

    /// A destination among others may have as much as is free: so there is always room for one more, and what many have is
    /// about equal (the dynamic threshold of Choudhury and Hahne, for queues that share a buffer). The tenants of a destination
    /// share in the same way what it has left. Of the bytes, they share what no accepting takes away: else one that stands still would keep
    /// the others out while much is being accepted. While others wait to be read, it has no more than an equal part among them:
    /// else the first ones would take all that becomes free.
    fn has_room_within(&self, share: u32, bytes: usize, of: impl Fn(usize) -> usize) -> bool {
        let most = (of(self.bounds.messages), of(self.budget.most_in_window()));
        if self.len() == 0 {
            return true;
        }
        if self.len() >= most.0 || self.bytes + bytes > most.1 {
            return false;
        }
        let (it, part) = (self.share(share), of(self.budget.part()));
        let home = self.share(it.home);
        let bytes = if it.own.0 == 0 { 0 } else { bytes }; // its first one comes in, however large
        let mut free = (most.0 - self.len(), part.saturating_sub(self.bytes + bytes));
        [(home.of_all, self.homes), (it.own, home.shares)].into_iter().filter(|(_, among)| *among > 1).all(
            |(has, among)| {
                let waiting = self.behind.len().min(among - 1) + 1;
                let is_within = has.0 < free.0.min(most.0 / waiting) && has.1 + bytes <= free.1.min(part / waiting);
                free = (free.0.saturating_sub(has.0), free.1.saturating_sub(has.1));
                has.0 == 0 || is_within
            },
        )
    }

    /// Changes how many messages and bytes the share and its destination have in memory.
    pub(super) fn count_in(&mut self, share: u32, change: impl Fn((usize, usize)) -> (usize, usize)) {
        let it = self.share_mut(share);
        it.own = change(it.own);
        let home = it.home;
        self.share_mut(home).of_all = change(self.share(home).of_all);
    }
}
