//! The entries of one tick, in order of add: an array of slot numbers that owns itself by an id.
//!
//! Each entry knows its array and position, and a slot in an array counts while its entry says that it stands there. So a
//! cancel writes to the entry alone, and what it leaves in the array is dead: no back pointers, no list to walk, one line
//! of the cache. A due bucket hands its whole array over by the id, and a cancel still finds the entry in it.
//!
//! An array grows in pages, so no add pays for a copy of millions. A page without entries gives its memory back. For every
//! page that is filled a few others are looked at, and neighbours that fit into one are put together: so memory follows
//! what is alive, and no single call does more than a few pages' work. All O(1), amortized.
//!
//! Example: tasks 4, 5, 6 in the bucket [24, 27) stand at positions 0, 1, 2; once 5 is cancelled, position 1 is dead.

use super::{Place, Slab};

const PAGE_BITS: u32 = 10;
/// Slots in a page.
const PAGE: usize = 1 << PAGE_BITS;
/// An emptied array up to this size keeps its memory: one task added and cancelled again and again costs no allocation.
const KEEP: usize = 64;
/// So many pages are looked at for each that is filled.
const LOOKED_AT: usize = 4;
/// Neighbours are put together if they fill no more than this of one page: there should be something to gain.
const ROOM: u32 = PAGE as u32 / 4 * 3;

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
struct Page {
    slots: Vec<u32>,
    live: u32,
}

#[derive(Debug, Default)]
struct Array {
    /// The page that is being filled, the only one that may be short for that.
    tail: Page,
    /// Those before it. One without entries stays as a place holder, so that positions stay what they are.
    full: Vec<Page>,
    live: u32,
    /// The next page to look at, and the last before it that had entries.
    next: usize,
    last: Option<usize>,
}

impl Page {
    /// Gives its memory back.
    #[cold]
    fn forget(&mut self) {
        self.slots = Vec::new();
    }

    /// Takes the entries of another page in behind its own, and drops the dead of both.
    fn take_in<T>(&mut self, (id, own, others): (u32, usize, usize), other: Page, slab: &mut Slab<T>) {
        let pages = [(own, std::mem::take(&mut self.slots)), (others, other.slots)];
        let mut slots = Vec::with_capacity(PAGE);
        for (page, old) in pages {
            for (slot, position) in old.into_iter().zip((page << PAGE_BITS) as u32..) {
                if slab.standing_at(slot, Place(id), position).is_some() {
                    slab.at_mut(slot).position = (own << PAGE_BITS | slots.len()) as u32;
                    slots.push(slot);
                }
            }
        }
        debug_assert_eq!(slots.len() as u32, self.live + other.live, "a page counts what stands in it");
        self.live = slots.len() as u32;
        self.slots = slots;
    }
}

impl Array {
    /// The tail is at its capacity.
    #[cold]
    fn make_room<T>(&mut self, id: u32, slab: &mut Slab<T>) {
        if self.tail.slots.len() < PAGE {
            let more = self.tail.slots.len().max(4).min(PAGE - self.tail.slots.len());
            self.tail.slots.reserve_exact(more);
            return;
        }
        let tail = Page { slots: Vec::with_capacity(PAGE), live: 0 };
        let filled = std::mem::replace(&mut self.tail, tail);
        self.full.push(if filled.live > 0 { filled } else { Page::default() });
        for _ in 0..LOOKED_AT {
            self.look_at_next(id, slab);
        }
    }

    fn look_at_next<T>(&mut self, id: u32, slab: &mut Slab<T>) {
        if self.next >= self.full.len() {
            (self.next, self.last) = (0, None);
        }
        let (page, last) = (self.next, self.last);
        self.next += 1;
        match last {
            _ if self.full[page].live == 0 => {}
            Some(last) if self.full[last].live + self.full[page].live <= ROOM => {
                let other = std::mem::take(&mut self.full[page]);
                self.full[last].take_in((id, last, page), other, slab);
            }
            _ => self.last = Some(page),
        }
    }

    /// Back to the beginning; a little memory is kept.
    #[inline]
    fn clear(&mut self) {
        (self.tail.live, self.live) = (0, 0);
        self.tail.slots.clear();
        if self.tail.slots.capacity() > KEEP {
            self.shrink();
        }
    }

    #[cold]
    fn shrink(&mut self) {
        self.tail.slots.shrink_to(KEEP);
        (self.full, self.next, self.last) = (Vec::new(), 0, None);
    }
}

/// All arrays of a wheel, by id.
#[derive(Debug, Default)]
pub(crate) struct Arrays {
    arrays: Vec<Array>,
    free: Vec<u32>,
}

