//! Who waits on a key: a list of operations for each, in the order in which they came.
//!
//! The keys are spread over shards, each behind a lock of its own, so that threads with different keys seldom meet. A
//! shard's lock guards the lists of its keys and is held for one entry, or for a step of [`STEP`] of them, and once for
//! all of them where the purgatory is closed; nothing foreign but a key's `Eq` runs under it. A list that has become
//! empty is taken away with its key.
//!
//! A place names its list by a number, so leaving it needs no hash and no comparison of keys.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use smallvec::{SmallVec, smallvec};

use super::host::{Host, Kind};
use crate::panics;
use crate::sync::Mutex;
use crate::timer::STEP;

/// A list that most often has one item.
pub(crate) type Few<T> = SmallVec<[T; 1]>;

/// Tables up to this size keep their memory.
const SMALL: usize = 64;

/// A place on a key's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Of the key.
    hash: u64,
    list: u64,
    /// Its number among the places of its shard.
    number: u64,
}

/// All lists.
pub(crate) struct Watchers<K: Kind> {
    shards: Vec<Mutex<Shard<K>>>,
    hashing: K::Hashing,
}

struct Shard<K: Kind> {
    lists: HashTable<List<K>>,
    /// Rises with every place, so a list is in order of arrival and a walk knows where it began.
    next: u64,
    places: usize,
    is_closed: bool,
}

/// The operations that wait on a key.
pub(crate) struct List<K: Kind> {
    key: K::Key,
    hash: u64,
    /// The number of its first place, which no other list ever has.
    id: u64,
    waiting: Waiting<K::Op>,
}

/// Most keys have one.
pub(crate) enum Waiting<Op> {
    One(u64, Op),
    Many(BTreeMap<u64, Op>),
}

/// What was taken off a list.
pub(crate) enum Taken<K: Kind> {
    Op(K::Op),
    List(List<K>),
}

/// A list, by the number that no other list ever has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ListName {
    /// Of the key.
    hash: u64,
    id: u64,
}

/// How far a walk along a list has come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk {
    pub(super) list: ListName,
    from: u64,
    /// What came after the walk began does not belong to it.
    until: u64,
}

/// The next operations of a walk, with their places, and whether there may be more.
pub(crate) type Step<K> = (Few<(Place, <K as Kind>::Op)>, bool);

impl<K: Kind> Watchers<K> {
    pub(crate) fn new() -> Self {
        Self { shards: (0..K::SHARDS).map(|_| Mutex::new(Shard::new())).collect(), hashing: K::Hashing::default() }
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard<K>> {
        // The table in it uses the lowest and the highest bits.
        &self.shards[(hash >> 32) as usize & (K::SHARDS - 1)]
    }

    /// The key's `Hash` is foreign code, so it runs before any lock is taken.
    pub(crate) fn hash(&self, key: &K::Key) -> u64 {
        self.hashing.hash_one(key)
    }

    /// Puts an operation at the end of the key's list; no place once closed. O(log n) in the length of the list.
    ///
    /// A key that no list has use for comes back: its destructor is foreign code, and the caller holds a lock.
    pub(crate) fn add<H: Host<K>>(
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
        let (id, spare) = if let Some(list) = known {
            list.waiting.push(number, op());
            (list.id, Some(key))
        } else {
            let list = List { key, hash, id: number, waiting: Waiting::One(number, op()) };
            shard.lists.insert_unique(hash, list, |list| list.hash);
            (number, None)
        };
        shard.next += 1;
        shard.places += 1;
        (Some(Place { hash, list: id, number }), spare)
    }

    /// Takes an operation off a list, and the list away with the last. O(log n) in its length. What was taken off is for
    /// the caller to drop, without a lock: destructors are foreign code.
    #[must_use]
    pub(crate) fn remove<H: Host<K>>(&self, host: &H, place: Place) -> Option<Taken<K>> {
        host.lock(self.shard(place.hash)).take(place)
    }

    /// The key's list, if it has one.
    pub(crate) fn find<H: Host<K>>(&self, host: &H, key: &K::Key) -> Option<ListName> {
        let hash = self.hash(key);
        let shard = host.lock(self.shard(hash));
        shard.lists.find(hash, |list| list.key == *key).map(|list| ListName { hash, id: list.id })
    }

    /// Begins a walk along the key's list, with its first step.
    pub(crate) fn walk<H: Host<K>>(&self, host: &H, key: &K::Key) -> Option<(Walk, Step<K>)> {
        let hash = self.hash(key);
        let shard = host.lock(self.shard(hash));
        let list = shard.lists.find(hash, |list| list.key == *key)?;
        Some(shard.walk(host, list))
    }

    /// As [`Self::walk`]; the list may be gone.
    pub(crate) fn walk_again<H: Host<K>>(&self, host: &H, name: ListName) -> Option<(Walk, Step<K>)> {
        let shard = host.lock(self.shard(name.hash));
        Some(shard.walk(host, shard.list(name)?))
    }

    /// The next operations of a walk, at most [`STEP`].
    pub(crate) fn step<H: Host<K>>(&self, host: &H, walk: &mut Walk) -> Step<K> {
        let shard = host.lock(self.shard(walk.list.hash));
        shard.list(walk.list).map_or_else(|| (Few::new(), false), |list| list.step(host, walk))
    }

    /// Takes nothing in any more, and forgets all that wait; each of them, once for each of its places.
    pub(crate) fn clear<H: Host<K>>(&self, host: &H) -> Vec<K::Op> {
        let waiting = self.close(host);
        for shard in &self.shards {
            let mut shard = host.lock(shard);
            shard.places = 0;
            let lists = std::mem::take(&mut shard.lists);
            drop(shard);
            discard(lists.into_iter().map(Taken::List));
        }
        waiting
    }

    /// Takes nobody in any more; all that wait, once for each of their places.
    pub(crate) fn close<H: Host<K>>(&self, host: &H) -> Vec<K::Op> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = host.lock(shard);
            shard.is_closed = true;
            for list in &shard.lists {
                match &list.waiting {
                    Waiting::One(_, op) => all.push(host.share(op)),
                    Waiting::Many(waiting) => all.extend(waiting.values().map(|op| host.share(op))),
                }
            }
        }
        all
    }

    /// Calls `see` with the operation of each place, without waiting for a lock.
    #[cfg(feature = "python")]
    pub(crate) fn try_see<E>(&self, mut see: impl FnMut(&K::Op) -> Result<(), E>) -> Result<(), E> {
        let shards: Option<Vec<_>> = self.shards.iter().map(Mutex::try_lock).collect();
        for list in shards.iter().flatten().flat_map(|shard| &shard.lists) {
            match &list.waiting {
                Waiting::One(_, op) => see(op)?,
                Waiting::Many(waiting) => waiting.values().try_for_each(&mut see)?,
            }
        }
        Ok(())
    }

    /// Keys with a list, and places on all lists.
    pub(crate) fn count<H: Host<K>>(&self, host: &H) -> (usize, usize) {
        let count = |shard: &Mutex<Shard<K>>| {
            let shard = host.lock(shard);
            (shard.lists.len(), shard.places)
        };
        self.shards
            .iter()
            .map(count)
            .fold((0, 0), |(keys, places), (more_keys, more)| (keys + more_keys, places + more))
    }
}

