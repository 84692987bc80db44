//! The entries of one tick, in order of add: an array of slot numbers that owns itself by an id.
//!
//! Each entry knows its array and position, so a cancel writes a tombstone there: no back pointers, no list to walk. A
//! due bucket hands its whole array over by the id, and a cancel still finds the entry in it. A full array drops its
//! tombstones before it grows, and one without entries gives its memory back. All O(1), growing amortized.
//!
//! Example: tasks 4, 5, 6 in the bucket [24, 27) stand at positions 0, 1, 2; cancelling 5 leaves `[4, -, 6]`.

use super::{Place, Slab};

pub(crate) const TOMBSTONE: u32 = u32::MAX;
/// An emptied array up to this size keeps its memory: one task added and cancelled again and again costs no allocation.
const KEEP: usize = 64;

/// One bucket of a level.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    /// When it expires, or `None` while it is not armed.
    pub(crate) expiration_ms: Option<u64>,
    /// The earliest instant that was added since it was armed; cancels do not raise it.
    pub(crate) earliest_us: u64,
    /// Its array, once it has one.
    pub(crate) array: Option<u32>,
}

impl Bucket {
    pub(crate) const NEW: Self = Self { expiration_ms: None, earliest_us: u64::MAX, array: None };
}

#[derive(Debug, Default)]
struct Array {
    slots: Vec<u32>,
    live: u32,
}

/// All arrays of a wheel, by id.
#[derive(Debug, Default)]
pub(crate) struct Arrays {
    arrays: Vec<Array>,
    free: Vec<u32>,
}

impl Arrays {
    pub(crate) fn make(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.arrays.push(Array::default());
            (self.arrays.len() - 1) as u32
        })
    }

    /// Appends a slot and writes its place into its entry.
    pub(crate) fn push<T>(&mut self, id: u32, slot: u32, slab: &mut Slab<T>) {
        let array = &mut self.arrays[id as usize];
        if array.slots.len() == array.slots.capacity() && (array.live as usize) * 4 < array.slots.len() * 3 {
            array.slots.retain(|slot| *slot != TOMBSTONE);
            for (position, slot) in array.slots.iter().enumerate() {
                slab.at_mut(*slot).position = position as u32;
            }
        }
        let entry = slab.at_mut(slot);
        entry.place = Place(id);
        entry.position = array.slots.len() as u32;
        array.slots.push(slot);
        array.live += 1;
    }

    /// Takes out what stands at `position`.
    pub(crate) fn remove(&mut self, id: u32, position: u32) {
        let array = &mut self.arrays[id as usize];
        array.slots[position as usize] = TOMBSTONE;
        array.live -= 1;
        if array.live == 0 {
            array.slots.clear();
            array.slots.shrink_to(KEEP);
        }
    }

    pub(crate) fn is_empty(&self, id: u32) -> bool {
        self.arrays[id as usize].live == 0
    }

    /// What stands at `position`: past the end `None`, and in its place the slot, or the tombstone.
    pub(crate) fn get(&self, id: u32, position: u32) -> Option<u32> {
        self.arrays[id as usize].slots.get(position as usize).copied()
    }

    /// The slots in use, in order of add.
    pub(crate) fn live(&self, id: u32) -> impl Iterator<Item = u32> {
        self.arrays[id as usize].slots.iter().copied().filter(|slot| *slot != TOMBSTONE)
    }

    /// What they take of memory. O(arrays).
    pub(crate) fn bytes(&self) -> usize {
        let slots: usize = self.arrays.iter().map(|array| array.slots.capacity()).sum();
        slots * size_of::<u32>() + self.arrays.capacity() * size_of::<Array>()
    }

    /// Gives an emptied array's id back.
    pub(crate) fn free(&mut self, id: u32) {
        let array = &mut self.arrays[id as usize];
        array.slots.clear();
        array.slots.shrink_to(KEEP);
        array.live = 0;
        self.free.push(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: u32) -> (Slab<u32>, Arrays, u32) {
        let (mut slab, mut arrays) = (Slab::new(), Arrays::default());
        let id = arrays.make();
        for i in 0..count {
            let handle = slab.insert(u64::from(i), u64::from(i), i, 0);
            arrays.push(id, handle.slot, &mut slab);
        }
        (slab, arrays, id)
    }

    #[test]
    fn a_cancel_leaves_a_tombstone_and_the_order_of_the_rest() {
        let (_slab, mut arrays, id) = filled(3);
        arrays.remove(id, 1);
        assert_eq!(arrays.live(id).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(arrays.get(id, 1), Some(TOMBSTONE));
        assert_eq!(arrays.get(id, 3), None);
    }

    #[test]
    fn a_full_array_drops_its_tombstones_before_it_grows() {
        let (mut slab, mut arrays, id) = filled(64);
        let capacity = arrays.arrays[id as usize].slots.capacity();
        for position in 0..capacity as u32 - 1 {
            if arrays.get(id, position).is_some_and(|slot| slot != TOMBSTONE) {
                arrays.remove(id, position);
            }
        }
        for i in 0..20 {
            let handle = slab.insert(0, 100 + i, 0, 0);
            arrays.push(id, handle.slot, &mut slab);
            assert_eq!(arrays.get(id, slab.at(handle.slot).position), Some(handle.slot));
        }
        assert_eq!(arrays.arrays[id as usize].slots.capacity(), capacity);
    }

    #[test]
    fn an_emptied_array_gives_its_memory_back() {
        let (_slab, mut arrays, id) = filled(10_000);
        for position in 0..10_000 {
            arrays.remove(id, position);
        }
        assert!(arrays.is_empty(id));
        assert!(arrays.arrays[id as usize].slots.capacity() <= KEEP);
    }
}
