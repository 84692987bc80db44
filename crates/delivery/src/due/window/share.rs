//! The part of the window that each destination has for itself (rule D23): how far the store was read, and how much is in
//! memory.

use super::Window;
use super::entry::{Bounds, Share};
use crate::store::Position;

impl Window {
    pub(crate) fn shares(&self) -> std::ops::Range<u32> {
        0..self.shares.len() as u32
    }

    pub(crate) fn share(&self, share: u32) -> &Share {
        &self.shares[share as usize]
    }

    pub(crate) fn share_mut(&mut self, share: u32) -> &mut Share {
        &mut self.shares[share as usize]
    }

    /// The share of the destination with this number. A new one is read from the start.
    pub(crate) fn open_share(&mut self, id: i64) -> u32 {
        if id == 0 {
            return 0;
        }
        let next = self.shares.len() as u32;
        let share = *self.share_numbers.entry(id).or_insert(next);
        if share == next {
            let cursor = self.shares[0].cursor.map(|_| (i64::MIN, 0));
            self.shares.push(Share { cursor, ..Share::new(id) });
        }
        share
    }

    /// The share of this destination, if the window knows it.
    pub(crate) fn share_numbered(&self, id: i64) -> Option<u32> {
        self.share_numbers.get(&id).copied()
    }

    /// Whether messages of the destination with this number are in memory.
    pub(crate) fn has_some_of(&self, id: i64) -> bool {
        self.share_numbered(id).is_some_and(|share| self.share(share).messages > 0)
    }

    /// From now on messages are read.
    pub(crate) fn start(&mut self) {
        for share in &mut self.shares {
            share.cursor.get_or_insert((i64::MIN, 0));
        }
    }

    /// Where each share is read to that has moved since the last call.
    pub(crate) fn take_moved_cursors(&mut self) -> Vec<(i64, Position)> {
        let moved =
            self.shares.iter_mut().filter_map(|it| std::mem::take(&mut it.has_moved).then_some((it.id, it.cursor?)));
        moved.collect()
    }

    /// Whether all that is due until then was read.
    pub(crate) fn have_all_read(&self, until_ms: i64) -> bool {
        self.shares.iter().all(|it| it.cursor.is_some_and(|(due_ms, _)| due_ms >= until_ms))
    }

    pub(crate) fn has_needy_lanes(&self) -> bool {
        self.shares.iter().any(Share::has_needy_lanes)
    }

    /// Whether messages of the share up to there were read into memory.
    pub(crate) fn is_read(&self, share: u32, position: Position) -> bool {
        self.share(share).cursor.is_some_and(|cursor| position <= cursor)
    }

    /// Whether less than four fifths of the bounds are used, if so many bytes are added, and the share has a part left.
    pub(crate) fn has_room_ahead(&self, share: u32, bytes: usize) -> bool {
        let Bounds { messages, bytes: most, .. } = self.bounds;
        self.has_room_within(share, bytes, (messages / 5 * 4, most / 5 * 4))
    }

    pub(crate) fn has_room(&self, share: u32, bytes: usize) -> bool {
        self.has_room_within(share, bytes, (self.bounds.messages, self.bounds.bytes))
    }

    /// A share among others may have as much as is free: so there is always room for one more, and what many have is about
    /// equal (the dynamic threshold of Choudhury and Hahne, for queues that share a buffer).
    fn has_room_within(&self, share: u32, bytes: usize, most: (usize, usize)) -> bool {
        let used = (self.len(), self.queued_bytes + self.bytes + bytes);
        if self.len() == 0 {
            return true;
        }
        if used.0 >= most.0 || used.1 > most.1 {
            return false;
        }
        let it = self.share(share);
        let is_within = it.messages < most.0 - used.0 && it.bytes + bytes <= most.1 - used.1;
        self.shares.len() == 1 || it.messages == 0 || is_within
    }

    pub(super) fn share_takes(&mut self, share: u32, bytes: usize) {
        let it = self.share_mut(share);
        (it.messages, it.bytes) = (it.messages + 1, it.bytes + bytes);
    }

    pub(super) fn share_gives(&mut self, share: u32, bytes: usize) {
        let it = self.share_mut(share);
        (it.messages, it.bytes) = (it.messages - 1, it.bytes - bytes);
    }
}
