//! Entries by index and generation, in pages.
//!
//! A handle is a slot and its generation; a slot that is freed takes the next generation, so an old handle finds
//! nothing. Pages are fixed, so no add pays for a copy of millions, and an empty page is given back (one is kept
//! spare). A page that comes back starts above every generation it has handed out; a slot whose generations are used up
//! is retired. Insert, look-up and remove are O(1).
//!
//! Example: the first entry gets slot 0, generation 0. Removed, its slot comes back as slot 0, generation 1.

use super::pages::Residents;

const PAGE_BITS: u32 = 9;
const PAGE: usize = 1 << PAGE_BITS;
const NO_SLOT: u32 = u32::MAX;

/// Names one scheduled occurrence of a task; stale once that has run or was cancelled. It does not know its timer: given to
/// another one, it may name a task there that has nothing to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Handle {
    /// The handle as one number, to keep it in an atomic; [`Handle::from_bits`] reads it.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// The inverse of [`Handle::to_bits`].
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self { slot: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// An entry in the order of T6. The add number is unique, so the slot never decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) due_us: u64,
    pub(crate) number: u64,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Key {
    pub(crate) fn handle(&self) -> Handle {
        Handle { slot: self.slot, generation: self.generation }
    }
}

/// Where an entry stands. In a bucket or the front it has a position there too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Place {
    /// Nowhere: the slot is free, or its entry is about to be placed.
    Free,
    /// In the list of a bucket.
    Bucket,
    /// It has left the wheel and waits for its instant.
    Front,
    /// It was released and waits on the executor's queue.
    Released,
}

/// One scheduled occurrence of a task: 40 bytes where `T` is one pointer that is never null.
#[derive(Debug)]
pub(crate) struct Entry<T> {
    /// When it is due, in microseconds of the timer's clock.
    pub(crate) due_us: u64,
    /// The add number: with the due instant, the order of T6.
    pub(crate) number: u64,
    /// `None` in a free slot.
    task: Option<T>,
    pub(crate) generation: u32,
    /// Where it stands now.
    pub(crate) place: Place,
    /// Its position in its list, in a bucket or in the front; in a free slot, the next free slot of the page.
    pub(crate) position: u32,
    /// A number that the owner gave with the task.
    pub(crate) tag: u32,
}

/// What comes with a task.
#[derive(Debug)]
pub(crate) struct New<T> {
    pub(crate) due_us: u64,
    pub(crate) number: u64,
    pub(crate) task: T,
    pub(crate) tag: u32,
}

/// What was in a slot. A caller that is inlined and does not use a field does not read it either: when an entry was due
/// may be in another line of the cache, which a cancel has no need to fetch.
#[derive(Debug)]
pub(crate) struct Removed<T> {
    pub(crate) task: T,
    pub(crate) place: Place,
    pub(crate) position: u32,
    pub(crate) due_us: u64,
    pub(crate) number: u64,
    pub(crate) tag: u32,
}

/// What an entry that was renewed had before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Was {
    pub(crate) number: u64,
    pub(crate) place: Place,
    pub(crate) position: u32,
}

#[derive(Debug)]
struct Page<T> {
    entries: Vec<Entry<T>>,
    free: u32,
    live: u32,
    /// The generation that a slot starts with when the page is made again.
    base: u32,
    /// Whether the page stands in `open`.
    is_open: bool,
}

