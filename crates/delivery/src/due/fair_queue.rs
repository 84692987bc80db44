//! The messages that can be sent to one destination. Its tenants take turns (rule D24).
//!
//! - Each share has a queue of its own, in the order in which its messages became ready. A share in turn gives as many
//!   messages as its weight when the turn begins, and then goes to the end of the line (weighted round robin).
//! - A share whose queue was empty goes to the end of the line. So its message waits for one turn of each other share, and
//!   not for what waits there.
//! - A share that is held back is not in the line, and keeps its messages.
//! - A step takes the same time, however many shares are in the line. Only a message that does not come from its front, or goes
//!   back to it, makes a walk through the line. Messages without a tenant are looked up nowhere.
//!
//! Example: share 1 has a, b, c and the weight 2, share 2 has x, y and the weight 1. They go out as a, b, x, c, y.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::lanes::Slot;

/// An entry in a queue for sending.
#[derive(Clone, Copy, Debug)]
pub(super) enum Offer {
    Lane(u32),
    /// A message without a key, or a message that is tried again.
    Message(Slot, i64),
}

#[derive(Debug, Default)]
pub(super) struct FairQueue {
    /// The share of the messages without a tenant.
    home: u32,
    plain: ShareQueue,
    /// None of them is empty.
    of_tenants: FxHashMap<u32, ShareQueue>,
    /// The shares that have messages and are not held back. The first one is in turn.
    line: VecDeque<u32>,
    len: usize,
}

#[derive(Debug, Default)]
struct ShareQueue {
    offers: VecDeque<Offer>,
    /// How many more messages it gives before the next share is in turn. 0: its turn has not begun.
    left: u32,
    is_held: bool,
}

