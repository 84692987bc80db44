//! Merging sparse neighbours: what keeps the memory of a list near that of its live items.

use super::page::{Numbering, PAGE_SIZE};
use super::{ListPool, Positions};

/// How many pages are compared with the next one for each page that is filled.
const MERGE_ATTEMPTS: usize = 4;
/// How many pages are searched for those.
const MAX_SEARCHED_PAGES: usize = 64;
/// Two pages are merged if they fill no more than this of one: the merge must be worth its cost.
const MAX_MERGED_ITEMS: u32 = PAGE_SIZE as u32 / 4 * 3;

impl<I: Copy> ListPool<I> {
    /// Compares a few pages with the next one of their lists. The next call continues from there.
    pub(super) fn merge_some_pages(&mut self, positions: &mut impl Positions<I>) {
        let mut attempts = MERGE_ATTEMPTS;
        for _ in 0..MAX_SEARCHED_PAGES.min(self.pages.len()) {
            self.last_compared = (self.last_compared + 1) % self.pages.len();
            if self.may_merge(self.last_compared as u32) {
                self.merge_with_next(self.last_compared as u32, positions);
                attempts -= 1;
            }
            if attempts == 0 {
                return;
            }
        }
    }

    /// Whether the page does not grow, and no item of it was read.
    fn may_merge(&self, number: u32) -> bool {
        let page = &self.pages[number as usize];
        !page.is_last && page.read_count == 0
    }

    /// Appends the live items of the next page to its own, and drops the removed items of both.
    fn merge_with_next(&mut self, number: u32, positions: &mut impl Positions<I>) {
        let next = self.pages[number as usize].next;
        let live_count = self.pages[number as usize].live_count + self.pages[next as usize].live_count;
        if live_count > MAX_MERGED_ITEMS || !self.may_merge(next) {
            return;
        }
        let mut items = Vec::with_capacity(live_count as usize);
        for from in [number, next] {
            for (item, offset) in std::mem::take(&mut self.pages[from as usize].items).into_iter().zip(0..) {
                if positions.is_at_position(item, Numbering::number(from, offset)) {
                    positions.set_position(item, Numbering::number(number, items.len()));
                    items.push(item);
                }
            }
        }
        debug_assert_eq!(items.len() as u32, live_count, "a page counts its live items");
        let page = &mut self.pages[number as usize];
        (page.items, page.live_count) = (items, live_count);
        self.remove_page(next);
    }
}