#[derive(Debug)]
pub(crate) struct Slab<T> {
    pages: Vec<Page<T>>,
    /// Pages with room, the one to use next at the end.
    open: Vec<u32>,
    /// An empty page that kept its memory.
    spare: Option<u32>,
    len: usize,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { pages: Vec::new(), open: Vec::new(), spare: None, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Puts a task into a free slot; it is the caller's to say where that stands, if not in the front.
    #[expect(clippy::inline_always, reason = "a call and its answer by memory are a tenth of it")]
    #[inline(always)]
    pub(crate) fn insert(&mut self, new: New<T>) -> Handle {
        let New { due_us, number, task, tag } = new;
        let index = self.open.last().copied().unwrap_or_else(|| self.open_page());
        let mut page = &mut self.pages[index as usize];
        let (offset, generation) = if page.free == NO_SLOT {
            if page.entries.capacity() == 0 {
                self.give_memory(index);
                page = &mut self.pages[index as usize];
            }
            let offset = page.entries.len() as u32;
            let generation = page.base;
            page.entries.push(Entry {
                due_us,
                number,
                task: Some(task),
                generation,
                place: Place::Front,
                position: 0,
                tag,
            });
            (offset, generation)
        } else {
            let offset = page.free;
            let entry = &mut page.entries[offset as usize];
            page.free = entry.position;
            let generation = entry.generation;
            *entry = Entry { due_us, number, task: Some(task), generation, place: Place::Front, position: 0, tag };
            (offset, generation)
        };
        page.live += 1;
        if page.free == NO_SLOT && page.entries.len() == PAGE {
            page.is_open = false;
            self.open.pop();
        }
        if self.spare == Some(index) {
            self.spare = None;
        }
        self.len += 1;
        Handle { slot: index << PAGE_BITS | offset, generation }
    }

    /// Frees the slot and moves out what was in it; `None` for a stale handle.
    #[expect(clippy::inline_always, reason = "a call and its answer by memory are a tenth of it")]
    #[inline(always)]
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Removed<T>> {
        self.remove_if(handle, |_| true)
    }

    /// As [`Slab::remove`], for an entry of which this is true.
    #[expect(clippy::inline_always, reason = "as above")]
    #[inline(always)]
    pub(crate) fn remove_if(&mut self, handle: Handle, goes: impl FnOnce(Place) -> bool) -> Option<Removed<T>> {
        let index = handle.slot >> PAGE_BITS;
        let offset = handle.slot & (PAGE as u32 - 1);
        let page = self.pages.get_mut(index as usize)?;
        let entry = page.entries.get_mut(offset as usize)?;
        if entry.generation != handle.generation || !goes(entry.place) {
            return None;
        }
        let task = entry.task.take()?;
        let (place, position) = (std::mem::replace(&mut entry.place, Place::Free), entry.position);
        let (due_us, number, tag) = (entry.due_us, entry.number, entry.tag);
        // The last generation is never handed out, so a base of u32::MAX marks a page with nothing left to give.
        entry.generation += 1;
        if entry.generation < u32::MAX {
            entry.position = page.free;
            page.free = offset;
            if !page.is_open {
                page.is_open = true;
                self.open.push(index);
            }
        }
        page.live -= 1;
        self.len -= 1;
        if page.live == 0 {
            self.give_back(index);
        }
        Some(Removed { task, place, position, due_us, number, tag })
    }

    /// Gives a task another instant and number, and its slot the next generation, as if it had been taken out and put in
    /// again; the caller places it. `None` for a stale handle, or where the slot has no generation left.
    #[inline]
    pub(crate) fn renew(&mut self, handle: Handle, due_us: u64, number: u64) -> Option<(Handle, Was)> {
        let entry = self.get_mut(handle)?;
        if entry.generation + 1 == u32::MAX {
            return None;
        }
        // It stands nowhere until it is placed: pages that are put together meanwhile must not take it for one of theirs.
        let place = std::mem::replace(&mut entry.place, Place::Free);
        let was = Was { number: entry.number, place, position: entry.position };
        (entry.due_us, entry.number) = (due_us, number);
        entry.generation += 1;
        Some((Handle { slot: handle.slot, generation: entry.generation }, was))
    }

    /// The entry, if the handle is still good.
    #[inline]
    pub(crate) fn get(&self, handle: Handle) -> Option<&Entry<T>> {
        let page = self.pages.get((handle.slot >> PAGE_BITS) as usize)?;
        let entry = page.entries.get((handle.slot as usize) & (PAGE - 1))?;
        (entry.generation == handle.generation && entry.task.is_some()).then_some(entry)
    }

    /// As [`Slab::get`], to write.
    #[inline]
    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut Entry<T>> {
        let page = self.pages.get_mut((handle.slot >> PAGE_BITS) as usize)?;
        let entry = page.entries.get_mut((handle.slot as usize) & (PAGE - 1))?;
        (entry.generation == handle.generation && entry.task.is_some()).then_some(entry)
    }

    /// The entry in a slot that a bucket or the front points at, hence in use.
    #[inline]
    pub(crate) fn at_mut(&mut self, slot: u32) -> &mut Entry<T> {
        &mut self.pages[(slot >> PAGE_BITS) as usize].entries[slot as usize & (PAGE - 1)]
    }

    /// The keys of those among these slots of a bucket, the first of which stands at this position, that stand there still.
    #[inline]
    pub(crate) fn keys(&self, slots: &[u32], position: u32) -> impl Iterator<Item = Key> {
        let slots = slots.iter().zip(position..);
        slots.filter_map(move |(slot, position)| Some(self.standing_at(*slot, position)?.key(*slot)))
    }

    /// The entry in a slot that stood at this position of a bucket; `None` if it does not any more, or another one is there.
    #[inline]
    fn standing_at(&self, slot: u32, position: u32) -> Option<&Entry<T>> {
        let page = self.pages.get((slot >> PAGE_BITS) as usize)?;
        let entry = page.entries.get(slot as usize & (PAGE - 1))?;
        (entry.place == Place::Bucket && entry.position == position).then_some(entry)
    }

    /// As [`Slab::at_mut`], to read.
    pub(crate) fn at(&self, slot: u32) -> &Entry<T> {
        &self.pages[(slot >> PAGE_BITS) as usize].entries[slot as usize & (PAGE - 1)]
    }

    /// The entries in use in one page, with their handles; `None` past the last page. A page is a step of a long walk.
    pub(crate) fn page(&self, index: usize) -> Option<impl Iterator<Item = (Handle, &Entry<T>, &T)>> {
        let page = self.pages.get(index)?;
        Some(page.entries.iter().enumerate().filter_map(move |(offset, entry)| {
            let slot = (index << PAGE_BITS | offset) as u32;
            let task = entry.task.as_ref()?;
            Some((Handle { slot, generation: entry.generation }, entry, task))
        }))
    }

    /// What it takes of memory, with 8 bytes for a task, as for a pointer. O(pages).
    pub(crate) fn bytes(&self) -> usize {
        let entries: usize = self.pages.iter().map(|page| page.entries.capacity()).sum();
        entries * size_of::<Entry<Box<()>>>() + self.pages.capacity() * size_of::<Page<T>>()
    }

    /// Has a slot that is in use go on from this generation; its new handle.
    #[cfg(test)]
    pub(crate) fn age(&mut self, handle: Handle, generation: u32) -> Handle {
        self.at_mut(handle.slot).generation = generation;
        Handle { generation, ..handle }
    }

    #[cold]
    fn open_page(&mut self) -> u32 {
        let index = self.pages.len() as u32;
        assert!(index < 1 << (32 - PAGE_BITS), "a timer holds at most 2^32 tasks");
        self.pages.push(Page { entries: Vec::new(), free: NO_SLOT, live: 0, base: 0, is_open: true });
        self.open.push(index);
        index
    }

    /// A page that has no memory gets that of the spare page, or new memory.
    #[cold]
    fn give_memory(&mut self, index: u32) {
        let mut entries = self.spare.take().map_or_else(Vec::new, |spare| self.take_memory(spare));
        entries.clear();
        entries.reserve_exact(PAGE);
        self.pages[index as usize].entries = entries;
    }

    /// An empty page becomes the spare one; if there is one already, or if it has no generation left, its memory goes back.
    #[cold]
    fn give_back(&mut self, index: u32) {
        if self.spare.is_none() && self.pages[index as usize].is_open {
            self.spare = Some(index);
        } else {
            self.take_memory(index);
        }
    }

    /// Takes the memory of an empty page. Made again, the page starts above every generation that it has handed out.
    fn take_memory(&mut self, index: u32) -> Vec<Entry<T>> {
        let page = &mut self.pages[index as usize];
        page.base = page.entries.iter().map(|entry| entry.generation).max().unwrap_or(0).max(page.base);
        let entries = std::mem::take(&mut page.entries);
        page.free = NO_SLOT;
        if page.base == u32::MAX && page.is_open {
            page.is_open = false;
            self.open.retain(|open| *open != index);
        } else if page.base < u32::MAX && !page.is_open {
            page.is_open = true;
            self.open.push(index);
        }
        entries
    }
}

/// A bucket's list has slots. No two items of all lists have one position, so that alone names the entry.
impl<T> Residents<u32> for Slab<T> {
    #[inline]
    fn stands_at(&self, slot: u32, position: u32) -> bool {
        self.standing_at(slot, position).is_some()
    }

