//! Strikes: how often the process ended while a message may have been sent (rule D6). A message that ends the process is
//! not tried for ever, and a message that was only sent beside it is not given up.
//!
//! | strikes | the message goes out |
//! |---|---|
//! | 0, 1 | as any other |
//! | 2 | in a *group*: at most 32 such messages are out, and each is *noted* on disk before |
//! | 3, 4, 5 | *alone*, noted: no other send is out, except those that are out for more than a second |
//! | 6 | not any more: it is a dead letter |
//!
//! - The next open of the store gives the strikes: `store/open/may_have_arrived.rs`. From two strikes on, only noted messages get
//!   one.
//! - Of several messages that go alone, the one with the fewest strikes goes first. A message that was alone when the process
//!   was killed from outside is therefore the last one after the next start.
//! - From its send on, a message that is alone holds the others back for 1, 2 or 4 seconds. Then the note is taken back, the
//!   others go on beside it, and no other message goes alone for as long again. If the process ends later than that, the
//!   message gets no strike.
//! - A message of a group that is out for more than a second hangs, and makes room for the next one.
//! - Any answer clears the strikes, a time-out too.
//! - Of each destination those that go out in a group are in lines of their own, and the lines take turns: one that is paused,
//!   or has no place, holds up no other.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use super::lanes::Slot;

/// With so many strikes a message goes out in a group.
pub(crate) const IN_GROUP: u32 = 2;
/// With so many it goes out alone.
const ALONE: u32 = 3;
/// So many ends of the process while it is alone make it a dead letter.
const ENDS: u32 = 3;
/// How many messages with two strikes are out at most.
pub(crate) const GROUP: usize = 32;
/// A send that is out for longer does not keep another from going alone: it hangs.
pub(crate) const LONG_US: u64 = 1_000_000;

/// Whether a message with so many strikes is given up.
pub(crate) fn is_given_up(strikes: u32) -> bool {
    strikes >= ALONE + ENDS
}

/// How long a message with so many strikes holds the others back.
fn hold_us(strikes: u32) -> u64 {
    LONG_US << strikes.saturating_sub(ALONE).min(ENDS)
}

/// The message that is alone.
#[derive(Debug)]
pub(crate) struct Alone {
    pub(crate) slot: Slot,
    pub(crate) seq: i64,
    /// Until then it holds the others back. Its send sets it anew.
    pub(crate) until_us: u64,
    pub(crate) hold_us: u64,
    /// Its note is on disk, and it was not taken for its send.
    pub(crate) is_ready: bool,
}

/// The due messages in memory with two strikes or more.
#[derive(Debug, Default)]
pub(crate) struct Strikes {
    /// Messages without a note, each with its strikes. No line is empty.
    waiting: BTreeMap<Line, VecDeque<(Slot, i64, u32)>>,
    /// The line whose message was noted last.
    last: Option<Line>,
    /// Those that are noted, and have no answer.
    noted: FxHashMap<i64, Noted>,
    pub(crate) alone: Option<Alone>,
    /// No message goes alone before this time.
    rests_until_us: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Noted {
    /// It was put into a queue for sending since then.
    is_offered: bool,
    sent_us: Option<u64>,
}

/// Messages that wait in one order. The number is that of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    Alone,
    Fresh(u32),
    InDoubt(u32),
}

impl Strikes {
    pub(crate) fn wait(&mut self, share: u32, slot: Slot, seq: i64, strikes: u32, is_in_doubt: bool) {
        let line = match (strikes >= ALONE, is_in_doubt) {
            (true, _) => Line::Alone,
            (false, true) => Line::InDoubt(share),
            (false, false) => Line::Fresh(share),
        };
        let waiting = self.waiting.entry(line).or_default();
        let place = waiting.partition_point(|(_, _, other)| *other <= strikes);
        waiting.insert(place, (slot, seq, strikes));
    }

    /// The first message of each line. The line whose turn it is comes first.
    pub(crate) fn fronts(&self) -> Vec<(Line, Slot, i64)> {
        let is_later = |line: &Line| self.last.is_none_or(|last| *line > last);
        let front = |(line, waiting): (&Line, &VecDeque<(Slot, i64, u32)>)| {
            waiting.front().map(|(slot, seq, _)| (*line, *slot, *seq))
        };
        let (later, others): (Vec<_>, Vec<_>) = self.waiting.iter().filter_map(front).partition(|it| is_later(&it.0));
        [later, others].concat()
    }

    /// The first message that goes alone for which this holds.
    pub(crate) fn find_alone(&self, holds: impl Fn(Slot, i64) -> bool) -> Option<(Slot, i64)> {
        let mut alone = self.waiting.get(&Line::Alone)?.iter().map(|(slot, seq, _)| (*slot, *seq));
        alone.find(|(slot, seq)| holds(*slot, *seq))
    }

    pub(crate) fn has(&self, line: Line) -> bool {
        self.waiting.contains_key(&line)
    }

