//! The keys of a purgatory: any hashable Python value, as a number (P7).
//!
//! The native lists see numbers only, so a key's `__eq__` and `__hash__` never run under a native lock. A dict could not
//! do this: taking a key out of one may run `__eq__`, and whatever that does, another thread may have come by the same
//! key meanwhile. Here only a look-up runs Python code, and says afterwards whether what it found is still there; taking
//! a key out goes by its number.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::HashTable;
use pyo3::prelude::*;

use super::border::{GilCell, attach};
use crate::purgatory::shrink;

/// A key that somebody waits for, or is about to. Dropped by the last, the table forgets it.
pub(super) struct Key {
    id: u64,
    hash: u64,
    keys: Arc<Keys>,
}

/// All keys of a purgatory.
#[derive(Default)]
pub(super) struct Keys(GilCell<Table>);

#[derive(Default)]
struct Table {
    entries: HashTable<Entry>,
    next_id: u64,
}

struct Entry {
    /// What Python says.
    hash: u64,
    /// Never used again.
    id: u64,
    uses: usize,
    object: Py<PyAny>,
}

/// One step of a look-up.
enum Step {
    Found(u64),
    /// Whether this one is equal, Python has to say.
    Compare(u64, Py<PyAny>),
    Unknown,
}

impl Keys {
    /// The key's number, given to it if it has none. Errors: what `__hash__` or `__eq__` raise.
    pub(super) fn hold(self: &Arc<Self>, key: &Bound<'_, PyAny>) -> PyResult<Key> {
        let held = self.look_up(key, true)?;
        Ok(held.expect("a key that is not found is put in"))
    }

    /// The key's number, if it has one. Errors: as `hold`.
    pub(super) fn find(self: &Arc<Self>, key: &Bound<'_, PyAny>) -> PyResult<Option<Key>> {
        self.look_up(key, false)
    }

    fn look_up(self: &Arc<Self>, key: &Bound<'_, PyAny>, puts_in: bool) -> PyResult<Option<Key>> {
        let py = key.py();
        let hash = key.hash()? as u64;
        let mut unequal: Vec<u64> = Vec::new();
        loop {
            let step = self.0.with(py, |table| table.step(key, hash, &unequal, puts_in));
            match step {
                Step::Found(id) => return Ok(Some(Key { id, hash, keys: Arc::clone(self) })),
                Step::Unknown => return Ok(None),
                Step::Compare(id, object) => {
                    // Anything may happen in here, also to the table.
                    if !object.bind(py).eq(key)? {
                        unequal.push(id);
                    } else if self.0.with(py, |table| table.take_hold(hash, id)) {
                        return Ok(Some(Key { id, hash, keys: Arc::clone(self) }));
                    }
                }
            }
        }
    }
}

impl Table {
    fn step(&mut self, key: &Bound<'_, PyAny>, hash: u64, unequal: &[u64], puts_in: bool) -> Step {
        let py = key.py();
        if let Some(same) = self.entries.find_mut(hash, |entry| entry.object.is(key)) {
            same.uses += 1;
            return Step::Found(same.id);
        }
        let is_open = |entry: &Entry| entry.hash == hash && !unequal.contains(&entry.id);
        if let Some(entry) = self.entries.find(hash, is_open) {
            return Step::Compare(entry.id, entry.object.clone_ref(py));
        }
        if !puts_in {
            return Step::Unknown;
        }
        let id = self.next_id;
        self.next_id += 1;
        let entry = Entry { hash, id, uses: 1, object: key.clone().unbind() };
        self.entries.insert_unique(hash, entry, |entry| entry.hash);
        Step::Found(id)
    }

    fn take_hold(&mut self, hash: u64, id: u64) -> bool {
        self.entries.find_mut(hash, |entry| entry.id == id).map(|entry| entry.uses += 1).is_some()
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

impl Drop for Key {
    fn drop(&mut self) {
        attach(|py| {
            let gone = self.keys.0.with(py, |table| table.let_go(self.hash, self.id));
            drop(gone);
        });
    }
}
