//! The slab: all entries of a timer, found by slot and generation.
//!
//! A handle is a slot and its generation. A slot that becomes free takes the next generation, so an old handle finds
//! nothing. A move gives the entry another number and no other generation. So keys and tickets, which must not find a moved
//! entry, have the number. Slots are in pages of fixed size: no add copies millions of entries, and an empty page returns its memory
//! (one page keeps it, see [`memory`]). A slot without generations left is never used again. Insert, look-up and remove are
//! O(1).
//!
//! Example: the first entry gets slot 0, generation 0. After it is removed, the next entry gets slot 0, generation 1.

mod entry;
mod handle;
mod memory;
mod page;
mod ticket;

use std::hint::black_box;

#[cfg(test)]
pub(crate) use entry::MAX_NUMBER;
pub(crate) use entry::{Entry, Place, ReleaseKey, WaitBy};
use entry::{NO_SLOT, Stage};
pub use handle::Handle;
use page::{Numbering, PAGE_SIZE, Page};
pub use ticket::Ticket;

use super::reminder::Reminder;

/// What a slot had.
#[derive(Debug)]
pub(crate) struct Removed<T> {
    pub(crate) handle: Handle,
    pub(crate) task: T,
    pub(crate) tag: u32,
    pub(crate) due_us: u64,
    pub(crate) number: u64,
    pub(crate) place: Place,
}

#[derive(Debug)]
pub struct Slab<T> {
    pages: Vec<Page<T>>,
    /// The pages with free slots; the last one is used next.
    pages_with_room: Vec<u32>,
    /// The page that keeps its memory when it is empty; it may be in use.
    spare_page: Option<u32>,
    pages_with_memory: usize,
    len: usize,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { pages: Vec::new(), pages_with_room: Vec::new(), spare_page: None, pages_with_memory: 0, len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// How many slots have memory.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.pages_with_memory * PAGE_SIZE
    }

    /// How many slots there are, with or without memory.
    pub(crate) fn slots(&self) -> usize {
        self.pages.len() * PAGE_SIZE
    }

