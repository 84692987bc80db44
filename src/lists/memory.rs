//! The memory of a pool: how a list gets room, and what becomes of a page that is not needed any more.

use super::page::{NO_PAGE, Page, SMALL_PAGE};
use super::{List, Lists};

impl<I: Copy, const PAGE_SIZE: usize> Lists<I, PAGE_SIZE> {
    /// Makes room for the next of `count` items in a list whose last page has none: that page grows, or the list gets a new
    /// last page.
    #[cold]
    pub(super) fn grow(&mut self, list: List, count: usize) -> List {
        let len = self.pages[list.0 as usize].items.len();
        if list.0 != NO_PAGE && len < PAGE_SIZE {
            self.reserve(list.0, (len + count).max(4 * len));
            return list;
        }
        let number = self.take_free_page();
        if list.0 == NO_PAGE {
            self.pages[number as usize].next = number;
            self.reserve(number, count.max(4));
        } else {
            let last = &mut self.pages[list.0 as usize];
            last.is_last = false;
            let first = std::mem::replace(&mut last.next, number);
            self.pages[number as usize].next = first;
            self.reserve(number, PAGE_SIZE);
        }
        List(number)
    }

    /// Makes room for this many in a page: for a full page if they are more than [`SMALL_PAGE`].
    fn reserve(&mut self, number: u32, count: usize) {
        let items = &mut self.pages[number as usize].items;
        let count = if count > SMALL_PAGE { PAGE_SIZE } else { count };
        items.reserve_exact(count.saturating_sub(items.len()));
    }

    fn take_free_page(&mut self) -> u32 {
        self.free_pages.pop().unwrap_or_else(|| {
            self.pages.push(Page::NEW);
            (self.pages.len() - 1) as u32
        })
    }

    /// Frees a list with all that is left in it. O(pages).
    pub(crate) fn free_list(&mut self, list: List) {
        if list == List::default() {
            return;
        }
        loop {
            let first = self.pages[list.0 as usize].next;
            let next = self.pages[first as usize].next;
            self.len -= self.pages[first as usize].unread().len();
            self.free_page(first);
            if first == list.0 {
                return;
            }
            self.pages[list.0 as usize].next = next;
        }
    }

    pub(super) fn free_page(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        page.items.clear();
        (page.read_count, page.is_last) = (0, true);
        if self.free_pages.len() >= self.kept_pages {
            page.items = Vec::new();
        }
        self.free_pages.push(number);
    }
}
