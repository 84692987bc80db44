//! Dropping useless items, and merging sparse neighbours: what keeps the memory of a pool near what it is needed for.

use super::Lists;
use super::page::{Page, SMALL_PAGE};

/// Every so many calls go through a page, so a batch of 64 cancels, which holds the lock, goes through four.
const CALLS_PER_PAGE: usize = 16;
/// How many pages a sweep passes over in search of one that has items.
const MAX_SEARCHED_PAGES: usize = 64;

impl<I: Copy, const PAGE_SIZE: usize> Lists<I, PAGE_SIZE> {
    /// Drops the items that `keep` rejects from some of the pages, if there are more than `limit` items, and from more pages if there
    /// are more than `far_limit`. The next call goes on with the next pages. Call it when one more item has become useless. O(1):
    /// at most the work of some pages.
    #[inline]
    pub(crate) fn sweep_if_above(&mut self, limit: usize, far_limit: usize, keep: impl FnMut(I) -> bool) {
        if self.len > limit {
            self.sweep_some(self.len > far_limit, keep);
        }
    }

    #[cold]
    fn sweep_some(&mut self, is_far_above: bool, mut keep: impl FnMut(I) -> bool) {
        self.sweep_credit += if is_far_above { 3 * PAGE_SIZE } else { PAGE_SIZE / CALLS_PER_PAGE };
        while self.sweep_credit >= PAGE_SIZE {
            self.sweep_credit -= PAGE_SIZE;
            self.sweep_page(&mut keep);
        }
    }

    pub(super) fn sweep_page(&mut self, keep: &mut impl FnMut(I) -> bool) {
        for _ in 0..MAX_SEARCHED_PAGES.min(self.pages.len()) {
            self.last_swept = (self.last_swept + 1) % self.pages.len();
            let page = &self.pages[self.last_swept];
            if !page.items.is_empty() || !page.is_last {
                let number = self.last_swept as u32;
                self.retain_on_page(number, keep);
                self.merge_with_next(number);
                self.shrink(number);
                return;
            }
        }
    }

    fn retain_on_page(&mut self, number: u32, keep: &mut impl FnMut(I) -> bool) {
        let page = &mut self.pages[number as usize];
        page.items.drain(..page.read_count as usize);
        page.read_count = 0;
        let before = page.items.len();
        page.items.retain(|item| keep(*item));
        self.len -= before - page.items.len();
    }

    fn shrink(&mut self, number: u32) {
        let Page { items, is_last, .. } = &mut self.pages[number as usize];
        let kept = if *is_last { SMALL_PAGE } else { 0 }; // only the last page grows again
        if items.len() < items.capacity() / 2 && items.capacity() > kept {
            items.shrink_to(kept);
        }
    }

    /// Two pages are merged if they fill no more than this of one: the merge must be worth its cost.
    const MAX_MERGED: usize = PAGE_SIZE / 4 * 3;

    /// Moves the items of the next page to this page, if neither page grows and all fit well. An empty page takes all of it, or
    /// it would not be free before its list is read.
    fn merge_with_next(&mut self, number: u32) {
        let page = &self.pages[number as usize];
        let next = &self.pages[page.next as usize];
        let fits = page.items.is_empty() || page.items.len() + next.unread().len() <= Self::MAX_MERGED;
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
}
