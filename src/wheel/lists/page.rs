//! The pages of a pool.

use super::{KEEP, KEPT_PAGES, List, MOST_PAGES, NONE, PAGE, Pages, Residents};

#[derive(Debug)]
pub(super) struct Page<I> {
    pub(super) items: Vec<I>,
    /// How many are alive and not yet read.
    pub(super) live: u32,
    /// How many have been read.
    pub(super) read: u32,
    pub(super) next: u32,
    pub(super) previous: u32,
    /// It is the last page of its list, the only one that grows; or it is free.
    pub(super) is_last: bool,
}

impl<I> Page<I> {
    pub(super) const NEW: Self =
        Self { items: Vec::new(), live: 0, read: 0, next: NONE, previous: NONE, is_last: true };
}

impl<I: Copy> Pages<I> {
    /// The last page is at its capacity, and `count` more items come.
    #[cold]
    pub(super) fn make_room(&mut self, list: List, count: usize, residents: &mut impl Residents<I>) -> List {
        let len = self.all[list.0 as usize].items.len();
        if list.0 != NONE && len < PAGE {
            self.reserve(list.0, (len + count).max(4 * len));
            return list;
        }
        let number = self.take_free();
        if list.0 == NONE {
            let page = &mut self.all[number as usize];
            (page.previous, page.next) = (number, number);
            self.reserve(number, count.max(4));
        } else {
            let last = &mut self.all[list.0 as usize];
            let first = std::mem::replace(&mut last.next, number);
            last.is_last = false;
            self.all[first as usize].previous = number;
            let page = &mut self.all[number as usize];
            (page.previous, page.next) = (list.0, first);
            self.reserve(number, PAGE);
            self.put_some_together(residents);
        }
        List(number)
    }

    /// Makes room for so many items in a page; for a whole page where it would be more than a few.
    fn reserve(&mut self, number: u32, count: usize) {
        let items = &mut self.all[number as usize].items;
        if count <= KEEP {
            items.reserve_exact(count.saturating_sub(items.len()));
        } else if items.capacity() < PAGE {
            let mut large = std::mem::take(&mut self.spare);
            large.reserve_exact(PAGE);
            large.append(items);
            *items = large;
        }
    }

    /// Nothing is alive in the page any more.
    #[inline]
    pub(super) fn emptied(&mut self, number: u32) {
        let page = &mut self.all[number as usize];
        if page.is_last {
            page.items.clear();
            page.read = 0;
            if page.items.capacity() > KEEP && page.next == number {
                self.keep(number);
            }
        } else {
            self.unlink(number);
        }
    }

    #[cold]
    pub(super) fn unlink(&mut self, number: u32) {
        let Page { next, previous, .. } = self.all[number as usize];
        self.all[previous as usize].next = next;
        self.all[next as usize].previous = previous;
        self.release(number);
        // The last page may have been emptied before this one: now it is alone.
        let page = &self.all[next as usize];
        if next == previous && page.live == 0 && page.items.capacity() > KEEP {
            self.keep(next);
        }
    }

    pub(super) fn release(&mut self, number: u32) {
        let page = &mut self.all[number as usize];
        page.items.clear();
        (page.live, page.read, page.is_last) = (0, 0, true);
        if page.items.capacity() > KEEP || self.free.len() >= KEPT_PAGES {
            self.keep(number);
        }
        self.free.push(number);
    }

    /// Takes the memory of an empty page away. The largest is kept for the next large page.
    #[cold]
    pub(super) fn keep(&mut self, number: u32) {
        let items = std::mem::take(&mut self.all[number as usize].items);
        if items.capacity() > self.spare.capacity() {
            self.spare = items;
        }
    }

    fn take_free(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            assert!(self.all.len() < MOST_PAGES, "a timer holds at most some 2^32 tasks");
            self.all.push(Page::NEW);
            (self.all.len() - 1) as u32
        })
    }
}
