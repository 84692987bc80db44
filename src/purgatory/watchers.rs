//! The operations that wait on each key: a list for each, in order of arrival.
//!
//! The keys are spread over shards, each with a lock of its own, so that threads with different keys seldom meet. A shard's
//! lock guards the lists of its keys. It is held for one entry, or for a step of up to 1000 entries, and for all of them when
//! the purgatory is closed. No foreign code but a key's `Eq` runs under it. An empty list is removed with its key.
//!
//! A place identifies its list by a number, so removing it needs no comparison of keys.

use std::hash::BuildHasher;

use crossbeam_utils::CachePadded;
use hashbrown::HashTable;

use super::key_list::{List, ListId, Place, ShortList, Step, Waiting, Walk};
use super::operation_types::{Locking, OperationTypes};
use crate::panics;
use crate::sync::Mutex;

/// Tables up to this size keep their memory.
const SMALL: usize = 64;

pub(crate) struct Watchers<K: OperationTypes> {
    /// Each on cache lines of its own, so that threads with different keys do not slow each other down.
    shards: Vec<CachePadded<Mutex<Shard<K>>>>,
    hasher: K::BuildKeyHasher,
}

struct Shard<K: OperationTypes> {
    lists: HashTable<List<K>>,
    /// The number of the next place. It rises with each place, so a list is in order of arrival.
    next: u64,
    places: usize,
    is_closed: bool,
}

/// The value that was removed from a list: the operation, or with the last operation the list.
pub(crate) enum Removed<K: OperationTypes> {
    Op(K::Op),
    List(List<K>),
}

impl<K: OperationTypes> Watchers<K> {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..K::SHARDS).map(|_| CachePadded::new(Mutex::new(Shard::new()))).collect(),
            hasher: K::BuildKeyHasher::default(),
        }
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard<K>> {
        // The table in it uses the lowest and the highest bits.
        &self.shards[(hash >> 32) as usize & (K::SHARDS - 1)]
    }

    /// A key's `Hash` is foreign code, so it runs before any lock is taken.
    pub(crate) fn hash(&self, key: &K::Key) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Adds an operation at the end of the key's list; returns no place after [`Self::close`]. O(log n) in the length of the
    /// list.
    ///
    /// Returns the key if no list needs it: its destructor is foreign code, and the caller holds a lock.
    pub(crate) fn add<H: Locking<K>>(
        &self,
        host: &H,
        hash: u64,
        key: K::Key,
        op: impl FnOnce() -> K::Op,
    ) -> (Option<Place>, Option<K::Key>) {
        let mut shard = host.lock(self.shard(hash));
        if shard.is_closed {
            return (None, Some(key));
        }
        let number = shard.next;
        let known = shard.lists.find_mut(hash, |list| list.key == key); // may panic: nothing has changed yet
        let (id, unused_key) = if let Some(list) = known {
            list.waiting.push(number, op());
            (list.id, Some(key))
        } else {
            let id = ListId { hash, first: number };
            let list = List { key, id, waiting: Waiting::One(number, op()) };
            shard.lists.insert_unique(hash, list, |list| list.id.hash);
            (id, None)
        };
        shard.next += 1;
        shard.places += 1;
        (Some(Place { list: id, number }), unused_key)
    }

    /// Removes an operation from a list, and with the last operation the list. O(log n) in its length. The caller drops what
    /// was removed, without a lock: destructors are foreign code.
    #[must_use]
    pub(crate) fn remove<H: Locking<K>>(&self, host: &H, place: Place) -> Option<Removed<K>> {
        host.lock(self.shard(place.list.hash)).take(place)
    }

    /// The key's list, if it has one.
    pub(crate) fn find<H: Locking<K>>(&self, host: &H, key: &K::Key) -> Option<ListId> {
        let hash = self.hash(key);
        let shard = host.lock(self.shard(hash));
        shard.lists.find(hash, |list| list.key == *key).map(|list| list.id)
    }

    /// Begins a walk along the key's list, with its first step.
    pub(crate) fn walk<H: Locking<K>>(&self, host: &H, key: &K::Key) -> Option<(Walk, Step<K>)> {
        let hash = self.hash(key);
        let shard = host.lock(self.shard(hash));
        let list = shard.lists.find(hash, |list| list.key == *key)?;
        Some(shard.walk(host, list))
    }

    /// As [`Self::walk`]; the list may be gone.
    pub(crate) fn walk_again<H: Locking<K>>(&self, host: &H, list: ListId) -> Option<(Walk, Step<K>)> {
        let shard = host.lock(self.shard(list.hash));
        Some(shard.walk(host, shard.list(list)?))
    }

    /// The next operations of a walk, at most 1000.
    pub(crate) fn step<H: Locking<K>>(&self, host: &H, walk: &mut Walk) -> Step<K> {
        let shard = host.lock(self.shard(walk.list.hash));
        shard.list(walk.list).map_or_else(|| (ShortList::new(), false), |list| list.step(host, walk))
    }

    /// As [`Self::close`]; also removes all operations.
    pub(crate) fn clear<H: Locking<K>>(&self, host: &H) -> Vec<K::Op> {
        let waiting = self.close(host);
        for shard in &self.shards {
            let mut shard = host.lock(shard);
            shard.places = 0;
            let lists = std::mem::take(&mut shard.lists);
            drop(shard);
            drop_removed(lists.into_iter().map(Removed::List));
        }
        waiting
    }

    /// Accepts no more operations; returns those that wait, each once for each of its places.
    pub(crate) fn close<H: Locking<K>>(&self, host: &H) -> Vec<K::Op> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = host.lock(shard);
            shard.is_closed = true;
            for list in &shard.lists {
                match &list.waiting {
                    Waiting::One(_, op) => all.push(host.clone_ref(op)),
                    Waiting::Many(waiting) => all.extend(waiting.values().map(|op| host.clone_ref(op))),
                }
            }
        }
        all
    }

    /// Calls `visit` with the operation of each place; with none if a lock is taken.
    pub(crate) fn try_visit<E>(&self, mut visit: impl FnMut(&K::Op) -> Result<(), E>) -> Result<(), E> {
        let shards: Option<Vec<_>> = self.shards.iter().map(|shard| shard.try_lock()).collect();
        for list in shards.iter().flatten().flat_map(|shard| &shard.lists) {
            match &list.waiting {
                Waiting::One(_, op) => visit(op)?,
                Waiting::Many(waiting) => waiting.values().try_for_each(&mut visit)?,
            }
        }
        Ok(())
    }

    /// The number of keys with a list, and of places on all lists.
    pub(crate) fn count<H: Locking<K>>(&self, host: &H) -> (usize, usize) {
        let count = |shard: &CachePadded<Mutex<Shard<K>>>| {
            let shard = host.lock(shard);
            (shard.lists.len(), shard.places)
        };
        self.shards
            .iter()
            .map(count)
            .fold((0, 0), |(keys, places), (more_keys, more)| (keys + more_keys, places + more))
    }
}

