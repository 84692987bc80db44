//! Lists in pages: items are appended at the end, read from the beginning, and removed anywhere.
//!
//! All lists of a pool share its pages. A list is a ring of pages. Its last page names it, and only the last page
//! grows. A position names an item: the number of a page and an offset. The entry of an item keeps its position
//! ([`Positions`]), the list does not know which of its items are live. A remove therefore only lowers the page's count
//! of live items. The removed item stays until its page is freed.
//!
//! A page without live items leaves its list at once, and its number is used again: no entry names it then. So memory and
//! positions follow the number of live items, however many have come and gone. For each page that is filled a few others
//! are checked, and two sparse neighbours are merged into one. No call does more work than a few pages take. Everything is
//! O(1), amortized.
//!
//! Example: items a, b and c of a new list are on page 1, at offsets 0, 1 and 2. After b is removed, the page counts two.
//! After a and c are removed too, the page is empty, and the next item is at offset 0 again.

mod memory;
mod merge;
mod page;
mod splice;

use page::{NO_PAGE, Numbering, Page};

/// The position of no item: one page fewer than there could be is used.
pub(super) const NO_POSITION: u32 = u32::MAX;

/// Where the entries of a list keep their positions.
pub(crate) trait Positions<I> {
    /// Whether the item's entry is live and at this position.
    fn is_at_position(&self, item: I, position: u32) -> bool;

    /// The item's entry is at this position now.
    fn set_position(&mut self, item: I, position: u32);
}

/// A list of a pool, named by the number of its last page. Zero is an empty list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct List(pub(super) u32);

/// Lists that share their pages.
#[derive(Debug)]
pub(super) struct ListPool<I> {
    /// By number. The first one, [`NO_PAGE`], is never used.
    pages: Vec<Page<I>>,
    free_pages: Vec<u32>,
    /// The memory of an empty page, for the next page that needs some.
    spare_memory: Vec<I>,
    /// The page that was last compared with the next one.
    last_compared: usize,
}

impl<I> Default for ListPool<I> {
    fn default() -> Self {
        Self { pages: vec![Page::NEW], free_pages: Vec::new(), spare_memory: Vec::new(), last_compared: 0 }
    }
}

impl<I: Copy> ListPool<I> {
    /// Appends an item, and sets its position. Returns the list, which may have a new last page.
    #[expect(clippy::inline_always, reason = "a call that answers through memory is a tenth of an add")]
    #[inline(always)]
    pub(super) fn push(&mut self, mut list: List, item: I, positions: &mut impl Positions<I>) -> List {
        let mut page = &mut self.pages[list.0 as usize];
        if page.items.len() == page.items.capacity() {
            list = self.grow(list, 1, positions);
            page = &mut self.pages[list.0 as usize];
        }
        let position = Numbering::number(list.0, page.items.len());
        page.items.push(item); // directly after the check above, so that it does not check again
        page.live_count += 1;
        positions.set_position(item, position);
        list
    }

    /// As [`ListPool::push`] for many items.
    pub(super) fn extend(&mut self, mut list: List, mut items: &[I], positions: &mut impl Positions<I>) -> List {
        while !items.is_empty() {
            let page = &self.pages[list.0 as usize];
            if page.items.len() == page.items.capacity() {
                list = self.grow(list, items.len(), positions);
            }
            let page = &mut self.pages[list.0 as usize];
            let (now, later) = items.split_at(items.len().min(page.items.capacity() - page.items.len()));
            for (item, offset) in now.iter().zip(page.items.len()..) {
                positions.set_position(*item, Numbering::number(list.0, offset));
            }
            page.items.extend_from_slice(now);
            page.live_count += now.len() as u32;
            items = later;
        }
        list
    }

    /// The item at this position is not there any more.
    #[inline]
    pub(super) fn remove(&mut self, position: u32) {
        self.remove_from_page(position, 1);
    }

    /// As [`ListPool::remove`] for `count` items on the page of this position.
    #[inline]
    pub(super) fn remove_from_page(&mut self, position: u32, count: usize) {
        let number = Numbering::page(position);
        let page = &mut self.pages[number as usize];
        page.live_count -= count as u32;
        if page.live_count == 0 {
            self.page_emptied(number);
        }
    }

    /// Whether the list has no live item.
    pub(super) fn is_empty(&self, list: List) -> bool {
        let last = &self.pages[list.0 as usize];
        last.live_count == 0 && last.next == list.0
    }

    /// The next items to read, removed ones among them, and the position of the first. At least one of them is live; empty
    /// only if the list is.
    #[inline]
    pub(super) fn unread_items(&self, list: List) -> (u32, &[I]) {
        let first = self.pages[list.0 as usize].next;
        let page = &self.pages[first as usize];
        (Numbering::number(first, page.read_count as usize), &page.items[page.read_count as usize..])
    }

    /// The `count` items from this position on have been read. The caller removes the live ones next.
    #[inline]
    pub(super) fn mark_read(&mut self, position: u32, count: usize) {
        self.pages[Numbering::page(position) as usize].read_count += count as u32;
    }

    /// Frees the last page of an empty list.
    pub(super) fn free_list(&mut self, list: List) {
        debug_assert!(self.is_empty(list), "only an empty list is freed");
        if list.0 != NO_PAGE {
            self.free_page(list.0);
        }
    }

    /// The items that were not read, removed ones among them, with their positions.
    #[cfg(test)]
    pub(super) fn iter_unread(&self, list: List) -> impl Iterator<Item = (u32, &I)> {
        self.page_numbers(list).flat_map(|number| {
            let page = &self.pages[number as usize];
            let items = page.items.iter().enumerate().skip(page.read_count as usize);
            items.map(move |(offset, item)| (Numbering::number(number, offset), item))
        })
    }

    /// The pages of a list, from the first to the last.
    #[cfg(test)]
    fn page_numbers(&self, list: List) -> impl Iterator<Item = u32> {
        let first = Some(self.pages[list.0 as usize].next);
        std::iter::successors(first, move |number| (*number != list.0).then(|| self.pages[*number as usize].next))
    }

    /// Its memory in bytes. O(pages).
    pub(super) fn bytes(&self) -> usize {
        let items: usize = self.pages.iter().map(|page| page.items.capacity()).sum();
        (items + self.spare_memory.capacity()) * size_of::<I>()
            + self.pages.capacity() * size_of::<Page<I>>()
            + self.free_pages.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests;
