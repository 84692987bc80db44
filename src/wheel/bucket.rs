//! The entries of one tick, in order of add: an array of slot numbers that owns itself by an id.
//!
//! Each entry knows its array and position, and a slot in an array counts while its entry says that it stands there. So a
//! cancel writes to the entry alone, and what it leaves in the array is dead: no back pointers, no list to walk, one line
//! of the cache. A due bucket hands its whole array over by the id, and a cancel still finds the entry in it. A full array
//! whose dead are the most drops them before it grows, and one without entries gives its memory back. All O(1), growing
//! amortized.
//!
//! Example: tasks 4, 5, 6 in the bucket [24, 27) stand at positions 0, 1, 2; once 5 is cancelled, position 1 is dead.

use super::{Place, Slab};

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

impl Array {
    /// Drops the dead if they are the most, and otherwise grows by half.
    #[cold]
    fn make_room<T>(&mut self, id: u32, slab: &mut Slab<T>) {
        if self.live as usize * 2 >= self.slots.len() {
            self.slots.reserve_exact((self.slots.len() / 2).max(4));
            return;
        }
        let mut kept = 0;
        for position in 0..self.slots.len() {
            let slot = self.slots[position];
            if slab.standing_at(slot, Place(id), position as u32).is_some() {
                slab.at_mut(slot).position = kept as u32;
                self.slots[kept] = slot;
                kept += 1;
            }
        }
        self.slots.truncate(kept);
    }
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

    /// Appends a slot and returns its position, which the caller writes to the entry.
    #[inline]
    pub(crate) fn push<T>(&mut self, id: u32, slot: u32, slab: &mut Slab<T>) -> u32 {
        let array = &mut self.arrays[id as usize];
        if array.slots.len() == array.slots.capacity() {
            array.make_room(id, slab);
        }
        let position = array.slots.len() as u32;
        array.slots.push(slot);
        array.live += 1;
        position
    }

    /// The entry at some position was taken out, or stands elsewhere now.
    #[inline]
    pub(crate) fn remove(&mut self, id: u32) {
        let array = &mut self.arrays[id as usize];
        array.live -= 1;
        if array.live == 0 {
            array.slots.clear();
            array.slots.shrink_to(KEEP);
        }
    }

    pub(crate) fn is_empty(&self, id: u32) -> bool {
        self.arrays[id as usize].live == 0
    }

    /// All slots from `position` on, dead ones too.
    pub(crate) fn from(&self, id: u32, position: u32) -> &[u32] {
        self.arrays[id as usize].slots.get(position as usize..).unwrap_or_default()
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
    use super::super::{Handle, New};
    use super::*;

    struct Bench {
        slab: Slab<u32>,
        arrays: Arrays,
        id: u32,
        handles: Vec<Handle>,
    }

    impl Bench {
        fn filled(count: u32) -> Self {
            let mut arrays = Arrays::default();
            let id = arrays.make();
            let mut bench = Self { slab: Slab::new(), arrays, id, handles: vec![] };
            (0..count).for_each(|task| bench.add(task));
            bench
        }

        fn add(&mut self, task: u32) {
            let handle = self.slab.insert(New { due_us: 0, number: 0, task, tag: 0 });
            let position = self.arrays.push(self.id, handle.slot, &mut self.slab);
            self.slab.at_mut(handle.slot).stand(Place(self.id), position);
            self.handles.push(handle);
        }

        fn cancel(&mut self, index: usize) {
            self.slab.remove(self.handles[index]).unwrap();
            self.arrays.remove(self.id);
        }

        /// The tasks in use, in order.
        fn tasks(&self) -> Vec<u32> {
            let task =
                |(slot, position): (&u32, u32)| self.slab.standing_at(*slot, Place(self.id), position)?.task().copied();
            self.arrays.from(self.id, 0).iter().zip(0..).filter_map(task).collect()
        }

        fn capacity(&self) -> usize {
            self.arrays.arrays[self.id as usize].slots.capacity()
        }
    }

    #[test]
    fn a_cancel_leaves_the_order_of_the_rest() {
        let mut bench = Bench::filled(3);
        bench.cancel(1);
        assert_eq!(bench.tasks(), [0, 2]);
    }

    #[test]
    fn a_slot_that_was_used_again_counts_once_and_where_it_is_now() {
        let mut bench = Bench::filled(3);
        bench.cancel(0);
        bench.add(9);
        assert_eq!(bench.handles[3].slot, bench.handles[0].slot);
        assert_eq!(bench.tasks(), [1, 2, 9]);
    }

    #[test]
    fn a_full_array_drops_its_dead_before_it_grows() {
        let mut bench = Bench::filled(64);
        let capacity = bench.capacity();
        (1..64).for_each(|index| bench.cancel(index));
        (100..140).for_each(|task| bench.add(task));
        assert_eq!(bench.tasks(), [0].into_iter().chain(100..140).collect::<Vec<_>>());
        assert_eq!(bench.capacity(), capacity);
        (64..104).for_each(|index| bench.cancel(index));
        assert_eq!(bench.tasks(), [0], "the entries know their new positions");
    }

    #[test]
    fn an_emptied_array_gives_its_memory_back() {
        let mut bench = Bench::filled(10_000);
        (0..10_000).for_each(|index| bench.cancel(index));
        assert!(bench.arrays.is_empty(bench.id));
        assert!(bench.capacity() <= KEEP);
    }
}