    /// Puts a task into a free slot. Returns also what it needs in order to wait; before `tick_end_us` it is for the front.
    #[expect(clippy::inline_always, reason = "a call that answers through memory is a tenth of an add")]
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        (due_us, number): (u64, u64),
        tick_end_us: u64,
        task: T,
        tag: u32,
    ) -> (Handle, WaitBy) {
        let page_number = self.pages_with_room.last().copied().unwrap_or_else(|| self.add_page());
        let mut page = &mut self.pages[page_number as usize];
        let (offset, entry, is_full) = if page.first_free == NO_SLOT {
            if page.entries.capacity() == 0 {
                self.allocate(page_number);
                page = &mut self.pages[page_number as usize];
            }
            let offset = page.entries.len();
            page.entries.push(Entry::new(page.first_generation));
            (offset, &mut page.entries[offset], offset + 1 == PAGE_SIZE)
        } else {
            let offset = page.first_free as usize;
            let are_all_used = page.entries.len() == PAGE_SIZE;
            let entry = &mut page.entries[offset];
            page.first_free = entry.number() as u32;
            (offset, entry, page.first_free == NO_SLOT && are_all_used)
        };
        let wait_by = entry.wait(due_us, number, tick_end_us);
        entry.task = Some(task);
        let generation = entry.generation;
        if tag > 0 || page.tags.is_some() {
            page.set_tag(offset, tag);
        }
        page.live_count += 1;
        if is_full {
            page.has_room = false;
            self.pages_with_room.pop();
        }
        self.len += 1;
        (Handle::new(Numbering::number(page_number, offset), generation), wait_by)
    }

    /// Frees the slot and moves its task out; `None` for a stale handle. The place says where the caller must remove it too.
    #[expect(clippy::inline_always, reason = "a call that answers through memory is a tenth of a cancel")]
    #[inline(always)]
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Removed<T>> {
        self.remove_if(handle.slot(), |entry| entry.generation == handle.generation())
    }

    /// As [`Slab::remove`], for a released entry.
    #[expect(clippy::inline_always, reason = "see `Slab::remove`")]
    #[inline(always)]
    pub(crate) fn remove_released(&mut self, ticket: Ticket) -> Option<Removed<T>> {
        self.remove_if(ticket.slot(), |entry| entry.is_released_as(ticket))
    }

    #[expect(clippy::inline_always, reason = "see `Slab::remove`")]
    #[inline(always)]
    fn remove_if(&mut self, slot: u32, is_it: impl FnOnce(&Entry<T>) -> bool) -> Option<Removed<T>> {
        let (page_number, offset) = (Numbering::page(slot), Numbering::offset(slot));
        let page = self.pages.get_mut(page_number as usize)?;
        let entry = page.entries.get_mut(offset)?;
        if !is_it(entry) {
            return None;
        }
        let task = entry.task.take()?;
        let (handle, due_us, number, place) = (entry.handle(slot), entry.due_us, entry.number(), entry.place());
        // The last generation is never issued, so a first generation of u32::MAX marks a page with none left.
        entry.generation += 1;
        let stage = if place == Place::Bucket { Stage::Dormant } else { Stage::Free };
        entry.set_number_and_stage(page.first_free.into(), stage);
        page.highest_generation = page.highest_generation.max(entry.generation);
        let is_reusable = entry.generation < u32::MAX;
        let tag = page.tag(offset);
        if is_reusable {
            page.first_free = offset as u32;
            if !page.has_room {
                page.has_room = true;
                self.pages_with_room.push(page_number);
            }
        }
        page.live_count -= 1;
        self.len -= 1;
        if page.live_count == 0 && self.spare_page != Some(page_number) {
            self.page_emptied(page_number);
        }
        Some(Removed { handle, task, tag, due_us, number, place })
    }

    /// Gives a task another due instant and number. Returns its old place and key, from where the caller removes it, and what it
    /// needs in order to wait. `None` for a stale handle.
    #[inline]
    pub(crate) fn reschedule(
        &mut self,
        handle: Handle,
        (due_us, number): (u64, u64),
        tick_end_us: u64,
    ) -> Option<(Place, ReleaseKey, WaitBy)> {
        let entry = self.get_mut(handle)?;
        let (place, key) = (entry.place(), entry.key(handle.slot()));
        Some((place, key, entry.wait(due_us, number, tick_end_us)))
    }

    /// Whether an entry waits in the front by this key.
    #[inline]
    pub(crate) fn is_in_front(&self, key: &ReleaseKey) -> bool {
        self.in_slot(key.slot).is_some_and(|entry| entry.waits_in_front_as(key.number))
    }

    /// Releases the entry that waits in the front by this key; `None` if there is none.
    #[inline]
    pub(crate) fn release(&mut self, key: &ReleaseKey) -> Option<Ticket> {
        let page = self.pages.get_mut(Numbering::page(key.slot) as usize)?;
        let entry = page.entries.get_mut(Numbering::offset(key.slot))?;
        if !entry.waits_in_front_as(key.number) {
            return None;
        }
        entry.set_released();
        Some(Ticket::new(key.slot, key.number))
    }

    /// The released entry of this ticket.
    #[inline]
    pub(crate) fn released(&self, ticket: Ticket) -> Option<&Entry<T>> {
        self.in_slot(ticket.slot()).filter(|entry| entry.is_released_as(ticket))
    }

    /// An entry that was taken out of the wheel waits for the same instant again.
    #[inline]
    pub(super) fn wait_again(&mut self, key: &ReleaseKey, tick_end_us: u64) -> WaitBy {
        self.entry_in_mut(key.slot).wait(key.due_us, key.number, tick_end_us)
    }

    /// The entry that waits for this reminder, if any.
    #[inline]
    pub(super) fn reminded(&self, reminder: Reminder) -> Option<&Entry<T>> {
        let entry = self.with_mark(reminder)?;
        entry.is_in(Stage::Bucket).then_some(entry)
    }

    /// Takes out of the wheel the entry that waits for this reminder, if any. The caller puts its key into the front, or places it
    /// again.
    #[inline]
    pub(super) fn take_reminded(&mut self, reminder: Reminder) -> Option<ReleaseKey> {
        let entry = self.with_mark_mut(reminder)?;
        if entry.is_in(Stage::Bucket) {
            entry.set_stage(Stage::Front); // unless the caller places it again; a second reminder that looks the same finds nothing
            return Some(entry.key(reminder.slot()));
        }
        if entry.is_in(Stage::Dormant) {
            entry.set_stage(Stage::Free);
        }
        None
    }

    /// Whether an entry waits for this reminder. If none does, the caller drops the reminder.
    #[inline]
    pub(super) fn is_awaited(&mut self, reminder: Reminder) -> bool {
        let Some(entry) = self.with_mark_mut(reminder) else { return false };
        if entry.is_in(Stage::Dormant) {
            entry.set_stage(Stage::Free);
        }
        entry.is_in(Stage::Bucket)
    }

    #[inline]
    fn with_mark(&self, reminder: Reminder) -> Option<&Entry<T>> {
        let page = self.pages.get(Numbering::page(reminder.slot()) as usize)?;
        let entry = page.entries.get(Numbering::offset(reminder.slot()))?;
        (entry.mark() == reminder.mark()).then_some(entry)
    }

    #[inline]
    fn with_mark_mut(&mut self, reminder: Reminder) -> Option<&mut Entry<T>> {
        let page = self.pages.get_mut(Numbering::page(reminder.slot()) as usize)?;
        let entry = page.entries.get_mut(Numbering::offset(reminder.slot()))?;
        (entry.mark() == reminder.mark()).then_some(entry)
    }

    /// The number that the caller gave with the task of this slot.
    pub(crate) fn tag(&self, slot: u32) -> u32 {
        self.pages[Numbering::page(slot) as usize].tag(Numbering::offset(slot))
    }

    /// The entry, unless the handle is stale.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&Entry<T>> {
        let page = self.pages.get(Numbering::page(handle.slot()) as usize)?;
        let entry = page.entries.get(Numbering::offset(handle.slot()))?;
        (entry.generation == handle.generation() && entry.task.is_some()).then_some(entry)
    }

    /// The entry of a slot, whatever its generation, or what is left of the last one.
    #[inline]
    fn in_slot(&self, slot: u32) -> Option<&Entry<T>> {
        self.pages.get(Numbering::page(slot) as usize)?.entries.get(Numbering::offset(slot))
    }

    /// As [`Slab::get`], to write.
    #[inline]
    fn get_mut(&mut self, handle: Handle) -> Option<&mut Entry<T>> {
        let page = self.pages.get_mut(Numbering::page(handle.slot()) as usize)?;
        let entry = page.entries.get_mut(Numbering::offset(handle.slot()))?;
        (entry.generation == handle.generation() && entry.task.is_some()).then_some(entry)
    }

    /// The entry in a slot that is in use, because a bucket or the front names it.
    #[inline]
    pub(crate) fn entry_in_mut(&mut self, slot: u32) -> &mut Entry<T> {
        &mut self.pages[Numbering::page(slot) as usize].entries[Numbering::offset(slot)]
    }

    /// Reads the memory that a cancel or a reschedule of these handles will read. So the processor fetches all of it at
    /// the same time. The only effect is that the next calls are faster.
    pub(crate) fn prefetch(&self, handles: &[Handle]) {
        black_box(handles.iter().fold(0, |all, handle| all | self.prefetched(handle.slot())));
    }

    /// As [`Slab::prefetch`], for a claim.
    pub fn prefetch_released(&self, ticket: Ticket) {
        black_box(self.prefetched(ticket.slot()));
    }

    /// Reads both ends of an entry, which may lie in two lines of the processor's cache.
    #[inline]
    fn prefetched(&self, slot: u32) -> u64 {
        self.in_slot(slot).map_or(0, |entry| entry.due_us | u64::from(entry.generation))
    }

    /// Reads what a look at the entries of these reminders will read, as [`Slab::prefetch`].
    #[inline]
    pub(super) fn prefetch_reminded(&self, reminders: &[Reminder]) {
        let all = reminders.iter().map(|reminder| self.with_mark(*reminder).is_some());
        black_box(all.fold(false, |all, is_good| all | is_good));
    }

    /// The entries of one page, with their handles; `None` past the last page. A long walk takes a page as a step.
    pub(crate) fn page(&self, number: usize) -> Option<impl Iterator<Item = (Handle, &Entry<T>, &T)>> {
        let page = self.pages.get(number)?;
        Some(page.entries.iter().enumerate().filter_map(move |(offset, entry)| {
            let slot = Numbering::number(number as u32, offset);
            let task = entry.task.as_ref()?;
            Some((entry.handle(slot), entry, task))
        }))
    }

    /// Its memory in bytes, with 8 bytes for a task, the size of a pointer. O(pages).
    pub(crate) fn bytes(&self) -> usize {
        let entries: usize = self.pages.iter().map(|page| page.entries.capacity()).sum();
        let tags: usize = self.pages.iter().map(Page::bytes_of_tags).sum();
        entries * size_of::<Entry<Box<()>>>() + tags + self.pages.capacity() * size_of::<Page<T>>()
    }

    /// Sets the generation of a slot that is in use; returns its new handle.
    #[cfg(test)]
    pub(crate) fn set_generation(&mut self, handle: Handle, generation: u32) -> Handle {
        self.entry_in_mut(handle.slot()).generation = generation;
        Handle::new(handle.slot(), generation)
    }
}

#[cfg(test)]
mod tests;
