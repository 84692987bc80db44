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

use super::kind::{Host, Kind};
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
struct List<K: Kind> {
    key: K::Key,
    hash: u64,
    /// The number of its first place, which no other list ever has.
    id: u64,
    waiting: Waiting<K::Op>,
}

/// Most keys have one.
enum Waiting<Op> {
    One(u64, Op),
    Many(BTreeMap<u64, Op>),
}

enum Taken<K: Kind> {
    Op(K::Op),
    List(List<K>),
}

/// How far a walk along a key's list has come.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    from: u64,
    /// What came after the walk began does not belong to it.
    until: Option<u64>,
    /// The list, by number, that the last step was on.
    pub(super) list: Option<u64>,
}

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

    /// Takes an operation off a list, and the list away with the last. O(log n) in its length.
    pub(crate) fn remove<H: Host<K>>(&self, host: &H, place: Place) {
        let mut shard = host.lock(self.shard(place.hash));
        let removed = shard.take(place);
        drop(shard);
        drop(removed); // after the lock: destructors are foreign code
    }

    /// The next operations on a key's list, at most [`STEP`], with their places there, and whether there may be more.
    pub(crate) fn walk<H: Host<K>>(
        &self,
        host: &H,
        hash: u64,
        key: &K::Key,
        walk: &mut Walk,
    ) -> (Few<(Place, K::Op)>, bool) {
        let shard = host.lock(self.shard(hash));
        let until = *walk.until.get_or_insert(shard.next);
        let Some(list) = shard.lists.find(hash, |list| list.key == *key) else { return (Few::new(), false) };
        walk.list = Some(list.id);
        let share = |number: &u64, op: &K::Op| (Place { hash, list: list.id, number: *number }, host.share(op));
        match &list.waiting {
            Waiting::One(number, op) if (walk.from..until).contains(number) => (smallvec![share(number, op)], false),
            Waiting::One(..) => (Few::new(), false),
            Waiting::Many(waiting) => {
                let range = waiting.range(walk.from..until).take(STEP);
                let step: Few<_> = range.map(|(number, op)| share(number, op)).collect();
                walk.from = step.last().map_or(until, |(place, _)| place.number + 1);
                let more = step.len() == STEP;
                (step, more)
            }
        }
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