impl<K: OperationTypes> Shard<K> {
    fn new() -> Self {
        Self { lists: HashTable::new(), next: 0, places: 0, is_closed: false }
    }

    fn list(&self, id: ListId) -> Option<&List<K>> {
        self.lists.find(id.hash, |list| list.id == id)
    }

    fn walk<H: Locking<K>>(&self, host: &H, list: &List<K>) -> (Walk, Step<K>) {
        let mut walk = Walk { list: list.id, from: 0, until: self.next };
        let step = list.step(host, &mut walk);
        (walk, step)
    }

    /// As [`Watchers::remove`].
    fn take(&mut self, place: Place) -> Option<Removed<K>> {
        let mut found = self.lists.find_entry(place.list.hash, |list| list.id == place.list).ok()?;
        self.places -= 1;
        if let Waiting::Many(waiting) = &mut found.get_mut().waiting
            && waiting.len() > 1
        {
            return waiting.remove(&place.number).map(Removed::Op);
        }
        let (list, _) = found.remove();
        shrink(&mut self.lists, |list| list.id.hash);
        Some(Removed::List(list))
    }
}

/// Drops what was removed from the lists, without a lock. Keys and operations are foreign code: a destructor that panics,
/// which the panic hook reports, stops neither the others nor the caller.
pub(super) fn drop_removed<K: OperationTypes>(removed: impl IntoIterator<Item = Removed<K>>) {
    for removed in removed {
        panics::contain(|| drop(removed));
    }
}

/// Returns memory after a removal, so that the memory follows the number of items. The removals before it pay for each shrink.
pub fn shrink<T>(table: &mut HashTable<T>, hash: impl Fn(&T) -> u64) {
    let capacity = table.capacity();
    if capacity > SMALL && table.len() < capacity / 8 {
        table.shrink_to(capacity / 4, hash);
    }
}
