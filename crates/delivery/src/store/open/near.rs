//! Knows the *near* messages: open messages that went into memory when they were accepted, without a row in
//! `waiting`.
//!
//! A near message is known to be open because the ledger has no row for it. The floor limits how many rows are read
//! after a crash. Every open near message has `seq >= floor.seq`. The ledger's rows for messages from there on have
//! `n > floor.n`. Messages are counted in chunks of neighbouring numbers. The floor is the start of the oldest chunk
//! in use: a chunk with an open near message, or with a finished one whose payload is still in `bodies`.
//!
//! A near message is *finished* from its outcome until its payload is deleted. When no message of a chunk is open,
//! the payloads of the chunk are deleted by ranges: whole pages at once. In a chunk of large payloads, each payload
//! is deleted as soon as its message is finished.
//!
//! Example, in chunks of 4: messages 1 to 6 are near, 7 is held. 1, 2 and 4 are finished. 3 is open, so the floor is
//! 1. When 3 is finished, the payloads 1 to 4 are deleted as one range, and the floor is 5.

use std::collections::VecDeque;

const WORDS: usize = 32; // 2,048 bits
/// If a chunk has more bytes of payload than this, deleting does not wait until all its messages are finished.
const HEAVY: u64 = 8 << 20;

/// Where the near messages begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Floor {
    pub(in crate::store) seq: i64,
    pub(in crate::store) n: i64,
}

#[derive(Default)]
struct Bits([u64; WORDS]);

impl Bits {
    fn has(&self, place: usize) -> bool {
        self.0[place / 64] & (1 << (place % 64)) != 0
    }

    fn set(&mut self, place: usize) {
        self.0[place / 64] |= 1 << (place % 64);
    }

    fn clear(&mut self, place: usize) {
        self.0[place / 64] &= !(1 << (place % 64));
    }

    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The positions of all set bits, ascending.
    fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(number, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let place = (left != 0).then(|| number * 64 + left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(place)
            })
        })
    }
}

struct Chunk {
    /// The last row of the ledger before the chunk's first message was accepted.
    n_before: i64,
    open: usize,
    is_open: Bits,
    is_finished: Bits,
    has_finished: bool,
    bytes: u64,
}

/// The near messages, by chunk. A chunk takes about 600 bytes.
pub(in crate::store) struct Near {
    chunk_len: usize,
    /// The number of the first message of the first chunk.
    first_seq: i64,
    chunks: VecDeque<Chunk>,
}

impl Near {
    /// Starts without near messages. `next_seq` is the number of the next message, and `last_n` the last row of the
    /// ledger.
    pub(in crate::store) fn new(chunk_len: usize, next_seq: i64, last_n: i64) -> Self {
        let mut near = Self { chunk_len: chunk_len.clamp(1, WORDS * 64), first_seq: next_seq, chunks: VecDeque::new() };
        near.push(last_n);
        near
    }

    fn push(&mut self, n_before: i64) {
        self.chunks.push_back(Chunk {
            n_before,
            open: 0,
            is_open: Bits::default(),
            is_finished: Bits::default(),
            has_finished: false,
            bytes: 0,
        });
    }

    fn place(&self, seq: i64) -> Option<(usize, usize)> {
        let from_first = usize::try_from(seq - self.first_seq).ok()?;
        let chunk = from_first / self.chunk_len;
        (chunk < self.chunks.len()).then_some((chunk, from_first % self.chunk_len))
    }

    /// Prepares for a new message number. `last_n` is the last row of the ledger by now. Call it in ascending order.
    pub(in crate::store) fn begin(&mut self, seq: i64, last_n: i64) {
        while self.place(seq).is_none() {
            self.push(last_n);
        }
    }

    /// Adds a near message with a payload of `bytes`.
    pub(in crate::store) fn add(&mut self, seq: i64, bytes: usize) {
        let (chunk, place) = self.place(seq).expect("its chunk was begun");
        let chunk = &mut self.chunks[chunk];
        chunk.is_open.set(place);
        chunk.open += 1;
        chunk.bytes += bytes as u64;
    }

    /// Whether the message is open and near.
    pub(in crate::store) fn has(&self, seq: i64) -> bool {
        self.place(seq).is_some_and(|(chunk, place)| self.chunks[chunk].is_open.has(place))
    }

    /// Notes that a message is not near any more, but still needs its payload. Returns whether it was near.
    pub(in crate::store) fn hold(&mut self, seq: i64) -> bool {
        self.take(seq).is_some()
    }

    /// Notes that a message has its outcome. Returns whether it was near.
    pub(in crate::store) fn finish(&mut self, seq: i64) -> bool {
        let Some((chunk, place)) = self.take(seq) else { return false };
        self.chunks[chunk].is_finished.set(place);
        self.chunks[chunk].has_finished = true;
        true
    }

    fn take(&mut self, seq: i64) -> Option<(usize, usize)> {
        let (number, place) = self.place(seq)?;
        let chunk = &mut self.chunks[number];
        if !chunk.is_open.has(place) {
            return None;
        }
        chunk.is_open.clear(place);
        chunk.open -= 1;
        Some((number, place))
    }

    /// Forgets the oldest chunks if nothing is left of them. Returns the new floor. `next_seq` is the number of the
    /// next message, and `last_n` the last row of the ledger.
    pub(in crate::store) fn floor(&mut self, next_seq: i64, last_n: i64) -> Floor {
        while self.chunks[0].open == 0 && !self.chunks[0].has_finished {
            self.chunks.pop_front();
            self.first_seq += self.chunk_len as i64;
            if self.chunks.is_empty() {
                self.first_seq = next_seq; // moves the floor on, even if all messages are held
                self.push(last_n);
                break;
            }
        }
        Floor { seq: self.first_seq, n: self.chunks[0].n_before }
    }

