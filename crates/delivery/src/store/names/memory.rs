//! The newest known names: a map from the number of a name to the number of its message.
//!
//! For each name, the map has only the newest message, however often the name came again. Two names may have the same
//! number. If the number of a name is taken, its message is a twin.

use std::collections::BTreeSet;
use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;
use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::runs::Pair;
use crate::store::sql::{Result, cached};

/// Uses the number of a name as the hash, because it is a hash already.
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
    /// More messages whose names have the same number.
    twins: BTreeSet<Pair>,
    pub(in crate::store) first_seq: i64,
    pub(in crate::store) last_seq: i64,
    /// Messages added so far, including messages replaced by a newer message of the same name.
    pub(in crate::store) messages: u64,
    /// How many of these messages are forgotten by now.
    pub(in crate::store) forgotten: u64,
}

impl Memory {
    /// Reserves room for `names` names, because growing the table later would take a long step.
    pub(in crate::store) fn with_room(names: usize) -> Self {
        Self { by_name: HashMap::with_capacity_and_hasher(names, BuildHasherDefault::default()), ..Self::default() }
    }

    /// The number of names, for tests.
    #[cfg(test)]
    pub(in crate::store) fn len(&self) -> usize {
        self.by_name.len() + self.twins.len()
    }

    /// Adds a message. Add messages in ascending order of `seq`. `before`: the earlier message of the same name,
    /// which may be in memory or not.
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

    /// Adds a message from a row of the file: the number of its name, its own number, its key and id. Returns its own
    /// number.
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

    /// The newest message whose name has this number.
    pub(in crate::store) fn newest(&self, name: i64) -> Option<i64> {
        self.by_name.get(&name).copied()
    }

    /// The messages whose names have this number, the newest first.
    pub(in crate::store) fn find(&self, name: i64) -> impl Iterator<Item = i64> {
        let twins = move || self.twins.range((name, i64::MIN)..=(name, i64::MAX)).rev().map(|(_, seq)| *seq);
        self.newest(name).into_iter().flat_map(move |newest| std::iter::once(newest).chain(twins()))
    }

    pub(in crate::store) fn pairs(&self) -> Vec<Pair> {
        self.by_name.iter().map(|(name, seq)| (*name, *seq)).chain(self.twins.iter().copied()).collect()
    }
}

/// Asks `known` about each message, and returns its first answer.
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
