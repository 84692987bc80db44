//! Splitting, sorting and joining lists by whole pages, for lists of which no item was read.

use super::{List, ListPool};

impl<I: Copy> ListPool<I> {
    /// Splits off the first page. Returns it as a list, and the rest.
    pub(in crate::front) fn split_first_page(&mut self, list: List) -> (List, List) {
        let first = self.pages[list.0 as usize].next;
        if first == list.0 {
            return (list, List::default());
        }
        let next = self.pages[first as usize].next;
        self.pages[first as usize].is_last = true;
        self.link(first, first);
        self.link(list.0, next);
        (List(first), list)
    }

    /// Sorts the items of a list of one page, removed ones among them. Their entries keep the page of their position, and
    /// need no offset after that.
    pub(in crate::front) fn sort_page(&mut self, list: List) -> &[I]
    where
        I: Ord,
    {
        let page = &mut self.pages[list.0 as usize];
        debug_assert!(page.read_count == 0 && page.next == list.0, "one page, unread");
        page.items.sort_unstable();
        &page.items
    }

    /// Appends a list that is not empty. O(1).
    pub(in crate::front) fn append(&mut self, list: List, other: List) -> List {
        let mut last = list.0;
        if self.pages[last as usize].live_count == 0 {
            // Only the last page of a list may be empty.
            let previous = self.pages[last as usize].previous;
            if previous == last {
                self.free_list(list);
                return other;
            }
            self.remove_page(last);
            last = previous;
        }
        let (first, first_of_other) = (self.pages[last as usize].next, self.pages[other.0 as usize].next);
        self.pages[last as usize].is_last = false;
        self.link(last, first_of_other);
        self.link(other.0, first);
        other
    }
}
