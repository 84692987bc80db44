//! Splicing.

use super::{List, Pages};

impl<I: Copy> Pages<I> {
    /// Takes the first page out of a list of which nothing was read; returns it as a list, and the rest.
    pub(crate) fn split_first(&mut self, list: List) -> (List, List) {
        let first = self.all[list.0 as usize].next;
        if first == list.0 {
            return (list, List::default());
        }
        let page = &mut self.all[first as usize];
        let next = std::mem::replace(&mut page.next, first);
        (page.previous, page.is_last) = (first, true);
        self.all[list.0 as usize].next = next;
        self.all[next as usize].previous = list.0;
        (List(first), list)
    }

    /// Sorts the items of a list of one page, dead ones too, of which nothing was read. An entry knows in which page its
    /// item stands and needs no more.
    pub(crate) fn sort(&mut self, list: List) -> &[I]
    where
        I: Ord,
    {
        let page = &mut self.all[list.0 as usize];
        debug_assert!(page.read == 0 && page.next == list.0, "one page, unread");
        page.items.sort_unstable();
        &page.items
    }

    /// Appends a list that is not empty. O(1).
    pub(crate) fn append(&mut self, list: List, other: List) -> List {
        let mut last = list.0;
        if self.all[last as usize].live == 0 {
            // Only the last page of a list may be empty.
            let previous = self.all[last as usize].previous;
            if previous == last {
                self.close(list);
                return other;
            }
            self.unlink(last);
            last = previous;
        }
        let (first, first_of_other) = (self.all[last as usize].next, self.all[other.0 as usize].next);
        self.all[last as usize].is_last = false;
        self.link(last, first_of_other);
        self.link(other.0, first);
        other
    }

    fn link(&mut self, number: u32, next: u32) {
        self.all[number as usize].next = next;
        self.all[next as usize].previous = number;
    }
}