impl FairQueue {
    pub(super) fn of(home: u32) -> Self {
        Self { home, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The shares that have messages, held back or not. Some come twice.
    pub(super) fn shares(&self) -> impl Iterator<Item = u32> {
        self.line.iter().chain(self.of_tenants.keys()).copied()
    }

    pub(super) fn has_some_of(&self, share: u32) -> bool {
        self.of_tenants.contains_key(&share)
    }

    /// Whether there is a message that is not held back.
    pub(super) fn has_next(&self) -> bool {
        !self.line.is_empty()
    }

    /// All messages, those of one share after the other.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Offer> {
        self.plain.offers.iter().chain(self.of_tenants.values().flat_map(|it| &it.offers))
    }

    pub(super) fn push_back(&mut self, share: u32, offer: Offer) {
        if self.queue(share).offers.is_empty() && !self.queue(share).is_held {
            self.line.push_back(share);
        }
        self.queue(share).offers.push_back(offer);
        self.len += 1;
    }

    /// The message comes next, unless its share is held back. It counts as one of a turn of its share.
    pub(super) fn push_front(&mut self, share: u32, offer: Offer) {
        if self.line.front() != Some(&share) && !self.queue(share).is_held {
            self.line.retain(|it| *it != share);
            self.line.push_front(share);
        }
        let queue = self.queue(share);
        queue.offers.push_front(offer);
        queue.left += 1;
        self.len += 1;
    }

    /// The first message for which this holds, of those that come next: its share and its place there. Looks at `most`.
    pub(super) fn find(&self, most: usize, holds: impl Fn(&Offer) -> bool) -> Option<(u32, usize)> {
        let of = |share: u32| self.get(share).offers.iter().enumerate().map(move |(place, it)| (share, place, it));
        let mut next = self.line.iter().copied().flat_map(of).take(most);
        next.find(|(.., offer)| holds(offer)).map(|(share, place, _)| (share, place))
    }

    /// The share is not in the line until [`FairQueue::release`].
    pub(super) fn hold(&mut self, share: u32) {
        self.queue(share).is_held = true;
        self.leave_line(share);
    }

    fn leave_line(&mut self, share: u32) {
        if self.line.front() == Some(&share) {
            self.line.pop_front();
        } else {
            self.line.retain(|it| *it != share);
        }
    }

    pub(super) fn release(&mut self, share: u32) {
        if let Some(queue) = self.of_tenants.get_mut(&share).filter(|it| it.is_held) {
            queue.is_held = false;
            self.line.push_back(share);
        }
    }

    /// Takes a message that [`FairQueue::find`] has found. `weight`: how many messages the share gives, if its turn begins.
    pub(super) fn remove(&mut self, (share, place): (u32, usize), weight: u32) -> Option<Offer> {
        let queue = self.queue(share);
        let offer = queue.offers.remove(place)?;
        queue.left = if queue.left == 0 { weight } else { queue.left } - 1;
        let (is_over, is_empty) = (queue.left == 0, queue.offers.is_empty());
        if is_empty {
            queue.left = 0;
        }
        self.len -= 1;
        if is_over || is_empty {
            self.leave_line(share);
            if !is_empty {
                self.line.push_back(share);
            } else if share != self.home {
                self.of_tenants.remove(&share);
            }
        }
        Some(offer)
    }

    /// Takes all messages of the share.
    pub(super) fn take_all(&mut self, share: u32) -> VecDeque<Offer> {
        self.leave_line(share);
        let plain = (share == self.home).then(|| std::mem::take(&mut self.plain));
        let offers = plain.or_else(|| self.of_tenants.remove(&share)).unwrap_or_default().offers;
        self.len -= offers.len();
        offers
    }

    fn get(&self, share: u32) -> &ShareQueue {
        if share == self.home { &self.plain } else { &self.of_tenants[&share] }
    }

    fn queue(&mut self, share: u32) -> &mut ShareQueue {
        if share == self.home { &mut self.plain } else { self.of_tenants.entry(share).or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(queue: &mut FairQueue) -> Vec<i64> {
        let weight = |share: u32| if share == 1 { 2 } else { 1 };
        let next = std::iter::from_fn(|| {
            let place = queue.find(1, |_| true)?;
            queue.remove(place, weight(place.0))
        });
        next.map(|offer| if let Offer::Message(_, seq) = offer { seq } else { panic!("{offer:?}") }).collect()
    }

    #[test]
    fn shares_take_turns_by_their_weights__d24() {
        let mut queue = FairQueue::of(1);
        for (share, seq) in [(1, 10), (1, 11), (1, 12), (2, 20), (2, 21)] {
            queue.push_back(share, Offer::Message(0, seq));
        }
        assert_eq!((queue.len(), queue.iter().count()), (5, 5));
        assert_eq!(messages(&mut queue), [10, 11, 20, 12, 21]);
        assert!(queue.len() == 0 && !queue.has_next() && queue.of_tenants.is_empty());
    }

    #[test]
    fn what_comes_to_a_share_without_messages_waits_for_one_turn_of_the_others__d24() {
        let mut queue = FairQueue::of(0);
        for seq in 0..1_000 {
            queue.push_back(2, Offer::Message(0, seq));
        }
        queue.push_back(3, Offer::Message(0, 1_000));
        assert_eq!(messages(&mut queue)[..3], [0, 1_000, 1]);
    }

    #[test]
    fn what_is_put_in_front_comes_next__d24() {
        let mut queue = FairQueue::of(0);
        for (share, seq) in [(0, 1), (0, 2), (2, 3), (2, 4)] {
            queue.push_back(share, Offer::Message(0, seq));
        }
        queue.push_front(2, Offer::Message(0, 5));
        assert_eq!(messages(&mut queue), [5, 1, 3, 2, 4]);
    }

    #[test]
    fn a_message_that_fits_is_found_in_the_share_in_turn_first__d24() {
        let mut queue = FairQueue::of(0);
        for (share, seq) in [(0, 1), (0, 2), (2, 3)] {
            queue.push_back(share, Offer::Message(0, seq));
        }
        let is = |wanted: i64| move |offer: &Offer| matches!(offer, Offer::Message(_, seq) if *seq == wanted);
        assert_eq!(
            (queue.find(2, is(2)), queue.find(2, is(3)), queue.find(3, is(3))),
            (Some((0, 1)), None, Some((2, 0)))
        );
        assert!(matches!(queue.remove((2, 0), 1), Some(Offer::Message(0, 3))));
        assert_eq!(messages(&mut queue), [1, 2]);
    }
}
