//! The memory of a slab: which of its pages have room, and which memory is kept.
//!
//! The generations of a page are in its entries. When a page loses its memory, it keeps the highest of them, and starts
//! above it when it gets memory again. So no handle is ever issued twice. One empty page keeps its memory until another
//! page needs it. So a task that comes and goes all the time costs no allocation.

use super::Slab;
use super::entry::{Entry, NO_SLOT};
use super::page::{MAX_PAGES, PAGE_SIZE, Page};

impl<T> Slab<T> {
    /// Adds a page that has no memory yet; returns its number.
    #[cold]
    pub(super) fn add_page(&mut self) -> u32 {
        assert!(self.pages.len() < MAX_PAGES, "a timer holds at most 2^32 tasks");
        let number = self.pages.len() as u32;
        self.pages.push(Page {
            entries: Vec::new(),
            first_free: NO_SLOT,
            live_count: 0,
            first_generation: 0,
            highest_generation: 0,
            has_room: true,
            tags: None,
        });
        self.pages_with_room.push(number);
        number
    }

    /// Gives a page memory: that of the spare page, or new memory.
    #[cold]
    pub(super) fn allocate(&mut self, number: u32) {
        let pages = &self.pages;
        let spare = self.spare_page.take_if(|spare| pages[*spare as usize].live_count == 0);
        let mut entries = spare.map_or_else(Vec::new, |spare| self.take_memory(spare));
        entries.clear();
        entries.reserve_exact(PAGE_SIZE);
        self.pages_with_memory += 1;
        self.pages[number as usize].entries = entries;
    }

    /// Makes an empty page the spare one. It loses its memory if there is a spare page already, or if none of its slots has
    /// a generation left.
    #[cold]
    pub(super) fn page_emptied(&mut self, number: u32) {
        let has_spare = self.spare_page.is_some_and(|spare| self.pages[spare as usize].live_count == 0);
        if !has_spare && self.pages[number as usize].has_room {
            self.spare_page = Some(number);
        } else {
            self.take_memory(number);
        }
    }

    /// Takes the memory of an empty page.
    fn take_memory(&mut self, number: u32) -> Vec<Entry<T>> {
        let page = &mut self.pages[number as usize];
        self.pages_with_memory -= 1;
        page.first_generation = page.first_generation.max(page.highest_generation);
        page.first_free = NO_SLOT;
        page.tags = None;
        let entries = std::mem::take(&mut page.entries);
        if page.first_generation == u32::MAX && page.has_room {
            page.has_room = false;
            self.pages_with_room.retain(|page| *page != number);
        } else if page.first_generation < u32::MAX && !page.has_room {
            page.has_room = true;
            self.pages_with_room.push(number);
        }
        entries
    }
}