    #[inline]
    fn stand(&mut self, slot: u32, position: u32) {
        self.at_mut(slot).stand(Place::Bucket, position);
    }
}

/// The front's lists have keys.
impl<T> Residents<Key> for Slab<T> {
    fn stands_at(&self, key: Key, _position: u32) -> bool {
        self.get(key.handle()).is_some()
    }

    #[inline]
    fn stand(&mut self, key: Key, position: u32) {
        self.at_mut(key.slot).stand(Place::Front, position);
    }
}

impl<T> Entry<T> {
    /// Says where it stands now.
    #[inline]
    pub(crate) fn stand(&mut self, place: Place, position: u32) {
        (self.place, self.position) = (place, position);
    }

    /// Its key, given the slot that it is in.
    #[inline]
    pub(crate) fn key(&self, slot: u32) -> Key {
        Key { due_us: self.due_us, number: self.number, slot, generation: self.generation }
    }

    /// The task; `None` in a free slot.
    pub(crate) fn task(&self) -> Option<&T> {
        self.task.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add<T>(slab: &mut Slab<T>, task: T) -> Handle {
        slab.insert(New { due_us: 1, number: 1, task, tag: 0 })
    }

    fn take<T>(slab: &mut Slab<T>, handle: Handle) -> Option<T> {
        slab.remove(handle).map(|removed| removed.task)
    }

    #[test]
    fn an_entry_takes_forty_bytes() {
        assert_eq!(size_of::<Entry<Box<u8>>>(), 40);
    }

    #[test]
    fn a_freed_slot_comes_back_with_the_next_generation() {
        let mut slab = Slab::new();
        let first = add(&mut slab, 'a');
        assert_eq!(take(&mut slab, first), Some('a'));
        assert_eq!(take(&mut slab, first), None);
        let second = add(&mut slab, 'b');
        assert_eq!((second.slot, second.generation), (0, 1));
        assert!(slab.get(first).is_none());
        assert!(slab.get(second).is_some());
    }

    #[test]
    fn a_slab_that_shrank_hands_out_no_old_generation() {
        let mut slab = Slab::new();
        let old: Vec<_> = (0..4 * PAGE).map(|i| add(&mut slab, i)).collect();
        for handle in &old {
            slab.remove(*handle).unwrap();
        }
        assert_eq!(slab.len(), 0);
        let kept: usize = slab.pages.iter().map(|page| page.entries.capacity()).sum();
        assert_eq!(kept, PAGE, "all pages but the spare one are given back");
        let new: Vec<_> = (0..4 * PAGE).map(|i| add(&mut slab, i)).collect();
        assert!(old.iter().all(|handle| slab.get(*handle).is_none()));
        assert!(new.iter().all(|handle| slab.get(*handle).is_some()));
    }

    #[test]
    fn a_slot_is_retired_when_its_generations_are_used_up() {
        let mut slab = Slab::new();
        let first = add(&mut slab, 'a');
        let last = slab.age(first, u32::MAX - 1);
        assert_eq!(take(&mut slab, last), Some('a'));
        assert_eq!(add(&mut slab, 'b').slot, 1);
    }

    #[test]
    fn a_page_with_a_retired_slot_is_not_made_again_below_its_generations() {
        let mut slab = Slab::new();
        let handles: Vec<_> = (0..3 * PAGE).map(|i| add(&mut slab, i)).collect();
        let old = slab.age(handles[PAGE + 7], u32::MAX - 1);
        for handle in handles {
            slab.remove(handle);
        }
        slab.remove(old);
        let again: Vec<_> = (0..3 * PAGE).map(|i| add(&mut slab, i)).collect();
        assert!(again.iter().all(|handle| handle.slot as usize / PAGE != 1));
    }

    fn capacity<T>(slab: &Slab<T>) -> usize {
        slab.pages.iter().map(|page| page.entries.capacity()).sum()
    }

    #[test]
    fn after_a_burst_a_task_that_comes_and_goes_costs_no_memory() {
        let mut slab = Slab::new();
        let burst: Vec<_> = (0..4 * PAGE).map(|i| add(&mut slab, i)).collect();
        for handle in burst {
            slab.remove(handle).unwrap();
        }
        for i in 0..3 {
            let handle = add(&mut slab, i);
            assert_eq!(capacity(&slab), PAGE);
            slab.remove(handle).unwrap();
            assert_eq!(capacity(&slab), PAGE);
        }
    }

    #[test]
    fn a_page_whose_generations_are_used_up_keeps_no_memory() {
        let mut slab = Slab::new();
        let handles: Vec<_> = (0..PAGE).map(|i| add(&mut slab, i)).collect();
        for handle in handles {
            let last = slab.age(handle, u32::MAX - 1);
            slab.remove(last).unwrap();
        }
        assert_eq!(capacity(&slab), 0);
        let handle = add(&mut slab, 0);
        assert_eq!(handle.slot as usize / PAGE, 1);
        slab.remove(handle).unwrap();
        assert_eq!((capacity(&slab), slab.spare), (PAGE, Some(1)));
    }

    #[test]
    fn a_handle_survives_as_a_number() {
        let handle = Handle { slot: 7, generation: 9 };
        assert_eq!(Handle::from_bits(handle.to_bits()), handle);
    }
}