impl Arrays {
    #[cold]
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
        if array.tail.slots.len() == array.tail.slots.capacity() {
            array.make_room(id, slab);
        }
        let position = (array.full.len() << PAGE_BITS | array.tail.slots.len()) as u32;
        array.tail.slots.push(slot);
        array.tail.live += 1;
        array.live += 1;
        position
    }

    /// The entry at this position was taken out, or stands elsewhere now.
    #[inline]
    pub(crate) fn remove(&mut self, id: u32, position: u32) {
        let array = &mut self.arrays[id as usize];
        array.live -= 1;
        if array.live == 0 {
            array.clear();
            return;
        }
        let Some(page) = array.full.get_mut((position >> PAGE_BITS) as usize) else {
            array.tail.live -= 1;
            return;
        };
        page.live -= 1;
        if page.live == 0 {
            page.forget();
        }
    }

    /// How many entries stand in it.
    pub(crate) fn live(&self, id: u32) -> usize {
        self.arrays[id as usize].live as usize
    }

    /// The slots of a page from `position` on, dead ones too.
    pub(crate) fn from(&self, id: u32, position: u32) -> &[u32] {
        let array = &self.arrays[id as usize];
        let page = (position >> PAGE_BITS) as usize;
        let page = array.full.get(page).or((page == array.full.len()).then_some(&array.tail));
        page.and_then(|page| page.slots.get(position as usize % PAGE..)).unwrap_or_default()
    }

    /// The start of the page after this position; `None` after the last.
    pub(crate) fn next_page(&self, id: u32, position: u32) -> Option<u32> {
        let next = (position >> PAGE_BITS) + 1;
        (next as usize <= self.arrays[id as usize].full.len()).then_some(next << PAGE_BITS)
    }

    /// So many slots from `position` on have been read, for good: where to go on. A page that was left gives its memory back.
    pub(crate) fn read_on(&mut self, id: u32, position: u32, count: usize) -> u32 {
        let next = position + count as u32;
        if next >> PAGE_BITS != position >> PAGE_BITS {
            self.forget_page(id, position);
        }
        next
    }

    /// Gives the memory of a page back that has been read.
    pub(crate) fn forget_page(&mut self, id: u32, position: u32) {
        if let Some(page) = self.arrays[id as usize].full.get_mut((position >> PAGE_BITS) as usize) {
            page.forget();
        }
    }

    /// What they take of memory. O(arrays).
    pub(crate) fn bytes(&self) -> usize {
        let of_array = |array: &Array| {
            let pages = array.full.iter().chain([&array.tail]).map(|page| page.slots.capacity() * size_of::<u32>());
            pages.sum::<usize>() + array.full.capacity() * size_of::<Page>()
        };
        self.arrays.iter().map(of_array).sum::<usize>() + self.arrays.capacity() * size_of::<Array>()
    }

    /// Gives an emptied array's id back.
    pub(crate) fn free(&mut self, id: u32) {
        self.arrays[id as usize].clear();
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
            let removed = self.slab.remove(self.handles[index]).unwrap();
            self.arrays.remove(self.id, removed.position);
        }

        /// The tasks in use, in order.
        fn tasks(&self) -> Vec<u32> {
            let (mut tasks, mut position) = (vec![], Some(0));
            while let Some(start) = position {
                let slots = self.arrays.from(self.id, start).iter().zip(start..);
                let entry = |(slot, position): (&u32, u32)| self.slab.standing_at(*slot, Place(self.id), position);
                tasks.extend(slots.filter_map(entry).filter_map(|entry| entry.task().copied()));
                position = self.arrays.next_page(self.id, start);
            }
            tasks
        }

        /// Slots that it has memory for.
        fn capacity(&self) -> usize {
            let array = &self.arrays.arrays[self.id as usize];
            array.full.iter().chain([&array.tail]).map(|page| page.slots.capacity()).sum()
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
    fn the_order_holds_over_many_pages_and_while_they_are_put_together() {
        let mut bench = Bench::filled(20 * PAGE as u32);
        let stays = |task: &u32| task.is_multiple_of(50);
        (0..20 * PAGE).filter(|index| !stays(&(*index as u32))).for_each(|index| bench.cancel(index));
        let before = bench.capacity();
        (20 * PAGE as u32..30 * PAGE as u32).for_each(|task| bench.add(task));
        let expected: Vec<_> = (0..20 * PAGE as u32).filter(stays).chain(20 * PAGE as u32..30 * PAGE as u32).collect();
        assert_eq!(bench.tasks(), expected);
        assert!(bench.capacity() < before - 5 * PAGE, "{} of {before}", bench.capacity());
        (0..20 * PAGE).filter(|index| stays(&(*index as u32))).for_each(|index| bench.cancel(index));
        assert_eq!(bench.tasks(), expected[expected.len() - 10 * PAGE..], "the entries know their new positions");
    }

    #[test]
    fn memory_follows_what_is_alive_while_most_are_cancelled_soon_after() {
        let mut bench = Bench::filled(0);
        for task in 0..300 * PAGE {
            bench.add(task as u32);
            if task >= 1000 && (task - 1000) % 100 != 0 {
                bench.cancel(task - 1000);
            }
        }
        let live = bench.arrays.live(bench.id);
        assert!(bench.capacity() < 4 * live, "{} for {live}", bench.capacity());
        assert!(bench.tasks().is_sorted());
    }

    #[test]
    fn an_emptied_array_gives_its_memory_back() {
        let mut bench = Bench::filled(10_000);
        (0..9_999).for_each(|index| bench.cancel(index));
        assert!(bench.capacity() <= PAGE);
        bench.cancel(9_999);
        assert_eq!(bench.arrays.live(bench.id), 0);
        assert!(bench.capacity() <= KEEP);
    }
}
