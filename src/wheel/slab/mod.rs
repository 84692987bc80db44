//! The slab: all entries of a timer, found by slot and generation.
//!
//! A handle is a slot and its generation. A slot that becomes free takes the next generation, so an old handle finds
//! nothing. Slots are in pages of fixed size: no add copies millions of entries, and an empty page returns its memory
//! (one page keeps it, see [`memory`]). A slot without generations left is never used again. Insert, look-up and remove are
//! O(1).
//!
//! Example: the first entry gets slot 0, generation 0. After it is removed, the next entry gets slot 0, generation 1.

mod entry;
mod handle;
mod memory;
mod page;

use std::hint::black_box;

use entry::NO_SLOT;
pub(crate) use entry::{Entry, Place, ReleaseKey};
pub use handle::Handle;
use page::{Numbering, PAGE_SIZE, Page};

use super::lists::Positions;

#[derive(Debug)]
pub(crate) struct Slab<T> {
    pages: Vec<Page<T>>,
    /// The pages with free slots; the last one is used next.
    pages_with_room: Vec<u32>,
    /// An empty page that has kept its memory.
    spare_page: Option<u32>,
    len: usize,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { pages: Vec::new(), pages_with_room: Vec::new(), spare_page: None, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Puts a task into a free slot. The caller places the entry.
    #[expect(clippy::inline_always, reason = "a call that answers through memory is a tenth of an add")]
    #[inline(always)]
    pub(crate) fn insert(&mut self, due_us: u64, number: u64, task: T, tag: u32) -> Handle {
        let entry = |generation| Entry { due_us, number, task: Some(task), generation, place: Place::Unplaced, tag };
        let page_number = self.pages_with_room.last().copied().unwrap_or_else(|| self.add_page());
        let mut page = &mut self.pages[page_number as usize];
        let (offset, generation) = if page.first_free == NO_SLOT {
            if page.entries.capacity() == 0 {
                self.allocate(page_number);
                page = &mut self.pages[page_number as usize];
            }
            let offset = page.entries.len() as u32;
            let generation = page.first_generation;
            page.entries.push(entry(generation));
            (offset, generation)
        } else {
            let offset = page.first_free;
            let slot = &mut page.entries[offset as usize];
            page.first_free = slot.next_free();
            let generation = slot.generation;
            *slot = entry(generation);
            (offset, generation)
        };
        page.live_count += 1;
        if page.first_free == NO_SLOT && page.entries.len() == PAGE_SIZE {
            page.has_room = false;
            self.pages_with_room.pop();
        }
        if self.spare_page == Some(page_number) {
            self.spare_page = None;
        }
        self.len += 1;
        Handle::new(Numbering::number(page_number, offset as usize), generation)
    }

    /// Frees the slot and moves its entry out; `None` for a stale handle. The entry's place says where the caller must
    /// remove it too.
    ///
    /// A caller that does not use a field does not read it either, because this is inlined: a cancel does not fetch the
    /// cache line of the due instant.
    #[expect(clippy::inline_always, reason = "a call that answers through memory is a tenth of a cancel")]
    #[inline(always)]
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Entry<T>> {
        self.remove_if(handle, |_| true)
    }

    /// As [`Slab::remove`], but only from a place for which `may_remove` is true.
    #[expect(clippy::inline_always, reason = "see `Slab::remove`")]
    #[inline(always)]
    pub(crate) fn remove_if(&mut self, handle: Handle, may_remove: impl FnOnce(Place) -> bool) -> Option<Entry<T>> {
        let page_number = Numbering::page(handle.slot());
        let offset = Numbering::offset(handle.slot());
        let page = self.pages.get_mut(page_number as usize)?;
        let entry = page.entries.get_mut(offset)?;
        if entry.generation != handle.generation() || !may_remove(entry.place) {
            return None;
        }
        let task = Some(entry.task.take()?);
        let Entry { due_us, number, place, tag, generation, .. } = *entry;
        // The last generation is never issued, so a first generation of u32::MAX marks a page with none left.
        entry.generation += 1;
        entry.place = Place::Free(page.first_free);
        if entry.generation < u32::MAX {
            page.first_free = offset as u32;
            if !page.has_room {
                page.has_room = true;
                self.pages_with_room.push(page_number);
            }
        }
        page.live_count -= 1;
        self.len -= 1;
        if page.live_count == 0 {
            self.page_emptied(page_number);
        }
        Some(Entry { due_us, number, place, generation, tag, task })
    }

    /// Gives a task another due instant and number, and its slot the next generation, as a remove and an insert would.
    /// Returns the new handle and the old place; the caller removes the entry from there and places it. `None` for a stale
    /// handle, and for a slot without generations left.
    #[inline]
    pub(crate) fn reschedule(&mut self, handle: Handle, due_us: u64, number: u64) -> Option<(Handle, Place)> {
        let entry = self.get_mut(handle)?;
        if entry.generation + 1 == u32::MAX {
            return None;
        }
        // Not its old place any more: a merge of pages must not find it there.
        let place = std::mem::replace(&mut entry.place, Place::Unplaced);
        (entry.due_us, entry.number) = (due_us, number);
        entry.generation += 1;
        Some((Handle::new(handle.slot(), entry.generation), place))
    }

    /// The entry, unless the handle is stale.
    #[inline]
    pub(crate) fn get(&self, handle: Handle) -> Option<&Entry<T>> {
        let page = self.pages.get(Numbering::page(handle.slot()) as usize)?;
        let entry = page.entries.get(Numbering::offset(handle.slot()))?;
        (entry.generation == handle.generation() && entry.task.is_some()).then_some(entry)
    }

    /// As [`Slab::get`], to write.
    #[inline]
    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut Entry<T>> {
        let page = self.pages.get_mut(Numbering::page(handle.slot()) as usize)?;
        let entry = page.entries.get_mut(Numbering::offset(handle.slot()))?;
        (entry.generation == handle.generation() && entry.task.is_some()).then_some(entry)
    }

    /// The entry in a slot that is in use, because a bucket or the front names it.
    pub(crate) fn entry_in(&self, slot: u32) -> &Entry<T> {
        &self.pages[Numbering::page(slot) as usize].entries[Numbering::offset(slot)]
    }

    /// As [`Slab::entry_in`], to write.
    #[inline]
    pub(crate) fn entry_in_mut(&mut self, slot: u32) -> &mut Entry<T> {
        &mut self.pages[Numbering::page(slot) as usize].entries[Numbering::offset(slot)]
    }

    /// Reads what a cancel or a reschedule of these handles will read, so that the processor fetches all of it side by side.
    /// The only effect is that the next calls are faster.
    pub(crate) fn prefetch(&self, handles: &[Handle]) {
        let tags = handles.iter().map(|handle| self.get(*handle).map_or(0, |entry| entry.tag));
        black_box(tags.fold(0, |all, tag| all | tag));
    }

    /// The keys of the entries that are still in a bucket, for consecutive slots of its list. The first is at `position`.
    #[inline]
    pub(crate) fn keys_in_bucket(&self, slots: &[u32], position: u32) -> impl Iterator<Item = ReleaseKey> {
        let slots = slots.iter().zip(position..);
        slots.filter_map(move |(slot, position)| Some(self.entry_at_position(*slot, position)?.key(*slot)))
    }

    /// The entry in a slot, if it is at this position of a bucket.
    #[inline]
    fn entry_at_position(&self, slot: u32, position: u32) -> Option<&Entry<T>> {
        let page = self.pages.get(Numbering::page(slot) as usize)?;
        let entry = page.entries.get(Numbering::offset(slot))?;
        (entry.place == Place::Bucket(position)).then_some(entry)
    }

    /// The entries of one page, with their handles; `None` past the last page. A long walk takes a page as a step.
    pub(crate) fn page(&self, number: usize) -> Option<impl Iterator<Item = (Handle, &Entry<T>, &T)>> {
        let page = self.pages.get(number)?;
        Some(page.entries.iter().enumerate().filter_map(move |(offset, entry)| {
            let slot = Numbering::number(number as u32, offset);
            let task = entry.task.as_ref()?;
            Some((Handle::new(slot, entry.generation), entry, task))
        }))
    }

    /// Its memory in bytes, with 8 bytes for a task, the size of a pointer. O(pages).
    pub(crate) fn bytes(&self) -> usize {
        let entries: usize = self.pages.iter().map(|page| page.entries.capacity()).sum();
        entries * size_of::<Entry<Box<()>>>() + self.pages.capacity() * size_of::<Page<T>>()
    }

    /// Sets the generation of a slot that is in use; returns its new handle.
    #[cfg(test)]
    pub(crate) fn set_generation(&mut self, handle: Handle, generation: u32) -> Handle {
        self.entry_in_mut(handle.slot()).generation = generation;
        Handle::new(handle.slot(), generation)
    }
}

/// The items of a bucket's list are slots. A position is unique in all lists, so it identifies the entry.
impl<T> Positions<u32> for Slab<T> {
    #[inline]
    fn is_at_position(&self, slot: u32, position: u32) -> bool {
        self.entry_at_position(slot, position).is_some()
    }

    #[inline]
    fn set_position(&mut self, slot: u32, position: u32) {
        self.entry_in_mut(slot).place = Place::Bucket(position);
    }
}

/// The items of the front's lists are keys, which identify the entry by themselves.
impl<T> Positions<ReleaseKey> for Slab<T> {
    fn is_at_position(&self, key: ReleaseKey, _position: u32) -> bool {
        self.get(key.handle).is_some()
    }

    #[inline]
    fn set_position(&mut self, key: ReleaseKey, position: u32) {
        self.entry_in_mut(key.handle.slot()).place = Place::Front(position);
    }
}

#[cfg(test)]
mod tests;
