//! The newest known names: a map from the number of a name to the message's.
//!
//! Of one name only its newest message is here, however often it came again. Two names may have one number: what is of a name
//! whose number is taken is a twin.

use std::collections::BTreeSet;
use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;
use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::runs::Pair;
use crate::store::sql::{Result, cached};

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
pub(in crate::store) struct Memory {
    by_name: HashMap<i64, i64, BuildHasherDefault<AsItIs>>,
    /// Further messages of the same number.
    twins: BTreeSet<Pair>,
    pub(in crate::store) first_seq: i64,
    pub(in crate::store) last_seq: i64,
    /// How many messages came, also those that a newer one of their name took the place of.
    pub(in crate::store) messages: u64,
    /// How many of those are forgotten by now.
    pub(in crate::store) forgotten: u64,
}

impl Memory {
    /// Room for so many, as the table would grow at the cost of a long step.
    pub(in crate::store) fn with_room(names: usize) -> Self {
        Self { by_name: HashMap::with_capacity_and_hasher(names, BuildHasherDefault::default()), ..Self::default() }
    }

    /// How many names there are, for tests.
    #[cfg(test)]
    pub(in crate::store) fn len(&self) -> usize {
        self.by_name.len() + self.twins.len()
    }

    /// In ascending order of `seq`. `before`: the message that the same name was known by, which may be elsewhere.
    pub(in crate::store) fn add(&mut self, name: i64, seq: i64, before: Option<i64>) {
        if self.messages == 0 {
            self.first_seq = seq;
        }
        self.last_seq = seq;
        self.messages += 1;
        if let Some(before) = before {
            self.twins.remove(&(name, before));
        }
        if let Some(earlier) = self.by_name.insert(name, seq).filter(|earlier| before != Some(*earlier)) {
            self.twins.insert((name, earlier));
        }
    }

    /// A message of the file: its name's number, its own, its key and id. Returns its own.
    pub(in crate::store) fn add_row(&mut self, db: &Connection, row: &Row<'_>) -> Result<i64> {
        let (name, seq) = (row.get(0)?, row.get(1)?);
        let (key, id) = (ToSqlOutput::Borrowed(row.get_ref(2)?), ToSqlOutput::Borrowed(row.get_ref(3)?));
        let text = "SELECT seq FROM messages WHERE seq = ? AND key IS ? AND id = ?";
        let of_this_name =
            |earlier| Ok(cached(db, text)?.query_row(params![earlier, key, id], |row| row.get(0)).optional()?);
        let before = first(self.find(name), of_this_name)?;
        self.add(name, seq, before);
        Ok(seq)
    }

    /// The newest message with this number.
    pub(in crate::store) fn newest(&self, name: i64) -> Option<i64> {
        self.by_name.get(&name).copied()
    }

    /// The messages with this number, the newest first.
    pub(in crate::store) fn find(&self, name: i64) -> impl Iterator<Item = i64> {
        let twins = move || self.twins.range((name, i64::MIN)..=(name, i64::MAX)).rev().map(|(_, seq)| *seq);
        self.newest(name).into_iter().flat_map(move |newest| std::iter::once(newest).chain(twins()))
    }

    pub(in crate::store) fn pairs(&self) -> Vec<Pair> {
        self.by_name.iter().map(|(name, seq)| (*name, *seq)).chain(self.twins.iter().copied()).collect()
    }
}

/// What `known` knows of the first of these of which it knows something.
pub(in crate::store) fn first<T>(
    seqs: impl Iterator<Item = i64>,
    mut known: impl FnMut(i64) -> Result<Option<T>>,
) -> Result<Option<T>> {
    for seq in seqs {
        if let Some(found) = known(seq)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