    pub(crate) fn pop(&mut self, line: Line) {
        let Some(waiting) = self.waiting.get_mut(&line) else { return };
        waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&line);
        }
    }

    /// All that are noted, and have no answer.
    pub(crate) fn noted(&self) -> impl Iterator<Item = i64> {
        self.noted.keys().copied()
    }

    pub(crate) fn has_any(&self) -> bool {
        !self.noted.is_empty() || !self.waiting.is_empty()
    }

    pub(crate) fn is_noted(&self, seq: i64) -> bool {
        !self.noted.is_empty() && self.noted.contains_key(&seq)
    }

    /// Notes the first message of a line.
    pub(crate) fn note(&mut self, line: Line, seq: i64) {
        self.pop(line);
        self.last = Some(line);
        self.noted.insert(seq, Noted::default());
    }

    /// How many noted messages of a group are not sent, or not for long.
    pub(crate) fn young(&self, now_us: u64) -> usize {
        let is_young = |it: &&Noted| it.sent_us.is_none_or(|sent_us| now_us < sent_us.saturating_add(LONG_US));
        self.noted.values().filter(is_young).count()
    }

    /// The message is sent. Returns when this has to be looked at again.
    pub(crate) fn sent(&mut self, seq: i64, now_us: u64) -> Option<u64> {
        self.noted.get_mut(&seq)?.sent_us = Some(now_us);
        let Some(alone) = self.alone.as_mut().filter(|alone| alone.seq == seq) else {
            return Some(now_us.saturating_add(LONG_US));
        };
        alone.until_us = now_us.saturating_add(alone.hold_us);
        Some(alone.until_us)
    }

    /// Whether a message may go alone.
    pub(crate) fn may_go_alone(&self, now_us: u64) -> bool {
        self.alone.is_none() && now_us >= self.rests_until_us
    }

    /// The message that is alone has held the others back long enough. Returns until when no other one goes alone.
    pub(crate) fn rest(&mut self, hold_us: u64, now_us: u64) -> u64 {
        self.rests_until_us = now_us.saturating_add(hold_us);
        self.rests_until_us
    }

    /// The message goes alone, and is noted for that.
    pub(crate) fn note_alone(&mut self, slot: Slot, seq: i64, strikes: u32, now_us: u64) -> u64 {
        let hold_us = hold_us(strikes);
        let until_us = now_us.saturating_add(hold_us);
        if let Some(waiting) = self.waiting.get_mut(&Line::Alone) {
            waiting.retain(|(_, other, _)| *other != seq); // they are few
        }
        self.waiting.retain(|line, waiting| *line != Line::Alone || !waiting.is_empty());
        self.noted.insert(seq, Noted::default());
        self.alone = Some(Alone { slot, seq, until_us, hold_us, is_ready: false });
        until_us
    }

    /// The note is on disk, so the message can go out. Returns whether it has to be put into its queue.
    pub(crate) fn is_on_disk(&mut self, seq: i64) -> bool {
        let Some(noted) = self.noted.get_mut(&seq) else { return false };
        if let Some(alone) = self.alone.as_mut().filter(|alone| alone.seq == seq) {
            alone.is_ready = true;
            return false;
        }
        !std::mem::replace(&mut noted.is_offered, true)
    }

    /// The message has an answer, or its note is taken back. `None`: it was not noted. `Some(true)`: it was put into its
    /// queue since then.
    pub(crate) fn forget(&mut self, seq: i64) -> Option<bool> {
        if self.noted.is_empty() {
            return None;
        }
        self.alone.take_if(|alone| alone.seq == seq);
        self.noted.remove(&seq).map(|noted| noted.is_offered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_module_holds__d6() {
        let given_up: Vec<u32> = (0..8).filter(|strikes| is_given_up(*strikes)).collect();
        assert_eq!(given_up, [6, 7]);
        assert_eq!([3, 4, 5].map(hold_us), [1_000_000, 2_000_000, 4_000_000]);
        let mut strikes = Strikes::default();
        for (count, is_in_doubt, line) in
            [(2, false, Line::Fresh(1)), (2, true, Line::InDoubt(1)), (3, false, Line::Alone), (5, true, Line::Alone)]
        {
            strikes.wait(1, 7, 70, count, is_in_doubt);
            assert_eq!(strikes.fronts(), [(line, 7, 70)]);
            strikes.pop(line);
            assert!(!strikes.has_any());
        }
    }

    #[test]
    fn the_lines_of_a_group_take_turns__d6_d23() {
        let mut strikes = Strikes::default();
        for (share, seq) in [(1, 10), (1, 11), (1, 12), (2, 20), (2, 21)] {
            strikes.wait(share, 7, seq, 2, false);
        }
        let mut noted = Vec::new();
        while let Some((line, _, seq)) = strikes.fronts().first().copied() {
            strikes.note(line, seq);
            noted.push(seq);
        }
        assert_eq!(noted, [10, 20, 11, 21, 12]);
    }

    #[test]
    fn what_is_alone_is_noted_until_it_is_forgotten__d6() {
        let mut strikes = Strikes::default();
        strikes.note(Line::Fresh(0), 1);
        assert_eq!(strikes.note_alone(7, 70, 4, 1_000), 2_001_000);
        assert!(strikes.is_noted(70) && strikes.alone.is_some());
        assert!(strikes.is_on_disk(1) && !strikes.is_on_disk(1), "it is put into its queue once");
        assert!(!strikes.is_on_disk(70) && strikes.alone.as_ref().unwrap().is_ready);
        assert_eq!((strikes.forget(1), strikes.forget(70), strikes.forget(70)), (Some(true), Some(false), None));
        assert!(strikes.alone.is_none() && !strikes.has_any());
    }
}
