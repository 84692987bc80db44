//! The lists of reminders of all buckets, in pages that they share.
//!
//! A list is a ring of pages. Its last page names it, and only the last page grows. Reminders are appended at the end and read
//! from the beginning, a page that was read is free again. The order within a list means nothing: the front sorts what is due.
//!
//! A reminder whose entry has gone stays until it is read. If there are too many of them, [`Reminders::sweep`] goes through the
//! pages, one at a time, drops them, and merges sparse neighbours. So memory follows the number of slots.

use super::reminder::Reminder;

/// Reminders in a page.
pub(super) const PAGE_SIZE: usize = 512;
/// A page begins small, and has memory for all of them once it has more than this. An empty one keeps memory for this many: a
/// reminder that comes and goes again and again costs no allocation.
const SMALL_PAGE: usize = 64;
/// How many free pages keep their memory, whatever they have: as many as the buckets of a few levels need.
const MAX_FREE_PAGES_WITH_MEMORY: usize = 64;
/// How many pages of a list [`Reminders::len_of_long`] counts at most.
const MAX_COUNTED_PAGES: usize = 1024;
/// How many pages a sweep passes over in search of one that has reminders.
const MAX_SEARCHED_PAGES: usize = 64;
/// Two pages are merged if they fill no more than this of one: the merge must be worth its cost.
const MAX_MERGED: usize = PAGE_SIZE / 4 * 3;
/// No page: the list is new.
const NO_PAGE: u32 = 0;

/// A list, named by the number of its last page. Zero is an empty list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct List(pub(super) u32);

#[derive(Debug)]
struct Page {
    items: Vec<Reminder>,
    /// How many of them were read.
    read_count: u32,
    next: u32,
    /// Whether it is the last page of its list: only that page grows. A free page counts as one.
    is_last: bool,
}

impl Page {
    const NEW: Self = Self { items: Vec::new(), read_count: 0, next: NO_PAGE, is_last: true };

    fn unread(&self) -> &[Reminder] {
        &self.items[self.read_count as usize..]
    }
}

#[derive(Debug)]
pub(super) struct Reminders {
    /// By number. The first one, [`NO_PAGE`], is never used.
    pages: Vec<Page>,
    free_pages: Vec<u32>,
    /// How many were not read, in all lists.
    len: usize,
    /// The page that was swept last.
    last_swept: usize,
}

impl Default for Reminders {
    fn default() -> Self {
        Self { pages: vec![Page::NEW], free_pages: Vec::new(), len: 0, last_swept: 0 }
    }
}

impl Reminders {
    /// How many there are, also of entries that have gone.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends one. Returns the list, which may have a new last page.
    #[expect(clippy::inline_always, reason = "a call that answers through memory is a tenth of an add")]
    #[inline(always)]
    pub(super) fn push(&mut self, list: List, item: Reminder) -> List {
        self.len += 1;
        self.push_uncounted(list, item)
    }

    /// As [`Reminders::push`], for a reminder that was just read: [`Reminders::count_again`] comes next.
    #[expect(clippy::inline_always, reason = "see `Reminders::push`")]
    #[inline(always)]
    pub(super) fn push_uncounted(&mut self, mut list: List, item: Reminder) -> List {
        let mut page = &mut self.pages[list.0 as usize];
        if page.items.len() == page.items.capacity() {
            list = self.grow(list);
            page = &mut self.pages[list.0 as usize];
        }
        page.items.push(item); // directly after the check above, so that it does not check again
        list
    }

    pub(super) fn count_again(&mut self, count: usize) {
        self.len += count;
    }

    pub(super) fn uncount(&mut self, count: usize) {
        self.len -= count;
    }

    /// Moves the next reminders to `batch`, as many as it has room for, but of one page. Returns how many; 0 only if the list is
    /// empty.
    #[inline]
    pub(super) fn read(&mut self, list: List, batch: &mut [Reminder]) -> usize {
        let Some(first) = self.first_unread_page(list) else { return 0 };
        let page = &mut self.pages[first as usize];
        let unread = page.unread();
        let count = unread.len().min(batch.len());
        batch[..count].copy_from_slice(&unread[..count]);
        page.read_count += count as u32;
        self.len -= count;
        count
    }

    /// The next one.
    pub(super) fn peek(&mut self, list: List) -> Option<Reminder> {
        let first = self.first_unread_page(list)?;
        self.pages[first as usize].unread().first().copied()
    }

    /// The first page that was not read to its end. The pages before it are freed.
    #[inline]
    fn first_unread_page(&mut self, list: List) -> Option<u32> {
        loop {
            let first = self.pages[list.0 as usize].next;
            let page = &mut self.pages[first as usize];
            if (page.read_count as usize) < page.items.len() {
                return Some(first);
            }
            if first == list.0 {
                page.items.clear();
                page.read_count = 0;
                page.items.shrink_to(SMALL_PAGE);
                return None;
            }
            let next = page.next;
            self.pages[list.0 as usize].next = next;
            self.free_page(first);
        }
    }

