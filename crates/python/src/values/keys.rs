//! The keys of a purgatory: any hashable Python value, as a number (P7).
//!
//! The native lists see numbers only, so the `__eq__` and `__hash__` of a key never run under a native lock. A dict
//! does not work here. Taking a key out of a dict may run `__eq__`, and during that call another thread may add the
//! same key. In this table only a look-up runs Python code; after that it checks whether the entry it found is still
//! there. A key is removed by its number.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::HashTable;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::tools::gil_cell::GilCell;
use crate::tools::native_lock::attach;
use tickwheel::internal::purgatory::{ShortList, shrink};

/// The number of a key. While it is held, the number stays the same; the table removes the key with the last holder.
pub(crate) struct Key {
    id: u64,
    /// `None` if the key was only looked up.
    held: Option<(u64, Arc<KeyTable>)>,
}

/// Hashes the number of a key. Numbers are consecutive, so their low bits spread well; the table needs the highest bits
/// to differ too.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

/// All keys of a purgatory.
#[derive(Default)]
pub(crate) struct KeyTable(GilCell<Entries>);

#[derive(Default)]
struct Entries {
    entries: HashTable<Entry>,
    next_id: u64,
}

struct Entry {
    /// The mixed hash of the object.
    hash: u64,
    /// Never used again.
    id: u64,
    uses: usize,
    object: Py<PyAny>,
}

/// What a look-up finds.
enum LookUp {
    Found(u64),
    /// Keys of the same hash. Python must say whether one of them is equal.
    Candidates(ShortList<(u64, Py<PyAny>)>),
    Unknown,
}

impl KeyTable {
    /// The number of the key. A key that has none gets one. Errors: what `__hash__` or `__eq__` raise.
    pub(crate) fn hold(self: &Arc<Self>, key: &Bound<'_, PyAny>) -> PyResult<Key> {
        let hash = mixed(key.hash()?);
        let id = self.look_up(key, hash, true)?.expect("a key that is not found is inserted");
        Ok(Key { id, held: Some((hash, Arc::clone(self))) })
    }

    /// The number of the key, if it has one. Errors: as `hold`.
    pub(crate) fn find(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<Key>> {
        let id = self.look_up(key, mixed(key.hash()?), false)?;
        Ok(id.map(|id| Key { id, held: None }))
    }

    /// Shows the references of the table to the garbage collector, each once.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.visit(visit, |table| table.entries.iter().try_for_each(|entry| visit.call(&entry.object)))
    }

    fn look_up(&self, key: &Bound<'_, PyAny>, hash: u64, holds: bool) -> PyResult<Option<u64>> {
        let py = key.py();
        let mut from = 0;
        loop {
            let (look, next) = self.0.with(py, |table| (table.look(key, hash, from, holds), table.next_id));
            let candidates = match look {
                LookUp::Found(id) => return Ok(Some(id)),
                LookUp::Unknown => return Ok(None),
                LookUp::Candidates(candidates) => candidates,
            };
            for (id, object) in candidates {
                // Python code runs here, and may change the table too.
                if object.bind(py).eq(key)? && self.0.with(py, |table| table.is_still_there(hash, id, holds)) {
                    return Ok(Some(id));
                }
            }
            // No key is equal to these. Keys added since then have a higher number.
            from = next;
        }
    }
}

/// Mixes Python's hash, which of a small int is the int itself: the table reads the lowest and the highest bits, and
/// every bit must change them.
fn mixed(hash: isize) -> u64 {
    let product = u128::from(hash as u64) * 0x9e37_79b9_7f4a_7c15;
    (product as u64) ^ (product >> 64) as u64
}

impl Entries {
    fn look(&mut self, key: &Bound<'_, PyAny>, hash: u64, from: u64, holds: bool) -> LookUp {
        let mut others = ShortList::new();
        for entry in self.entries.iter_hash_mut(hash).filter(|entry| entry.hash == hash) {
            if entry.object.is(key) {
                entry.uses += usize::from(holds);
                return LookUp::Found(entry.id);
            }
            if entry.id >= from {
                others.push((entry.id, entry.object.clone_ref(key.py())));
            }
        }
        if !others.is_empty() {
            return LookUp::Candidates(others);
        }
        if !holds {
            return LookUp::Unknown;
        }
        let id = self.next_id;
        self.next_id += 1;
        let entry = Entry { hash, id, uses: 1, object: key.clone().unbind() };
        self.entries.insert_unique(hash, entry, |entry| entry.hash);
        LookUp::Found(id)
    }

    fn is_still_there(&mut self, hash: u64, id: u64, holds: bool) -> bool {
        let entry = self.entries.find_mut(hash, |entry| entry.id == id);
        entry.map(|entry| entry.uses += usize::from(holds)).is_some()
    }

    /// Removes one use. If it was the last, it returns the entry, and the caller drops that.
    fn release(&mut self, hash: u64, id: u64) -> Option<Entry> {
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
    pub(crate) fn id(&self) -> u64 {
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
                let gone = keys.0.with(py, |table| table.release(hash, self.id));
                drop(gone);
            });
        }
    }
}
