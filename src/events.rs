//! The events of a recording, in order.
//!
//! Under the lock an event is 40 bytes appended to a chunk of fixed size, so no event is ever copied there. The caller takes
//! the chunks out now and then. If it does not, the newest events are counted as lost.

use crate::wheel::Flushed;

/// Events per chunk.
const CHUNK: usize = 4096;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    /// A task was added.
    Added,
    /// A pending task was added again: it left its place, and took a new number.
    Moved,
    /// A task was cancelled in time.
    Cancelled,
    /// A task was claimed by its executor, to be run.
    Expired,
    /// The entries of a bucket left it for a lower level or for the front.
    Cascaded,
    /// The reaper woke up.
    Woke,
}

impl EventKind {
    /// All kinds, each at the index of its number.
    pub const ALL: [Self; 6] = [Self::Added, Self::Moved, Self::Cancelled, Self::Expired, Self::Cascaded, Self::Woke];
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, in microseconds of the timer's clock.
    pub at_us: u64,
    /// Which task: the number of its add, never used twice; 0 if the event is about no task.
    pub number: u64,
    /// When the task is due, or the bucket expired, in microseconds; otherwise 0.
    pub due_us: u64,
    /// For a move, the number that the task had before; for a cascade, how many tasks left the bucket; otherwise 0.
    pub other: u64,
    /// What happened.
    pub kind: EventKind,
    /// The level of the task's bucket, or of the bucket that expired, counted from 1; 0 for the front, and otherwise.
    pub level: u8,
}

impl Event {
    /// A bucket was flushed.
    pub(crate) fn cascaded(flushed: Flushed, at_us: u64) -> Self {
        let Flushed { expiration_ms, level, entries } = flushed;
        let due_us = expiration_ms.saturating_mul(1000);
        Self { at_us, number: 0, due_us, other: entries, kind: EventKind::Cascaded, level }
    }
}

/// The events since the last take.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Recorded {
    /// The events in order, in chunks.
    pub chunks: Vec<Vec<Event>>,
    /// How many did not fit since the recording began.
    pub lost: u64,
}

/// Keeps the events of one timer until they are taken.
#[derive(Debug)]
pub(crate) struct Recorder {
    recorded: Recorded,
    most_chunks: usize,
}

impl Recorder {
    /// Keeps at least `bound` events.
    pub(crate) fn new(bound: usize) -> Self {
        Self { recorded: Recorded::default(), most_chunks: bound.div_ceil(CHUNK).max(1) }
    }

    pub(crate) fn push(&mut self, event: Event) {
        let chunks = &mut self.recorded.chunks;
        if chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            if chunks.len() == self.most_chunks {
                self.recorded.lost += 1;
                return;
            }
            chunks.push(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = chunks.last_mut() {
            chunk.push(event);
        }
    }

    /// Takes the oldest: about `limit` events, in whole chunks, at least one.
    pub(crate) fn take(&mut self, limit: usize) -> Recorded {
        let chunks = &mut self.recorded.chunks;
        let count = (limit / CHUNK).max(1).min(chunks.len());
        Recorded { chunks: chunks.drain(..count).collect(), lost: self.recorded.lost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64) -> Event {
        Event { at_us: 0, number, due_us: 0, other: 0, kind: EventKind::Added, level: 1 }
    }

    #[test]
    fn events_come_out_in_order_and_only_once() {
        let mut recorder = Recorder::new(usize::MAX);
        (0..10_000).for_each(|number| recorder.push(event(number)));
        let first = recorder.take(usize::MAX);
        assert!(first.chunks.concat().into_iter().map(|event| event.number).eq(0..10_000));
        recorder.push(event(7));
        assert_eq!(recorder.take(usize::MAX).chunks, [[event(7)]]);
        assert_eq!(first.lost, 0);
    }

    #[test]
    fn what_nobody_takes_is_bounded_and_what_does_not_fit_is_counted() {
        let mut recorder = Recorder::new(5000);
        (0..10_000).for_each(|number| recorder.push(event(number)));
        let recorded = recorder.take(usize::MAX);
        assert_eq!((recorded.chunks.concat().len(), recorded.lost), (8192, 1808));
        recorder.push(event(1));
        let recorded = recorder.take(usize::MAX);
        assert_eq!((recorded.chunks.concat().len(), recorded.lost), (1, 1808));
    }

    #[test]
    fn the_oldest_are_taken_first() {
        let mut recorder = Recorder::new(usize::MAX);
        (0..10_000).for_each(|number| recorder.push(event(number)));
        let taken: Vec<_> = std::iter::repeat_with(|| recorder.take(4096).chunks.concat())
            .take_while(|events| !events.is_empty())
            .map(|events| (events[0].number, events.len()))
            .collect();
        assert_eq!(taken, [(0, 4096), (4096, 4096), (8192, 1808)]);
    }

    #[test]
    fn a_kind_stands_at_its_own_number() {
        assert!(EventKind::ALL.iter().enumerate().all(|(number, kind)| *kind as usize == number));
    }
}