    /// Frees the last page of an empty list.
    pub(super) fn free_list(&mut self, list: List) {
        debug_assert_eq!(self.iter(list).next(), None, "only an empty list is freed");
        if list.0 != NO_PAGE {
            self.free_page(list.0);
        }
    }

    /// How many a list of more than two pages has; for a very long one, how many all lists have. O(pages).
    #[inline]
    pub(super) fn len_of_long(&self, list: List) -> Option<usize> {
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
    pub(super) fn is_at_most(&self, list: List, count: usize) -> bool {
        let last = &self.pages[list.0 as usize];
        last.next == list.0 && last.unread().len() <= count
    }

    /// The numbers of the pages of a list, in order.
    pub(super) fn pages_of(&self, list: List) -> impl Iterator<Item = u32> {
        let first = self.pages[list.0 as usize].next;
        let numbers = std::iter::successors(Some(first), move |number| {
            (*number != list.0).then(|| self.pages[*number as usize].next)
        });
        numbers.filter(|number| *number != NO_PAGE)
    }

    /// The reminders of a page that were not read.
    pub(super) fn on_page(&self, number: u32) -> &[Reminder] {
        self.pages.get(number as usize).map_or(&[], Page::unread)
    }

    /// All of a list that were not read.
    pub(super) fn iter(&self, list: List) -> impl Iterator<Item = Reminder> {
        self.pages_of(list).flat_map(|number| self.on_page(number).iter().copied())
    }

    /// Drops the reminders of a page that `keep` rejects. The next call goes on with the next page.
    pub(super) fn sweep(&mut self, mut keep: impl FnMut(Reminder) -> bool) {
        for _ in 0..MAX_SEARCHED_PAGES.min(self.pages.len()) {
            self.last_swept = (self.last_swept + 1) % self.pages.len();
            let page = &self.pages[self.last_swept];
            if !page.items.is_empty() || !page.is_last {
                let number = self.last_swept as u32;
                self.retain_on_page(number, &mut keep);
                self.merge_with_next(number);
                self.shrink(number);
                return;
            }
        }
    }

    fn retain_on_page(&mut self, number: u32, keep: &mut impl FnMut(Reminder) -> bool) {
        let page = &mut self.pages[number as usize];
        page.items.drain(..page.read_count as usize);
        page.read_count = 0;
        let before = page.items.len();
        page.items.retain(|item| keep(*item));
        self.len -= before - page.items.len();
    }

    fn shrink(&mut self, number: u32) {
        let items = &mut self.pages[number as usize].items;
        if items.len() < items.capacity() / 2 && items.capacity() > SMALL_PAGE {
            items.shrink_to(SMALL_PAGE);
        }
    }

    /// Moves the reminders of the next page to this page, if neither page grows and all fit well. An empty page takes
    /// all of it, or it would not be free before its bucket expires.
    fn merge_with_next(&mut self, number: u32) {
        let page = &self.pages[number as usize];
        let next = &self.pages[page.next as usize];
        let fits = page.items.is_empty() || page.items.len() + next.unread().len() <= MAX_MERGED;
        if page.is_last || next.is_last || !fits {
            return;
        }
        let (next_number, after_next) = (page.next, next.next);
        let items = std::mem::take(&mut self.pages[next_number as usize].items);
        let read_count = self.pages[next_number as usize].read_count as usize;
        let page = &mut self.pages[number as usize];
        page.next = after_next;
        if page.items.is_empty() {
            (page.items, page.read_count) = (items, read_count as u32);
            self.last_swept = number as usize - 1; // it was not swept yet
        } else {
            page.items.extend_from_slice(&items[read_count..]);
        }
        self.free_page(next_number);
    }

    /// Its memory in bytes. O(pages).
    pub(super) fn bytes(&self) -> usize {
        let capacity: usize = self.pages.iter().map(|page| page.items.capacity()).sum();
        capacity * size_of::<Reminder>()
            + self.pages.capacity() * size_of::<Page>()
            + self.free_pages.capacity() * size_of::<u32>()
    }

    /// Makes room in a list whose last page has none: that page grows, or the list gets a new last page.
    #[cold]
    fn grow(&mut self, list: List) -> List {
        let len = self.pages[list.0 as usize].items.len();
        if list.0 != NO_PAGE && len < PAGE_SIZE {
            self.reserve(list.0, 4 * len.max(1));
            return list;
        }
        let number = self.take_free_page();
        if list.0 == NO_PAGE {
            self.pages[number as usize].next = number;
            self.reserve(number, 4);
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
        items.reserve_exact(count - items.len());
    }

    fn take_free_page(&mut self) -> u32 {
        self.free_pages.pop().unwrap_or_else(|| {
            self.pages.push(Page::NEW);
            (self.pages.len() - 1) as u32
        })
    }

    fn free_page(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        page.items.clear();
        (page.read_count, page.is_last) = (0, true);
        if self.free_pages.len() >= MAX_FREE_PAGES_WITH_MEMORY {
            page.items = Vec::new();
        }
        self.free_pages.push(number);
    }
}

#[cfg(test)]
mod tests;
