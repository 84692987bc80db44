//! Lists in pages: items are appended at the end and read from the beginning. The wheel's buckets are such lists, and so are the
//! runs of the front.
//!
//! All lists of a pool share its pages. A list is a ring of pages. Its last page names it, and only the last page grows. So no call
//! copies millions of items, and a list is given away in O(1). A page that was read is free again.
//!
//! A list does not know which of its items still mean something: one whose entry has gone stays until it is read. If there are too
//! many of them, [`Lists::sweep`] goes through the pages. So memory follows the number of entries. No call does more work than
//! some pages take, and everything is O(1), amortized.

mod memory;
mod page;
mod splice;
mod sweep;

use page::{NO_PAGE, Page};

/// How many pages of a list [`Lists::len_of_long`] counts at most.
const MAX_COUNTED_PAGES: usize = 1024;

/// A list of a pool, named by the number of its last page. Zero is an empty list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct List(pub(crate) u32);

/// Lists that share their pages, of `PAGE_SIZE` items each.
#[derive(Debug)]
pub(crate) struct Lists<I, const PAGE_SIZE: usize> {
    /// By number. The first one, [`NO_PAGE`], is never used.
    pages: Vec<Page<I>>,
    free_pages: Vec<u32>,
    /// How many free pages keep their memory.
    kept_pages: usize,
    /// How many items were not read, in all lists.
    len: usize,
    /// The page that was swept last.
    last_swept: usize,
    /// How many items a sweep may look at.
    sweep_credit: usize,
}

impl<I: Copy, const PAGE_SIZE: usize> Lists<I, PAGE_SIZE> {
    /// `kept_pages`: how many free pages keep their memory.
    pub(crate) fn new(kept_pages: usize) -> Self {
        let pages = vec![Page::NEW];
        Self { pages, free_pages: Vec::new(), kept_pages, len: 0, last_swept: 0, sweep_credit: 0 }
    }

    /// How many items there are in all lists, also useless ones.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many pages the lists have.
    #[cfg(test)]
    pub(crate) fn used_pages(&self) -> usize {
        self.pages.len() - 1 - self.free_pages.len()
    }

    /// Appends an item. Returns the list, which may have a new last page.
    #[expect(clippy::inline_always, reason = "a call that answers through memory is a tenth of an add")]
    #[inline(always)]
    pub(crate) fn push(&mut self, list: List, item: I) -> List {
        self.len += 1;
        self.push_uncounted(list, item)
    }

    /// As [`Lists::push`], for an item that was just read: [`Lists::count_again`] comes next.
    #[expect(clippy::inline_always, reason = "see `Lists::push`")]
    #[inline(always)]
    pub(crate) fn push_uncounted(&mut self, mut list: List, item: I) -> List {
        let mut page = &mut self.pages[list.0 as usize];
        if page.items.len() == page.items.capacity() {
            list = self.grow(list, 1);
            page = &mut self.pages[list.0 as usize];
        }
        page.items.push(item); // directly after the check above, so that it does not check again
        list
    }

    pub(crate) fn count_again(&mut self, count: usize) {
        self.len += count;
    }

    pub(crate) fn uncount(&mut self, count: usize) {
        self.len -= count;
    }

    /// As [`Lists::push`] for many items.
    pub(crate) fn extend(&mut self, mut list: List, mut items: &[I]) -> List {
        self.len += items.len();
        while !items.is_empty() {
            let page = &self.pages[list.0 as usize];
            if page.items.len() == page.items.capacity() {
                list = self.grow(list, items.len());
            }
            let page = &mut self.pages[list.0 as usize];
            let (now, later) = items.split_at(items.len().min(page.items.capacity() - page.items.len()));
            page.items.extend_from_slice(now);
            items = later;
        }
        list
    }

