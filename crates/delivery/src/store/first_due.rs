//! The first due time of each named destination of which the store has a message that memory does not (rules D23, D24).
//!
//! The loader asks only for destinations that have something within its horizon, so the others cost nothing. At most
//! [`Limits::first_due_times`](crate::store::Limits) are known, the earliest ones. When the horizon comes to the others,
//! they are read from the store again.
//!
//! A time may be too early: then the loader looks once for nothing. It is never too late.
//!
//! Example, with two times at most: 7 is due at 50, 8 at 20, 9 at 70. Known are 20 and 50, and that nothing else is due
//! before 70.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::message::recurrence::NEVER_MS;

#[derive(Debug)]
pub(in crate::store) struct FirstDue {
    most: usize,
    by_due: BTreeSet<(i64, i64)>,
    by_share: FxHashMap<i64, i64>,
    /// Nothing of the destinations that are not known is due before this.
    known_until_ms: i64,
}

impl FirstDue {
    /// Knows nothing yet.
    pub(in crate::store) fn new(most: usize) -> Self {
        Self { most, by_due: BTreeSet::new(), by_share: FxHashMap::default(), known_until_ms: i64::MIN }
    }

    pub(in crate::store) fn note(&mut self, share: i64, due_ms: i64) {
        if due_ms >= self.of(share) {
            return;
        }
        if let Some(before_ms) = self.by_share.insert(share, due_ms) {
            self.by_due.remove(&(before_ms, share));
        }
        self.by_due.insert((due_ms, share));
        if self.by_due.len() > self.most
            && let Some((due_ms, share)) = self.by_due.pop_last()
        {
            self.by_share.remove(&share);
            self.known_until_ms = due_ms;
        }
    }

    pub(in crate::store) fn of(&self, share: i64) -> i64 {
        self.by_share.get(&share).copied().unwrap_or(self.known_until_ms)
    }

    pub(in crate::store) fn take(&mut self, until_ms: i64) -> Option<i64> {
        let first = self.by_due.first().copied().filter(|(due_ms, _)| *due_ms <= until_ms)?;
        self.by_due.remove(&first);
        self.by_share.remove(&first.1);
        Some(first.1)
    }

    /// Forgets all, to be told of each anew.
    pub(in crate::store) fn begin_again(&mut self) {
        *self = Self { known_until_ms: NEVER_MS, ..Self::new(self.most) };
    }

    /// Whether it knows of each message that is due until then.
    pub(in crate::store) fn knows_until(&self, until_ms: i64) -> bool {
        self.known_until_ms > until_ms
    }

    /// Whether none that it knows is due until then.
    pub(in crate::store) fn has_none(&self, until_ms: i64) -> bool {
        self.by_due.first().is_none_or(|(due_ms, _)| *due_ms > until_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_module_holds__d23() {
        let mut first = FirstDue { known_until_ms: NEVER_MS, ..FirstDue::new(2) };
        for (share, due_ms) in [(9, 70), (7, 50), (8, 20), (8, 60), (7, 55)] {
            first.note(share, due_ms);
        }
        assert_eq!((first.of(7), first.of(8), first.of(9), first.known_until_ms), (50, 20, 70, 70));
        assert_eq!(first.take(19), None);
        assert_eq!((first.take(60), first.take(60), first.take(1_000)), (Some(8), Some(7), None));
        first.note(9, 80);
        assert_eq!(first.take(80), None, "it is read from the store again");
        first.note(9, 40);
        assert_eq!(first.take(80), Some(9));
    }
}