    /// Near messages in chunks that are more than `most` chunks old, or that began before the ledger's row `old_n`
    /// was written.
    pub(in crate::store) fn stragglers(&self, most: usize, old_n: i64) -> Vec<i64> {
        let old = self.chunks.len().saturating_sub(most);
        let mut found = Vec::new();
        for (number, chunk) in self.chunks.iter().enumerate() {
            if number >= old && chunk.n_before >= old_n {
                break; // as are all following chunks
            }
            let first_seq = self.first_seq + (number * self.chunk_len) as i64;
            found.extend(chunk.is_open.places().map(|place| first_seq + place as i64));
        }
        found
    }

    /// The next payloads to delete, all in one chunk, as ranges with both ends; and whether they may be large.
    /// `is_idle` includes the last chunk, which is not full.
    pub(in crate::store) fn finished(&self, is_idle: bool) -> Option<(Vec<(i64, i64)>, bool)> {
        let last = self.chunks.len() - 1;
        let is_due = |(number, chunk): &(usize, &Chunk)| {
            let is_heavy = chunk.bytes > HEAVY;
            chunk.has_finished && (is_heavy || chunk.open == 0 && (*number < last || is_idle))
        };
        let (number, chunk) = self.chunks.iter().enumerate().find(is_due)?;
        let first_seq = self.first_seq + (number * self.chunk_len) as i64;
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        for place in chunk.is_finished.places() {
            let seq = first_seq + place as i64;
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == seq => *last = seq,
                _ => ranges.push((seq, seq)),
            }
        }
        Some((ranges, chunk.bytes > HEAVY))
    }

    /// Notes that the payloads of this range are deleted. The range is part of a range from `finished`.
    pub(in crate::store) fn deleted(&mut self, first: i64, last: i64) {
        for seq in first..=last {
            if let Some((chunk, place)) = self.place(seq) {
                self.chunks[chunk].is_finished.clear(place);
            }
        }
        if let Some((chunk, _)) = self.place(first) {
            self.chunks[chunk].has_finished = self.chunks[chunk].is_finished.count() > 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: i64) -> Near {
        let mut near = Near::new(4, 1, 0);
        for seq in 1..=count {
            near.begin(seq, seq * 10);
            near.add(seq, 1);
        }
        near
    }

    #[test]
    fn the_floor_is_the_oldest_chunk_with_an_open_message_as_in_the_example() {
        let mut near = filled(7);
        assert!(near.hold(7));
        for seq in [1, 2, 4] {
            assert!(near.finish(seq));
        }
        assert_eq!(near.floor(8, 9), Floor { seq: 1, n: 0 });
        assert_eq!(near.finished(true), None);
        assert!(near.finish(3));
        assert_eq!(near.finished(false), Some((vec![(1, 4)], false)));
        assert_eq!(near.floor(8, 9), Floor { seq: 1, n: 0 }, "the payloads are still there");
        near.deleted(1, 4);
        assert_eq!(near.floor(8, 9), Floor { seq: 5, n: 50 });
    }

    #[test]
    fn a_range_ends_at_a_message_that_was_held() {
        let mut near = filled(5);
        assert!(near.hold(2));
        assert!(!near.hold(2));
        assert!(!near.finish(2));
        for seq in [1, 3, 4] {
            assert!(near.finish(seq));
        }
        assert_eq!(near.finished(false), Some((vec![(1, 1), (3, 4)], false)));
    }

    #[test]
    fn the_last_chunk_is_cleared_only_when_there_is_nothing_else_to_do() {
        let mut near = filled(3);
        for seq in 1..=3 {
            near.finish(seq);
        }
        assert_eq!(near.finished(false), None);
        assert_eq!(near.finished(true), Some((vec![(1, 3)], false)));
        near.deleted(1, 3);
        assert_eq!(near.finished(true), None);
    }

    #[test]
    fn large_payloads_do_not_wait_for_their_chunk() {
        let mut near = filled(2);
        near.begin(3, 0);
        near.add(3, 9 << 20);
        near.finish(1);
        assert_eq!(near.finished(false), Some((vec![(1, 1)], true)));
    }

    #[test]
    fn the_floor_is_the_next_message_where_no_near_one_is_left() {
        let mut near = filled(2);
        assert!(near.hold(1) && near.hold(2));
        assert_eq!(near.floor(3, 70), Floor { seq: 3, n: 70 });
        near.begin(3, 80);
        near.add(3, 1);
        assert_eq!(near.floor(4, 90), Floor { seq: 3, n: 70 });
    }

    #[test]
    fn what_is_open_in_old_chunks_is_a_straggler() {
        let mut near = filled(13);
        for seq in [1, 2, 3, 5, 6] {
            near.finish(seq);
        }
        assert_eq!(near.stragglers(4, 0), Vec::<i64>::new());
        assert_eq!(near.stragglers(2, 0), [4, 7, 8]);
        assert_eq!(near.stragglers(4, 90), [4, 7, 8], "the third chunk was begun after row 90");
        assert_eq!(near.stragglers(4, 91), [4, 7, 8, 9, 10, 11, 12]);
        assert!(near.has(4) && !near.has(3) && !near.has(99) && !near.has(0));
    }
}