    /// The next items of a list, those of one page; none only if the list is empty. [`Lists::mark_read`] says how many were read.
    #[inline]
    pub(crate) fn unread(&mut self, list: List) -> &[I] {
        self.first_unread_page(list).map_or(&[], |first| self.pages[first as usize].unread())
    }

    /// The first `count` items of [`Lists::unread`] have been read.
    #[inline]
    pub(crate) fn mark_read(&mut self, list: List, count: usize) {
        let first = self.pages[list.0 as usize].next;
        self.pages[first as usize].read_count += count as u32;
        self.len -= count;
    }

    /// Moves the next items to `batch`, as many as it has room for, but of one page. Returns how many; 0 only if the list is empty.
    #[inline]
    pub(crate) fn read(&mut self, list: List, batch: &mut [I]) -> usize {
        let unread = self.unread(list);
        let count = unread.len().min(batch.len());
        batch[..count].copy_from_slice(&unread[..count]);
        self.mark_read(list, count);
        count
    }

    /// The next item.
    pub(crate) fn peek(&mut self, list: List) -> Option<I> {
        self.unread(list).first().copied()
    }

    /// The first page that was not read to its end. The pages before it are freed.
    #[inline]
    fn first_unread_page(&mut self, list: List) -> Option<u32> {
        let first = self.pages[list.0 as usize].next;
        let page = &self.pages[first as usize];
        if (page.read_count as usize) < page.items.len() { Some(first) } else { self.free_read_pages(list) }
    }

    #[cold]
    fn free_read_pages(&mut self, list: List) -> Option<u32> {
        loop {
            let first = self.pages[list.0 as usize].next;
            let page = &mut self.pages[first as usize];
            if (page.read_count as usize) < page.items.len() {
                return Some(first);
            }
            if first == list.0 {
                page.empty();
                return None;
            }
            let next = page.next;
            self.pages[list.0 as usize].next = next;
            self.free_page(first);
        }
    }

    /// How many a list of more than two pages has; for a very long one, how many all lists have. O(pages).
    #[inline]
    pub(crate) fn len_of_long(&self, list: List) -> Option<usize> {
        let first = self.pages[list.0 as usize].next;
        (self.pages[first as usize].next != list.0 && first != list.0).then(|| self.long_len(list))
    }

    #[cold]
    fn long_len(&self, list: List) -> usize {
        let mut pages = self.pages_of(list);
        let counted = pages.by_ref().take(MAX_COUNTED_PAGES);
        let count = counted.map(|number| self.pages[number as usize].unread().len()).sum();
        if pages.next().is_some() { self.len } else { count }
    }

    /// Whether a list has at most this many, at most a page.
    #[inline]
    pub(crate) fn is_at_most(&self, list: List, count: usize) -> bool {
        let last = &self.pages[list.0 as usize];
        last.next == list.0 && last.unread().len() <= count
    }

    /// The numbers of the pages of a list, in order.
    pub(crate) fn pages_of(&self, list: List) -> impl Iterator<Item = u32> {
        let first = self.pages[list.0 as usize].next;
        let numbers = std::iter::successors(Some(first), move |number| {
            (*number != list.0).then(|| self.pages[*number as usize].next)
        });
        numbers.filter(|number| *number != NO_PAGE)
    }

    /// The items of a page that were not read.
    pub(crate) fn on_page(&self, number: u32) -> &[I] {
        self.pages.get(number as usize).map_or(&[], Page::unread)
    }

    /// All of a list that were not read.
    pub(crate) fn iter(&self, list: List) -> impl Iterator<Item = I> {
        self.pages_of(list).flat_map(|number| self.on_page(number).iter().copied())
    }

    /// Its memory in bytes. O(pages).
    pub(crate) fn bytes(&self) -> usize {
        let capacity: usize = self.pages.iter().map(|page| page.items.capacity()).sum();
        capacity * size_of::<I>()
            + self.pages.capacity() * size_of::<Page<I>>()
            + self.free_pages.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests;
