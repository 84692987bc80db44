//! The memory of a pool: how a list gets room, and what becomes of the memory of an empty page.
//!
//! A page begins small and grows to [`SMALL_PAGE`] items, then to its full size. An empty page keeps small memory: an
//! item that comes and goes again and again costs no allocation. Larger memory becomes the pool's spare memory, at most
//! that of one page.

use super::page::{NO_PAGE, Numbering, PAGE_SIZE, Page};
use super::{List, ListPool, Positions};

/// An empty page keeps memory for this many items.
pub(super) const SMALL_PAGE: usize = 64;
/// How many free pages keep it.
const MAX_FREE_PAGES_WITH_MEMORY: usize = 64;

impl<I: Copy> ListPool<I> {
    /// Makes room for the next of `count` items in a list whose last page has none: that page grows, or the list gets a new
    /// last page.
    #[cold]
    pub(super) fn grow(&mut self, list: List, count: usize, positions: &mut impl Positions<I>) -> List {
        let len = self.pages[list.0 as usize].items.len();
        if list.0 != NO_PAGE && len < PAGE_SIZE {
            self.reserve(list.0, (len + count).max(4 * len));
            return list;
        }
        let number = self.take_free_page();
        if list.0 == NO_PAGE {
            self.link(number, number);
            self.reserve(number, count.max(4));
        } else {
            let last = &mut self.pages[list.0 as usize];
            last.is_last = false;
            let first = last.next;
            self.link(list.0, number);
            self.link(number, first);
            self.reserve(number, PAGE_SIZE);
            self.merge_some_pages(positions);
        }
        List(number)
    }

    /// Makes room for this many items in a page: for a full page if they are more than [`SMALL_PAGE`].
    fn reserve(&mut self, number: u32, count: usize) {
        let items = &mut self.pages[number as usize].items;
        if count <= SMALL_PAGE {
            items.reserve_exact(count.saturating_sub(items.len()));
        } else if items.capacity() < PAGE_SIZE {
            let mut memory = std::mem::take(&mut self.spare_memory);
            memory.reserve_exact(PAGE_SIZE);
            memory.append(items);
            *items = memory;
        }
    }

    /// The page has no live item any more.
    #[inline]
    pub(super) fn page_emptied(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        if page.is_last {
            page.items.clear();
            page.read_count = 0;
            if page.items.capacity() > SMALL_PAGE && page.next == number {
                self.take_memory(number);
            }
        } else {
            self.remove_page(number);
        }
    }

    /// Removes an empty page from its list.
    #[cold]
    pub(super) fn remove_page(&mut self, number: u32) {
        let Page { next, previous, .. } = self.pages[number as usize];
        self.link(previous, next);
        self.free_page(number);
        // The last page may have become empty before this one. Now it is alone.
        let page = &self.pages[next as usize];
        if next == previous && page.live_count == 0 && page.items.capacity() > SMALL_PAGE {
            self.take_memory(next);
        }
    }

    pub(super) fn free_page(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        page.items.clear();
        (page.live_count, page.read_count, page.is_last) = (0, 0, true);
        if page.items.capacity() > SMALL_PAGE || self.free_pages.len() >= MAX_FREE_PAGES_WITH_MEMORY {
            self.take_memory(number);
        }
        self.free_pages.push(number);
    }

    /// Takes the memory of an empty page. It becomes the spare memory if the spare memory is smaller.
    #[cold]
    fn take_memory(&mut self, number: u32) {
        let memory = std::mem::take(&mut self.pages[number as usize].items);
        if memory.capacity() > self.spare_memory.capacity() {
            self.spare_memory = memory;
        }
    }

    fn take_free_page(&mut self) -> u32 {
        self.free_pages.pop().unwrap_or_else(|| {
            // Not the last page: `NO_POSITION` is there.
            assert!(self.pages.len() < Numbering::MAX_PAGES - 1, "a timer holds at most some 2^32 tasks");
            self.pages.push(Page::NEW);
            (self.pages.len() - 1) as u32
        })
    }

    pub(super) fn link(&mut self, number: u32, next: u32) {
        self.pages[number as usize].next = next;
        self.pages[next as usize].previous = number;
    }
}
