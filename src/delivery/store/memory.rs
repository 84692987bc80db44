//! The newest known names: a map from the number of a name to the message's.
//!
//! Two names may have one number, and a name that was a dead letter is there twice: the further ones are twins.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;

use super::runs::Pair;

/// Takes the number of a name for its hash, which it is.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("numbers of names are i64");
    }

    fn write_i64(&mut self, number: i64) {
        self.0 = number as u64;
    }
}

/// Names in memory.
#[derive(Default)]
pub(super) struct Memory {
    by_name: HashMap<i64, i64, BuildHasherDefault<AsItIs>>,
    /// Further messages of the same number.
    twins: BTreeSet<Pair>,
    pub(super) first_seq: i64,
    pub(super) last_seq: i64,
    /// How many of them are forgotten by now.
    pub(super) forgotten: u64,
}

impl Memory {
    /// Room for so many, as the table would grow at the cost of a long step.
    pub(super) fn with_room(names: usize) -> Self {
        Self { by_name: HashMap::with_capacity_and_hasher(names, BuildHasherDefault::default()), ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len() + self.twins.len()
    }

    pub(super) fn add(&mut self, name: i64, seq: i64) {
        if self.by_name.is_empty() {
            self.first_seq = seq;
        }
        self.last_seq = seq;
        if let Some(earlier) = self.by_name.insert(name, seq) {
            self.twins.insert((name, earlier));
        }
    }

    pub(super) fn find(&self, name: i64, found: &mut Vec<i64>) {
        let Some(seq) = self.by_name.get(&name) else { return };
        found.push(*seq);
        if !self.twins.is_empty() {
            found.extend(self.twins.range((name, i64::MIN)..=(name, i64::MAX)).map(|(_, seq)| *seq));
        }
    }

    pub(super) fn pairs(&self) -> Vec<Pair> {
        self.by_name.iter().map(|(name, seq)| (*name, *seq)).chain(self.twins.iter().copied()).collect()
    }
}
