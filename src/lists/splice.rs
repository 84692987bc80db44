//! Splitting, sorting and joining lists by whole pages.

use super::{List, Lists};

impl<I: Copy, const PAGE_SIZE: usize> Lists<I, PAGE_SIZE> {
    /// Splits off the first page. Returns it as a list, and the rest.
    pub(crate) fn split_first_page(&mut self, list: List) -> (List, List) {
        let first = self.pages[list.0 as usize].next;
        if first == list.0 {
            return (list, List::default());
        }
        let next = self.pages[first as usize].next;
        let page = &mut self.pages[first as usize];
        (page.is_last, page.next) = (true, first);
        self.pages[list.0 as usize].next = next;
        (List(first), list)
    }

    /// Sorts the items of a list of one page, of which none was read.
    pub(crate) fn sort_page(&mut self, list: List) -> &[I]
    where
        I: Ord,
    {
        let page = &mut self.pages[list.0 as usize];
        debug_assert!(page.read_count == 0 && page.next == list.0, "one page, unread");
        page.items.sort_unstable();
        &page.items
    }

    /// Appends a list that is not new. O(1).
    pub(crate) fn append(&mut self, list: List, other: List) -> List {
        if list == List::default() {
            return other;
        }
        let first = self.pages[list.0 as usize].next;
        let first_of_other = std::mem::replace(&mut self.pages[other.0 as usize].next, first);
        let last = &mut self.pages[list.0 as usize];
        (last.is_last, last.next) = (false, first_of_other);
        other
    }
}
