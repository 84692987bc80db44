//! The answers of each named destination, and for each tenant, since the engine was opened (rules D23, D24). A tally begins
//! with the first answer. It stays when there is no message in memory any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::base::display::cut;

/// How many characters of an error are kept.
pub(super) const LONGEST_ERROR: usize = 200;
/// A message that is sent more than this after its due time is late.
const LATE_US: i64 = 1_000_000;

/// The answers of one destination, or for one tenant. Times are on the timer's clock.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Its number in the store.
    pub(crate) id: i64,
    pub(crate) name: Arc<str>,
    /// Messages that have arrived.
    pub(crate) delivered: u64,
    /// How many of them were late.
    pub(crate) late: u64,
    /// How late all of them were together.
    pub(crate) lateness_us: u64,
    /// Attempts that failed.
    pub(crate) failed: u64,
    pub(crate) last_error: Option<(u64, Box<str>)>,
    /// Since when it is down, and why.
    pub(crate) down: Option<(u64, Box<str>)>,
}

impl Tally {
    pub(crate) fn arrives(&mut self, late_us: i64) {
        self.delivered += 1;
        self.late += u64::from(late_us > LATE_US);
        self.lateness_us = self.lateness_us.saturating_add(u64::try_from(late_us).unwrap_or(0));
    }

    pub(crate) fn fails(&mut self, now_us: u64, reason: &str) {
        self.failed += 1;
        self.last_error = Some((now_us, cut(reason, LONGEST_ERROR).into()));
    }
}

/// All of them, in the order of their first answers.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    all: BTreeMap<u64, Tally>,
    /// The place of each among all, by the number of its destination.
    places: FxHashMap<i64, u64>,
    next: u64,
    down: BTreeSet<i64>,
}

impl Tallies {
    /// The tally of the destination with this number and name.
    pub(crate) fn of(&mut self, id: i64, name: &str) -> &mut Tally {
        let place = *self.places.entry(id).or_insert_with(|| {
            self.next += 1;
            self.next
        });
        let new = || Tally {
            id,
            name: name.into(),
            delivered: 0,
            late: 0,
            lateness_us: 0,
            failed: 0,
            last_error: None,
            down: None,
        };
        self.all.entry(place).or_insert_with(new)
    }

    pub(crate) fn get(&self, id: i64) -> Option<&Tally> {
        self.all.get(self.places.get(&id)?)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Tally> {
        self.all.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The numbers of the destinations that are down.
    pub(crate) fn down(&self) -> &BTreeSet<i64> {
        &self.down
    }

    /// The destination is down, for this reason, or up.
    pub(crate) fn changes(&mut self, id: i64, down: Option<(u64, &str)>) {
        let Some(tally) = self.places.get(&id).and_then(|place| self.all.get_mut(place)) else { return };
        if down.is_some() {
            self.down.insert(id);
        } else {
            self.down.remove(&id);
        }
        tally.down = down.map(|(since_us, reason)| (since_us, cut(reason, LONGEST_ERROR).into()));
    }

    /// The destination was removed.
    pub(crate) fn forget(&mut self, id: i64) {
        let Some(place) = self.places.remove(&id) else { return };
        self.all.remove(&place);
        self.down.remove(&id);
    }

    /// Those of the sender before: what was down is tried anew.
    pub(crate) fn take_over(&mut self, before: &mut Self) {
        std::mem::swap(self, before);
        for id in std::mem::take(&mut self.down) {
            self.changes(id, None);
        }
    }
}
