//! The keys of a purgatory: any hashable Python value, as a number (P7).
//!
//! The native lists see numbers only, so a key's `__eq__` and `__hash__` never run under a native lock. A dict could not
//! do this: taking a key out of one may run `__eq__`, and whatever that does, another thread may have come by the same
//! key meanwhile. Here only a look-up runs Python code, and says afterwards whether what it found is still there; taking
//! a key out goes by its number.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::HashTable;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::border::attach;
use super::gil::GilCell;
use crate::purgatory::{ShortList, shrink};

/// A key's number. One that is held stays what it is; dropped by the last holder, the table forgets it.
pub(super) struct Key {
    id: u64,
    /// `None` where it was only looked up.
    held: Option<(u64, Arc<Keys>)>,
}

/// Hashes the number of a key. Numbers are given in turn, so their low bits spread well; the table wants the highest
/// bits to differ too.
#[derive(Default)]
pub(super) struct KeyHasher(u64);

/// All keys of a purgatory.
#[derive(Default)]
pub(super) struct Keys(GilCell<Table>);

#[derive(Default)]
struct Table {
    entries: HashTable<Entry>,
    next_id: u64,
}

struct Entry {
    /// Of what Python says.
    hash: u64,
    /// Never used again.
    id: u64,
    uses: usize,
    object: Py<PyAny>,
}

/// What a look at the table finds.
enum Look {
    Found(u64),
    /// Keys of the same hash: whether one is equal, Python has to say.
    Candidates(ShortList<(u64, Py<PyAny>)>),
    Unknown,
}

impl Keys {
    /// The key's number, given to it if it has none. Errors: what `__hash__` or `__eq__` raise.
    pub(super) fn hold(self: &Arc<Self>, key: &Bound<'_, PyAny>) -> PyResult<Key> {
        let hash = mixed(key.hash()?);
        let id = self.look_up(key, hash, true)?.expect("a key that is not found is put in");
        Ok(Key { id, held: Some((hash, Arc::clone(self))) })
    }

    /// The key's number, if it has one. Errors: as `hold`.
    pub(super) fn find(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<Key>> {
        let id = self.look_up(key, mixed(key.hash()?), false)?;
        Ok(id.map(|id| Key { id, held: None }))
    }

    /// Shows the garbage collector the table's references, each once.
    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.visit(visit, |table| table.entries.iter().try_for_each(|entry| visit.call(&entry.object)))
    }

    fn look_up(&self, key: &Bound<'_, PyAny>, hash: u64, holds: bool) -> PyResult<Option<u64>> {
        let py = key.py();
        let mut from = 0;
        loop {
            let (look, next) = self.0.with(py, |table| (table.look(key, hash, from, holds), table.next_id));
            let candidates = match look {
                Look::Found(id) => return Ok(Some(id)),
                Look::Unknown => return Ok(None),
                Look::Candidates(candidates) => candidates,
            };
            for (id, object) in candidates {
                // Anything may happen in here, also to the table.
                if object.bind(py).eq(key)? && self.0.with(py, |table| table.is_still_there(hash, id, holds)) {
                    return Ok(Some(id));
                }
            }
            // None of those. What has come since has a higher number.
            from = next;
        }
    }
}

/// Python's hash of a small int is the int: mixed, so that every bit counts in the lowest and the highest ones, which are
/// what the table looks at.
fn mixed(hash: isize) -> u64 {
    let product = u128::from(hash as u64) * 0x9e37_79b9_7f4a_7c15;
    (product as u64) ^ (product >> 64) as u64
}

impl Table {
    fn look(&mut self, key: &Bound<'_, PyAny>, hash: u64, from: u64, holds: bool) -> Look {
        let mut others = ShortList::new();
        for entry in self.entries.iter_hash_mut(hash).filter(|entry| entry.hash == hash) {
            if entry.object.is(key) {
                entry.uses += usize::from(holds);
                return Look::Found(entry.id);
            }
            if entry.id >= from {
                others.push((entry.id, entry.object.clone_ref(key.py())));
            }
        }
        if !others.is_empty() {
            return Look::Candidates(others);
        }
        if !holds {
            return Look::Unknown;
        }
        let id = self.next_id;
        self.next_id += 1;
        let entry = Entry { hash, id, uses: 1, object: key.clone().unbind() };
        self.entries.insert_unique(hash, entry, |entry| entry.hash);
        Look::Found(id)
    }

    fn is_still_there(&mut self, hash: u64, id: u64, holds: bool) -> bool {
        let entry = self.entries.find_mut(hash, |entry| entry.id == id);
        entry.map(|entry| entry.uses += usize::from(holds)).is_some()
    }

    /// Gives one use up. The last one's entry is for the caller to drop.
    fn let_go(&mut self, hash: u64, id: u64) -> Option<Entry> {
        let mut found = self.entries.find_entry(hash, |entry| entry.id == id).ok()?;
        found.get_mut().uses -= 1;
        if found.get().uses > 0 {
            return None;
        }
        let (entry, _) = found.remove();
        shrink(&mut self.entries, |entry| entry.hash);
        Some(entry)
    }
}

impl Key {
    /// Never given to another key of the table.
    pub(super) fn id(&self) -> u64 {
        self.id
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.id);
    }
}

impl Hasher for KeyHasher {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("a key hashes its number")
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id ^ (mixed(id as isize) << 57);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        if let Some((hash, keys)) = self.held.take() {
            attach(|py| {
                let gone = keys.0.with(py, |table| table.let_go(hash, self.id));
                drop(gone);
            });
        }
    }
}
