//! Entries by index and generation, in pages.
//!
//! A handle is a slot and its generation; a slot that is freed takes the next generation, so an old handle finds
//! nothing. Pages are fixed, so no add pays for a copy of millions, and an empty page is given back (one is kept
//! spare). A page that comes back starts above every generation it has handed out; a slot whose generations are used up
//! is retired. Insert, look-up and remove are O(1).
//!
//! Example: the first entry gets slot 0, generation 0. Removed, its slot comes back as slot 0, generation 1.

mod entry;
mod page;

use std::hint::black_box;

pub use entry::Handle;
pub(crate) use entry::{Entry, Key, Place};
use page::Page;

use super::lists::Residents;

const PAGE_BITS: u32 = 9;
const PAGE: usize = 1 << PAGE_BITS;
const NO_SLOT: u32 = u32::MAX;

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

    /// Puts a task into a free slot; the caller places it.
    #[expect(clippy::inline_always, reason = "a call and its answer by memory are a tenth of it")]
    #[inline(always)]
    pub(crate) fn insert(&mut self, due_us: u64, number: u64, task: T, tag: u32) -> Handle {
        let entry = |generation| Entry { due_us, number, task: Some(task), generation, place: Place::Unplaced, tag };
        let index = self.open.last().copied().unwrap_or_else(|| self.open_page());
        let mut page = &mut self.pages[index as usize];
        let (offset, generation) = if page.free == NO_SLOT {
            if page.entries.capacity() == 0 {
                self.give_memory(index);
                page = &mut self.pages[index as usize];
            }
            let offset = page.entries.len() as u32;
            let generation = page.base;
            page.entries.push(entry(generation));
            (offset, generation)
        } else {
            let offset = page.free;
            let slot = &mut page.entries[offset as usize];
            page.free = slot.next_free();
            let generation = slot.generation;
            *slot = entry(generation);
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
    ///
    /// A caller that is inlined and does not use a field does not read it either: when an entry was due may be in another
    /// line of the cache, which a cancel has no need to fetch.
    #[expect(clippy::inline_always, reason = "a call and its answer by memory are a tenth of it")]
    #[inline(always)]
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Entry<T>> {
        self.remove_if(handle, |_| true)
    }

    /// As [`Slab::remove`], for an entry of which this is true.
    #[expect(clippy::inline_always, reason = "as above")]
    #[inline(always)]
    pub(crate) fn remove_if(&mut self, handle: Handle, goes: impl FnOnce(Place) -> bool) -> Option<Entry<T>> {
        let index = handle.slot >> PAGE_BITS;
        let offset = handle.slot & (PAGE as u32 - 1);
        let page = self.pages.get_mut(index as usize)?;
        let entry = page.entries.get_mut(offset as usize)?;
        if entry.generation != handle.generation || !goes(entry.place) {
            return None;
        }
        let task = Some(entry.task.take()?);
        let Entry { due_us, number, place, tag, generation, .. } = *entry;
        // The last generation is never handed out, so a base of u32::MAX marks a page with nothing left to give.
        entry.generation += 1;
        entry.place = Place::Free(page.free);
        if entry.generation < u32::MAX {
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
        Some(Entry { due_us, number, task, generation, place, tag })
    }

    /// Gives a task another instant and number, and its slot the next generation, as if it had been taken out and put in
    /// again; the caller takes it from its old place, which is returned, and places it. `None` for a stale handle, or where the slot has no generation left.
    #[inline]
    pub(crate) fn renew(&mut self, handle: Handle, due_us: u64, number: u64) -> Option<(Handle, Place)> {
        let entry = self.get_mut(handle)?;
        if entry.generation + 1 == u32::MAX {
            return None;
        }
        // It stands nowhere until it is placed: pages that are put together meanwhile must not take it for one of theirs.
        let place = std::mem::replace(&mut entry.place, Place::Unplaced);
        (entry.due_us, entry.number) = (due_us, number);
        entry.generation += 1;
        Some((Handle { slot: handle.slot, generation: entry.generation }, place))
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

    /// Reads what a cancel or a move of each of these will need, so that the processor fetches it side by side. It changes
    /// nothing but how long the next calls take.
    pub(crate) fn prefetch(&self, handles: &[Handle]) {
        let tags = handles.iter().map(|handle| self.get(*handle).map_or(0, |entry| entry.tag));
        black_box(tags.fold(0, |all, tag| all | tag));
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
        (entry.place == Place::Bucket(position)).then_some(entry)
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
}

/// A bucket's list has slots. No two items of all lists have one position, so that alone names the entry.
impl<T> Residents<u32> for Slab<T> {
    #[inline]
    fn stands_at(&self, slot: u32, position: u32) -> bool {
        self.standing_at(slot, position).is_some()
    }

    #[inline]
    fn stand(&mut self, slot: u32, position: u32) {
        self.at_mut(slot).place = Place::Bucket(position);
    }
}

/// The front's lists have keys.
impl<T> Residents<Key> for Slab<T> {
    fn stands_at(&self, key: Key, _position: u32) -> bool {
        self.get(key.handle).is_some()
    }

    #[inline]
    fn stand(&mut self, key: Key, position: u32) {
        self.at_mut(key.handle.slot).place = Place::Front(position);
    }
}

#[cfg(test)]
mod tests;