impl<K: Kind> Shard<K> {
    fn new() -> Self {
        Self { lists: HashTable::new(), next: 0, places: 0, is_closed: false }
    }

    fn list(&self, name: ListName) -> Option<&List<K>> {
        self.lists.find(name.hash, |list| list.id == name.id)
    }

    fn walk<H: Host<K>>(&self, host: &H, list: &List<K>) -> (Walk, Step<K>) {
        let mut walk = Walk { list: ListName { hash: list.hash, id: list.id }, from: 0, until: self.next };
        let step = list.step(host, &mut walk);
        (walk, step)
    }

    /// Takes an operation off its list, and the list away with the last: for the caller to drop.
    fn take(&mut self, place: Place) -> Option<Taken<K>> {
        let mut found = self.lists.find_entry(place.hash, |list| list.id == place.list).ok()?;
        self.places -= 1;
        if let Waiting::Many(waiting) = &mut found.get_mut().waiting
            && waiting.len() > 1
        {
            return waiting.remove(&place.number).map(Taken::Op);
        }
        let (list, _) = found.remove();
        shrink(&mut self.lists, |list| list.hash);
        Some(Taken::List(list))
    }
}

impl<K: Kind> List<K> {
    /// The next operations of a walk along it, at most [`STEP`].
    fn step<H: Host<K>>(&self, host: &H, walk: &mut Walk) -> Step<K> {
        let place = |number: u64| Place { hash: self.hash, list: self.id, number };
        match &self.waiting {
            Waiting::One(number, op) if (walk.from..walk.until).contains(number) => {
                (smallvec![(place(*number), host.share(op))], false)
            }
            Waiting::One(..) => (Few::new(), false),
            Waiting::Many(waiting) => {
                let range = waiting.range(walk.from..walk.until).take(STEP);
                let step: Few<_> = range.map(|(number, op)| (place(*number), host.share(op))).collect();
                walk.from = step.last().map_or(walk.until, |(place, _)| place.number + 1);
                let more = step.len() == STEP;
                (step, more)
            }
        }
    }
}

/// Drops what was taken off the lists, without a lock. Keys and operations are foreign code: one that panics as it is
/// dropped, which the panic hook tells, stops neither the rest nor the caller.
pub(super) fn discard<K: Kind>(removed: impl IntoIterator<Item = Taken<K>>) {
    for taken in removed {
        panics::contain(|| drop(taken));
    }
}

/// Gives memory back after a removal: it follows what is in the table. Each shrink is paid for by the removals before it.
pub(crate) fn shrink<T>(table: &mut HashTable<T>, hash: impl Fn(&T) -> u64) {
    let capacity = table.capacity();
    if capacity > SMALL && table.len() < capacity / 8 {
        table.shrink_to(capacity / 4, hash);
    }
}

impl<Op> Waiting<Op> {
    fn push(&mut self, number: u64, op: Op) {
        match self {
            Self::Many(waiting) => {
                waiting.insert(number, op);
            }
            Self::One(..) => {
                if let Self::One(first, earlier) = std::mem::replace(self, Self::Many(BTreeMap::new())) {
                    *self = Self::Many(BTreeMap::from([(first, earlier), (number, op)]));
                }
            }
        }
    }
}
